"""The topics of a report in their order on the pages."""

from collections.abc import Callable

from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section
from pipelines.report.sections import (
    benchmarks,
    bit_information,
    bounds,
    budgets,
    coin,
    corpora,
    curves,
    designs,
    figure4,
    glossary,
    iwae,
    kappa,
    label,
    ladder,
    latent_bits,
    sequence_z,
    steering,
    swap,
    target_latent,
    target_reconstruction,
    text_samples,
    use_of_z,
)

SECTIONS: tuple[Callable[[Analysis], Section | None], ...] = (
    figure4.section,
    target_latent.section,
    target_reconstruction.section,
    kappa.section,
    designs.section,
    ladder.section,
    corpora.section,
    bounds.section,
    use_of_z.section,
    benchmarks.section,
    budgets.section,
    iwae.section,
    coin.section,
    label.section,
    curves.section,
    latent_bits.section,
    bit_information.section,
    swap.section,
    sequence_z.section,
    steering.section,
    text_samples.section,
    glossary.section,
)


def all_sections(analysis: Analysis) -> list[Section]:
    """Those with something to show."""
    return [section for make in SECTIONS if (section := make(analysis))]
