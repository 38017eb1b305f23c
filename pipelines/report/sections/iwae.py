"""How loose ELBO and IWAE are: IWAE-K above the filtering bound."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Picture, Section, explained
from pipelines.report.style import Style, below, plain

TEXT = """\
The IWAE bound with K samples of z, minus the filtering bound of the same model; K = 1 is the
ELBO bound, up to sampling error. What lies above 0 is looseness of the bound, not a fault of the
model: compared by IWAE, a Free Transformer would look worse than it is by this much."""


def section(analysis: Analysis) -> Section | None:
    figures = []
    for data, group in analysis.by_data.items():
        if arms := [a for a in group if all(r.evaluation.iwae_by_samples for r in a.runs)]:
            alt = f"IWAE-K bound minus the filtering bound on {data}"
            drawn = bound_by_samples(arms, analysis.style)
            figures.append(Picture(f"samples_{data}", drawn, alt))
    blocks = [explained(TEXT, "the-other-bounds"), *figures]
    return Section("iwae", "How loose ELBO and IWAE are", blocks) if figures else None


def bound_by_samples(arms: list[Arm], style: Mapping[str, Style]) -> Figure:
    """The IWAE bound minus the filtering bound, against the number K of its samples."""
    figure = Figure(figsize=(11, 4.4 + 0.2 * (len(arms) // 4)))
    axes = figure.subplots()
    for arm in arms:
        for run in arm.runs:
            bounds = run.evaluation.iwae_by_samples or {}
            samples = sorted(bounds)
            filtering = run.figures("bits_per_token").bound.mean
            above = [bounds[k].mean - filtering for k in samples]
            look = {**style[arm.name], "markevery": 1, "marker": style[arm.name]["marker"] or "o"}
            axes.plot(samples, above, lw=1.1, **look)
    plain(
        axes,
        "IWAE-K bound minus the filtering bound",
        "samples K",
        "bits per token",
    )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    handles = [Line2D([], [], label=arm.name, lw=2, color=style[arm.name]["color"],
                      marker=style[arm.name]["marker"], ms=4) for arm in arms]  # fmt: skip
    below(figure, handles, 4)
    return figure
