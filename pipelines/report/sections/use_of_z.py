"""What z is worth: KL, use of z, waste and recovery."""

from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section, Table
from pipelines.report.wording import estimate, number

HEAD = ["arm", "data", "κ", "KL", "use of z", "waste", "recovery"]


def section(analysis: Analysis) -> Section | None:
    rows = [
        [
            use.arm.name,
            use.arm.run.data,
            use.arm.first.kappa,
            *map(estimate, (use.kl, use.use, use.waste)),
            number(use.recovery, 2),
        ]
        for use in analysis.uses.values()
    ]
    return Section("use_of_z", "What z is worth", [Table(HEAD, rows)]) if rows else None
