"""Continuations of held-out prompts, by the first seed of each arm."""

from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section


def section(analysis: Analysis) -> Section | None:
    arms = [arm for arm in analysis.arms if arm.first.details.samples]
    return Section("text_samples", "Text samples", content=arms) if arms else None
