"""How loose ELBO and IWAE are: IWAE-K above the filtering bound."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section
from pipelines.report.style import Style, below, dots, plain


def section(analysis: Analysis) -> Section | None:
    words = "IWAE-K bound minus the filtering bound"
    figures = analysis.pictures("samples", words, samples, bound_by_samples)
    title = "How loose ELBO and IWAE are"
    return Section("iwae", title, figures) if figures else None


def samples(arm: Arm) -> list[int]:
    """K, of a Free Transformer."""
    return sorted(arm.first.evaluation.iwae_by_samples or {})


def bound_by_samples(arms: list[Arm], style: Mapping[str, Style]) -> Figure:
    """The IWAE bound minus the filtering bound, against the number K of its samples."""
    figure = Figure(figsize=(11, 4.4 + 0.2 * (len(arms) // 4)))
    axes = figure.subplots()
    for arm in arms:
        for run in arm.runs:
            bounds = run.evaluation.iwae_by_samples or {}
            filtering = run.figures("bits_per_token").bound.mean
            above = [bounds[k].mean - filtering for k in samples(arm)]
            axes.plot(samples(arm), above, lw=1.1, **dots(style[arm.name]))
    plain(axes, "IWAE-K bound minus the filtering bound", "samples K", "bits per token")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    below(figure, {arm.name: {"lw": 2, **dots(style[arm.name])} for arm in arms}, 4)
    return figure
