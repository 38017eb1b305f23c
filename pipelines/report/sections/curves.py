"""Training curves: bounds and KL against tokens."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ftmodel.designs.hinge import LN2
from pipelines.artifacts.curve import Curve
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Picture, Section, prose
from pipelines.report.style import GREY, Style, plain, styles

TEXT = """\
Solid: the training bound, cross-entropy for a baseline and cross-entropy + KL for a Free
Transformer; a line for each seed. Thin dashed: a Free Transformer’s reconstruction
cross-entropy, which is not a language-model loss."""


def section(analysis: Analysis) -> Section:
    figures = []
    for data, group in analysis.by_data.items():
        runs = {run.name: run.curve for arm in group for run in arm.runs}
        names = {run.name: arm.name for arm in group for run in arm.runs}
        kappas = {
            a.first.name: a.run.kappa_bits for a in group if a.run.kappa_bits is not None
        }  # one dotted line an arm
        drawn = curves(runs, analysis.style, kappas, names)
        alt = f"Training bounds and KL against tokens on {data}"
        figures.append(Picture(f"curves_{data}", drawn, alt))
    return Section("curves", "Training curves", [prose(TEXT), *figures])


def curves(
    runs: Mapping[str, Curve],
    style: Mapping[str, Style] | None = None,
    kappas: Mapping[str, float] | None = None,
    arms: Mapping[str, str] | None = None,
) -> Figure:
    """Training bounds against tokens, and the KL of runs that have one; bits per token.

    Reconstruction CE is dashed: it may not be compared between runs. κ is dotted. Runs whose arm is
    the same (``arms``: arm by run) share its style and its entry in the legend, in thinner lines.
    """
    arms = arms or {name: name for name in runs}
    style = style or styles(dict.fromkeys(arms.values()))
    looks = {name: {**style[arms[name]], "lw": 1.6} for name in runs}
    if len(set(arms.values())) < len(runs):
        looks = {name: {**look, "lw": 0.9} for name, look in looks.items()}
    latent = {name: curve for name, curve in runs.items() if has_latent(curve)}
    names = dict.fromkeys(arms[name] for name in runs)
    figure = Figure(figsize=(11 if latent else 7, 4.4 + 0.25 * (len(names) // 4)))
    bounds, *rest = figure.subplots(1, 2 if latent else 1, squeeze=False)[0]
    draw_bounds(bounds, runs, looks)
    for axes in rest:
        draw_kl(axes, latent, looks, kappas or {})
    legend(figure, {name: style[name] for name in names}, bool(latent))
    return figure


def has_latent(curve: Curve) -> bool:
    return curve[0].kl_bits is not None


def million(curve: Curve) -> list[float]:
    return [row.tokens / 1e6 for row in curve]


def draw_bounds(axes: Axes, runs: Mapping[str, Curve], looks: Mapping[str, Style]) -> None:
    for name, curve in runs.items():
        axes.plot(million(curve), [row.bound_bits for row in curve], **looks[name])
        if has_latent(curve):
            dashed = {**looks[name], "marker": "", "ls": "--", "alpha": 0.6}
            dashed["lw"] = 0.6 * looks[name]["lw"]
            axes.plot(million(curve), [row.ce_nats / LN2 for row in curve], **dashed)
    lowest = min(row.bound_bits for curve in runs.values() for row in curve)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], lowest / 5))  # CE may fall towards 0
    log_axis(axes, "Training bound")


def draw_kl(
    axes: Axes, runs: Mapping[str, Curve], looks: Mapping[str, Style], kappas: Mapping[str, float]
) -> None:
    for name, curve in runs.items():
        axes.plot(million(curve), [row.kl_bits or 0.0 for row in curve], **looks[name])
        if kappas.get(name, 0) > 0:
            axes.axhline(kappas[name], ls=":", lw=1.4, color=looks[name]["color"])
    log_axis(axes, "KL of the latent" + (" (dotted: κ)" if kappas else ""))


def log_axis(axes: Axes, title: str) -> None:
    plain(axes, title, "tokens (million)", "bits per token")
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    wide = high / low > 30
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 3.0, 5.0, 7.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def legend(figure: Figure, style: Mapping[str, Style], latent: bool) -> None:
    lines = [Line2D([], [], label=name, lw=2, **look) for name, look in style.items()]
    if latent:
        label = "reconstruction CE (not comparable)"
        lines.append(Line2D([], [], label=label, lw=1, ls="--", color=GREY))
    columns = min(len(lines), 4 if latent else 3)
    height = 0.2 * -(-len(lines) // columns) / figure.get_figheight()
    figure.legend(handles=lines, loc="lower center", ncols=columns, frameon=False, fontsize=9.5)
    figure.tight_layout(rect=(0, height, 1, 1))
