"""How much each latent bit carries: a heat map of its KL."""

from collections.abc import Mapping

from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy import full, nan

from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Picture, Section


def section(analysis: Analysis) -> Section | None:
    bits = {run.name: run.details.kl_per_bit for run in analysis.runs if not run.baseline}
    if not bits:
        return None
    drawn = Picture("kl_per_bit", heat_map(bits), "KL of each latent bit, bits per token")
    return Section("latent_bits", "How much each latent bit carries", [drawn])


def heat_map(runs: Mapping[str, list[float]]) -> Figure:
    """Heat map of the KL, bits per token, of each latent bit; runs may differ in H."""
    width = max(map(len, runs.values()))
    figure = Figure(figsize=(11, 2 + 0.36 * len(runs)))
    axes = figure.subplots()
    largest = max(map(max, runs.values()))
    shade = LogNorm(1e-3, max(1, largest), clip=True)  # to a uniform prior 1 is the most
    size = min(9, 170 / width)  # points, so that 24 bits fit
    grid = full((len(runs), width), nan)
    for row, values in enumerate(runs.values()):
        grid[row, : len(values)] = values
        for bit, value in enumerate(values):
            colour = "white" if shade(value) > 0.6 else "#1f2937"
            axes.text(bit, row, f"{value:.3f}", ha="center", va="center", size=size, color=colour)
    image = axes.imshow(grid, aspect="auto", cmap="Blues", norm=shade)
    axes.set_yticks(range(len(runs)), list(runs))
    axes.xaxis.set_major_locator(MaxNLocator(min(width, 16), integer=True))
    axes.set_xlabel("latent bit (0 … H − 1)")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02, format="%g")
    bar.set_label("KL, bits per token")
    figure.tight_layout()
    return figure
