"""Figures of arms over their seeds: a dot or a thin line for each, a line through the means."""

from collections.abc import Mapping
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from pipelines.artifacts.results import UNITS, Measured, fraction
from pipelines.report.arms import Arm, baselines
from pipelines.report.plots import COLOURS, GREY, Style
from pipelines.report.scale import Scale, scale

GRID = "#e5e7eb"
SERIES = {  # against κ: label, colour, line
    "ce": ("reconstruction CE (not comparable)", GREY, "--"),
    "iwae": ("bound (IWAE)", COLOURS[1], "-"),
    "prior": ("prior-sample bound", COLOURS[2], "-"),
}


def plain(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color=GRID, lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def against_kappa(family: list[Arm]) -> Figure:
    """CE, bound and prior-sample bound of Free Transformers against κ, beside their baselines.

    The right panel has the bound alone, on a scale that shows what it gains or loses.
    """
    free = [arm for arm in family if not arm.baseline]
    axis = scale([arm.run.kappa_bits for arm in free], log=True)
    unit = free[0].unit
    levels = list(zip(baselines(family), (COLOURS[0], COLOURS[4]), strict=False))
    figure = Figure(figsize=(11, 4.6))
    left, right = figure.subplots(1, 2)
    for axes, keys in ((left, list(SERIES)), (right, ["iwae"])):
        for key in keys:
            draw_series(axes, free, key, axis)
        for arm, colour in levels:
            draw_level(axes, arm, colour)
        ticks = axis.ticks()
        axes.set_xticks([axis.places[k] for k in ticks], [fraction(k) for k in ticks])
        axes.margins(x=0.06, y=0.12)
    plain(left, "What z tells, and what it costs", "κ, bits per token", UNITS[unit])
    plain(right, "The bound alone", "κ, bits per token", UNITS[unit])
    handles = [
        Line2D([], [], color=colour, ls=line, marker="o", ms=4, label=label)
        for label, colour, line in SERIES.values()
    ] + [Line2D([], [], color=colour, lw=1.4, label=f"{arm.name} (NLL)") for arm, colour in levels]
    below(figure, handles, 3)
    return figure


def values(runs: list[Measured], key: str, unit: str) -> list[float]:
    return [found.mean for one in runs if (found := one.figure(key, unit))]


def draw_series(axes: Axes, free: list[Arm], key: str, axis: Scale) -> None:
    _, colour, line = SERIES[key]
    means: dict[float, list[float]] = {}
    for arm in free:
        found = values(arm.runs, key, arm.unit)
        place = axis.places[arm.run.kappa_bits]
        axes.plot([place] * len(found), found, "o", ms=4, color=colour, alpha=0.6)
        means.setdefault(place, []).extend(found)
    places = sorted(means)
    axes.plot(places, [fmean(means[p]) for p in places], line, lw=1.6, color=colour)


def draw_level(axes: Axes, arm: Arm, colour: str) -> None:
    """A baseline: its mean, and a band over what its seeds span."""
    found = values(arm.runs, "nll", arm.unit)
    axes.axhline(fmean(found), lw=1.4, color=colour)
    if len(found) > 1:
        axes.axhspan(min(found), max(found), color=colour, alpha=0.15, lw=0)


def by_budget(arms: list[Arm], style: Mapping[str, Style]) -> Figure:
    """Held-out bound against tokens trained: hollow snapshots of a trunk, full where annealed."""
    unit = arms[0].unit
    figure = Figure(figsize=(11, 4.8 + 0.2 * (len(arms) // 4)))
    axes = figure.subplots()
    for arm in arms:
        colour, marker = style[arm.name]["color"], style[arm.name]["marker"] or "o"
        for one in arm.runs:
            for annealed, line, face in ((False, ":", "white"), (True, "-", colour)):
                points = [
                    (entry["tokens"] / 1e6, entry[unit][one.bound_key]["mean"])
                    for entry in one.metrics.get("budgets", [])
                    if bool(entry["annealed"]) == annealed
                ]
                xs, ys = [x for x, _ in points], [y for _, y in points]
                axes.plot(xs, ys, line, marker=marker, ms=5, mfc=face, lw=1.1, color=colour)
    plain(axes, "Held-out bound at each budget", "tokens (million)", UNITS[unit])
    axes.set_xscale("log")
    budgets = {entry["tokens"] for arm in arms for entry in arm.first.metrics["budgets"]}
    ticks = scale(sorted(budgets), log=True).ticks()
    axes.set_xticks([tick / 1e6 for tick in ticks], [f"{tick / 1e6:.3g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    handles = [
        Line2D([], [], color=style[arm.name]["color"], marker=style[arm.name]["marker"] or "o",
               ms=5, label=arm.name) for arm in arms
    ]  # fmt: skip
    handles += [
        Line2D([], [], color=GREY, ls=":", marker="o", mfc="white", label="snapshot, not annealed"),
        Line2D([], [], color=GREY, marker="o", label="learning rate annealed to zero"),
    ]
    below(figure, handles, 3)
    return figure


def by_samples(arms: list[Arm], style: Mapping[str, Style]) -> Figure:
    """The IWAE bound against its number of samples K, above its value at the largest K."""
    figure = Figure(figsize=(11, 4.4 + 0.2 * (len(arms) // 4)))
    axes = figure.subplots()
    for arm in arms:
        for one in arm.runs:
            found = {int(k): v["mean"] for k, v in one.metrics["iwae_by_samples"].items()}
            samples = sorted(found)
            above = [found[k] - found[samples[-1]] for k in samples]
            look = {**style[arm.name], "markevery": 1, "marker": style[arm.name]["marker"] or "o"}
            axes.plot(samples, above, lw=1.1, **look)
    plain(
        axes,
        "What each further sample still takes off",
        "samples K",
        "bits per token above the last",
    )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    handles = [Line2D([], [], label=arm.name, lw=2, color=style[arm.name]["color"],
                      marker=style[arm.name]["marker"], ms=4) for arm in arms]  # fmt: skip
    below(figure, handles, 4)
    return figure


def label_in_bits(arms: list[Arm]) -> Figure:
    """Mutual information of each latent bit with the hidden label, a panel a run, beside chance."""
    runs = [one for arm in arms for one in arm.runs]
    columns = min(3, len(runs))
    rows = -(-len(runs) // columns)
    figure = Figure(figsize=(3.7 * columns, 2.5 * rows + 0.5))
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
    for axes, one in zip(panels, runs, strict=False):
        label = one.metrics["label"]
        axes.bar(range(len(label["per_bit"])), label["per_bit"], color=COLOURS[1])
        axes.axhline(label["null_95"], ls="--", lw=1.2, color=COLOURS[2])
        plain(axes, f"{one.name}: p = {label['p_value']:.3g}", "latent bit", "bits")
        axes.xaxis.get_major_locator().set_params(integer=True)
    for axes in panels[len(runs) :]:
        axes.set_visible(False)
    chance = "best bit of permuted labels, 95 % of the time below"
    below(figure, [Line2D([], [], ls="--", color=COLOURS[2], label=chance)], 1)
    return figure


def below(figure: Figure, handles: list[Line2D], columns: int) -> None:
    """A legend under the axes."""
    height = (0.1 + 0.2 * -(-len(handles) // columns)) / figure.get_figheight()
    figure.legend(handles=handles, loc="lower center", ncols=columns, frameon=False, fontsize=9.5)
    figure.tight_layout(rect=(0, height, 1, 1))
