"""How well text is rebuilt with latent codes that are not its own."""

from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section, Table
from pipelines.report.wording import estimate

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
    rows = []
    for run in analysis.runs:
        if swap := run.evaluation.swap:
            differences = (swap.prior_minus_own, swap.other_minus_own, swap.permuted_minus_own)
            cells = map(estimate, (swap.own, *differences))
            rows.append([run.name, run.kappa, f"{swap.texts:,}", *cells])
    return Section("swap", "Swapping z between texts", [Table(HEAD, rows)]) if rows else None
