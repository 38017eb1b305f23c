"""Continuations of held-out prompts, by the first seed of each arm."""

from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section


def section(analysis: Analysis) -> Section | None:
    arms = [a for a in analysis.arms if a.first.details.generations and not a.first.on_target]
    return Section("text_samples", "Text samples", content=arms) if arms else None
