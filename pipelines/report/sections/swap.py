"""How well text is rebuilt with z that is not its own."""

from pipelines.artifacts.latent_results import Swap
from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section

HEAD = [
    "run",
    "κ",
    "texts",
    "reconstruction CE, own z",
    "z of the prior − own",
    "z of another text − own",
    "own z permuted − own",
]


def section(analysis: Analysis) -> Section | None:
    rows = [
        [run.name, run.kappa, *cells(swap)]
        for run in analysis.runs
        if (swap := run.evaluation.swap)
    ]
    return Section("swap", "The z of another text", table=[HEAD, *rows]) if rows else None


def cells(swap: Swap) -> list[str]:
    differences = (swap.prior_minus_own, swap.other_minus_own, swap.permuted_minus_own)
    return [f"{swap.texts:,}", str(swap.own), *map(str, differences)]
