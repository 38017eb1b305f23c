"""What z is worth: KL, use of z, waste and recovery."""

from math import isnan

from pipelines.compare.arms import OverSeeds
from pipelines.compare.use_of_z import UseOfZ, uses_of_z
from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section

HEAD = ["arm", "data", "κ", "KL", "use of z", "waste", "recovery"]


def section(analysis: Analysis) -> Section | None:
    rows = [row(use) for arms in analysis.by_data.values() for use in uses_of_z(arms)]
    return Section("use_of_z", "What z is worth", table=[HEAD, *rows]) if rows else None


def row(use: UseOfZ) -> list[str]:
    recovery = "–" if use.recovery is None else f"{use.recovery:.2f}".replace("-", "−")
    arm = use.arm
    figures = [cell(use.kl), cell(use.use), cell(use.waste), recovery]
    return [arm.name, arm.run.data, arm.first.kappa, *figures]


def cell(estimate: OverSeeds) -> str:
    spread = "" if isnan(estimate.spread) else f", spread {estimate.spread:.4f}"
    return f"{estimate}{spread}"
