"""The topics of a report in their order on the pages; each is a module of this package."""

from collections.abc import Callable
from importlib import import_module

from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section

TOPICS = """
figure4 target_latent target_reconstruction kappa designs ladder corpora bounds use_of_z benchmarks
budgets iwae coin label curves latent_bits bit_information swap sequence_z steering text_samples
"""
SECTIONS: list[Callable[[Analysis], Section | None]] = [
    import_module(f"pipelines.report.sections.{topic}").section for topic in TOPICS.split()
]


def all_sections(analysis: Analysis) -> list[Section]:
    """The sections that have something to show, and what may not be compared, in short."""
    shown = [section for make in SECTIONS if (section := make(analysis))]
    return [*shown, Section("comparisons", "What may not be compared", [])]
