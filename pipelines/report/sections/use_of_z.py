"""What z is worth: KL, use of z, waste and recovery."""

from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section, Table
from pipelines.report.wording import estimate, number


def section(analysis: Analysis) -> Section | None:
    table = Table.of(
        analysis.uses.values(),
        {
            "arm": lambda use: use.arm.name,
            "data": lambda use: use.arm.run.data,
            "κ": lambda use: use.arm.first.kappa,
            "KL": lambda use: estimate(use.kl),
            "use of z": lambda use: estimate(use.use),
            "waste": lambda use: estimate(use.waste),
            "recovery": lambda use: number(use.recovery, 2),
        },
    )
    return Section("use_of_z", "What z is worth", [table]) if table.rows else None
