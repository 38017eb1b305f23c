"""How well text is rebuilt with z that is not its own."""

from pipelines.artifacts.latent_results import Swap
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section, Table, explained

HEAD = ["run", "κ", "texts", "reconstruction CE, own z", "z of the prior − own",
        "z of another text − own", "own z permuted − own"]  # fmt: skip


TEXT = """\
Reconstruction cross-entropy of held-out text, bits per token, when z is not the one that its
encoder gives it: no language-model loss, and not to be compared between arms. At 0 the decoder
does not care where z comes from; a difference within two errors of 0 is no sign that it reads z.
“Another text” is a stretch of another document at the same positions; “permuted” is the text’s
own z at shuffled positions. ± is one standard error over documents."""


def section(analysis: Analysis) -> Section | None:
    rows = [
        [run.name, run.kappa, *cells(swap)]
        for run in analysis.runs
        if (swap := run.evaluation.swap)
    ]
    blocks = [explained(TEXT, "swap-of-z"), Table(HEAD, rows)]
    return Section("swap", "The z of another text", blocks) if rows else None


def cells(swap: Swap) -> list[str]:
    differences = (swap.prior_minus_own, swap.other_minus_own, swap.permuted_minus_own)
    return [f"{swap.texts:,}", str(swap.own), *map(str, differences)]
