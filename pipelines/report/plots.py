"""The figures of a report and of an MLflow run, drawn with matplotlib."""

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy import full, nan

from ftmodel.model.objective import LN2
from pipelines.artifacts.results import Curve, training_bits
from pipelines.report.sections.figure4 import Panel, Row, character_kinds

# Okabe and Ito's palette, told apart by colour-blind readers, with Tol's wine for its yellow; from
# the ninth run on with markers
COLOURS = (
    "#000000",
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#882255",
)
MARKERS = ("", "o", "s", "^", "D", "v")
GREY = "#767676"
KINDS = {  # of characters in a generated sequence
    "prompt": "#555555",
    "blank": "#c4c8cc",
    "noise": "#c2410c",
    "target": "#1d4ed8",
    "other": "#111111",
}
FRESH, PINNED = "#3b82f6", "#16a34a"  # boxes: blue and green, as in the paper

Style = dict[str, Any]


def styles(names: Iterable[str]) -> dict[str, Style]:
    """A line style for each run or arm, the same in every figure that is given it."""
    return {
        name: {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i // len(COLOURS) % len(MARKERS)],
            "markevery": 0.1,
            "markersize": 4,
        }
        for i, name in enumerate(names)
    }


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
    latent = {name: rows for name, rows in runs.items() if "kl_bits" in rows[0]}
    names = dict.fromkeys(arms[name] for name in runs)
    figure = Figure(figsize=(11 if latent else 7, 4.4 + 0.25 * (len(names) // 4)))
    bounds, *rest = figure.subplots(1, 2 if latent else 1, squeeze=False)[0]
    draw_bounds(bounds, runs, looks)
    for axes in rest:
        draw_kl(axes, latent, looks, kappas or {})
    legend(figure, {name: style[name] for name in names}, bool(latent))
    return figure


def million(rows: Curve) -> list[float]:
    return [row["tokens"] / 1e6 for row in rows]


def draw_bounds(axes: Axes, runs: Mapping[str, Curve], style: Mapping[str, Style]) -> None:
    for name, rows in runs.items():
        axes.plot(million(rows), [training_bits(row) for row in rows], **style[name])
        if "kl_bits" in rows[0]:
            dashed = {**style[name], "marker": "", "ls": "--", "alpha": 0.6}
            dashed["lw"] = 0.6 * style[name]["lw"]
            axes.plot(million(rows), [row["ce_nats"] / LN2 for row in rows], **dashed)
    lowest = min(training_bits(row) for rows in runs.values() for row in rows)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], lowest / 5))  # CE may fall towards 0
    log_axis(axes, "Training bound")


def draw_kl(
    axes: Axes, runs: Mapping[str, Curve], style: Mapping[str, Style], kappas: Mapping[str, float]
) -> None:
    for name, rows in runs.items():
        axes.plot(million(rows), [row["kl_bits"] for row in rows], **style[name])
        if kappas.get(name, 0) > 0:
            axes.axhline(kappas[name], ls=":", lw=1.4, color=style[name]["color"])
    log_axis(axes, "KL of the latent" + (" (dotted: κ)" if kappas else ""))


def log_axis(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel("tokens (million)")
    axes.set_ylabel("bits per token")
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    wide = high / low > 30
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 3.0, 5.0, 7.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(color="#e5e7eb", lw=0.7)
    axes.spines[["top", "right"]].set_visible(False)


def legend(figure: Figure, style: Mapping[str, Style], latent: bool) -> None:
    lines = [Line2D([], [], label=name, lw=2, **look) for name, look in style.items()]
    if latent:
        label = "reconstruction CE (not comparable)"
        lines.append(Line2D([], [], label=label, lw=1, ls="--", color=GREY))
    columns = min(len(lines), 4 if latent else 3)
    height = 0.2 * -(-len(lines) // columns) / figure.get_figheight()
    figure.legend(handles=lines, loc="lower center", ncols=columns, frameon=False, fontsize=9.5)
    figure.tight_layout(rect=(0, height, 1, 1))


def kl_per_bit(runs: Mapping[str, list[float]]) -> Figure:
    """Heat map of the KL, bits per token, of each latent bit; runs may differ in H."""
    width = max(len(values) for values in runs.values())
    figure = Figure(figsize=(11, 2 + 0.36 * len(runs)))
    axes = figure.subplots()
    shade = LogNorm(1e-3, 1, clip=True)
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


# Figure 4 is laid out in inches from the upper left corner.
PAGE, COLUMNS, BOX = 13.95, (0.25, 7.1), 6.6
LINE, FONT, HEADER = 0.19, 11.3, 1.0
KEY = (
    "Blue: each sequence has a z of its own.  Green: five sequences share one z.  "
    "Scores (spread: blue → green) are over all groups generated; the paper's, over those shown."
)


def figure4(rows: list[Row]) -> Figure:
    """The sequences of each arm beside the paper's: fresh z boxed in blue, pinned z in green."""
    height = HEADER + sum(row_height(row) for row in rows)
    figure = Figure(figsize=(PAGE, height), dpi=115)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, PAGE), ylim=(height, 0))
    axes.set_axis_off()
    for left, head in zip(COLUMNS, ("This experiment", "The paper (Figure 4)"), strict=True):
        axes.text(left, 0.35, head, fontsize=15, fontweight="bold")
    axes.text(COLUMNS[0], 0.68, KEY, fontsize=10.5, color=GREY)
    top = HEADER - 0.15
    for row in rows:
        axes.text(COLUMNS[0], top + 0.25, row.arm.title, fontsize=12.5, fontweight="bold")
        draw_panel(axes, COLUMNS[0], top + 0.4, row.ours)
        if row.paper:
            draw_panel(axes, COLUMNS[1], top + 0.4, row.paper)
        top += row_height(row)
    return figure


def row_height(row: Row) -> float:
    groups = row.ours.fresh + row.ours.pinned
    return 0.85 + sum(len(group) * LINE + 0.2 for group in groups)


def draw_panel(axes: Axes, left: float, top: float, panel: Panel) -> None:
    boxes = [(group, FRESH) for group in panel.fresh] + [(group, PINNED) for group in panel.pinned]
    for group, edge in boxes:
        height = len(group) * LINE + 0.08
        round_box = FancyBboxPatch(
            (left, top), BOX, height, "round,pad=0,rounding_size=0.06", fc="white", ec=edge, lw=1.8
        )
        axes.add_patch(round_box)
        for i, sequence in enumerate(group):
            draw_sequence(axes, left + 0.12, top + 0.04 + (i + 0.5) * LINE, sequence)
        top += height + 0.12
    axes.text(left, top + 0.12, panel.summary, fontsize=10.5, color="#374151")


def draw_sequence(axes: Axes, x: float, y: float, sequence: str) -> None:
    """One line of text for each kind of character, laid over each other by the fixed width."""
    kinds = character_kinds(sequence)
    for kind, colour in KINDS.items():
        masked = (c if k == kind else " " for c, k in zip(sequence, kinds, strict=True))
        weight = "bold" if kind in ("target", "noise") else "normal"
        axes.text(
            x,
            y,
            "".join(masked),
            family="DejaVu Sans Mono",
            fontsize=FONT,
            fontweight=weight,
            color=colour,
            va="center_baseline",
        )
