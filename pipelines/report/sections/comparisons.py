"""What may and may not be compared, in short; docs/report.md says it term by term."""

from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section


def section(analysis: Analysis) -> Section:
    return Section("comparisons", "What may not be compared", [])
