"""How a training step grows with its shape, beside what the planner says of it.

A step is a whole one (benchmarks/steps.py) on the CPU in float32, of a baseline and of a Free
Transformer. Around one shape T, D, L, B and H are varied, one at a time.

  time     beside ftmodel.costs.flops_per_token, in proportion: the line goes through the base shape
  memory   beside ftmodel.costs.memory, in bytes: tensors held when most are
"""

from dataclasses import dataclass, replace
from io import BytesIO
from statistics import median

import matplotlib.figure
import torch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from benchmarks import steps
from benchmarks.measure import Figure, Picture, figure, in_turns, peak_bytes
from ftmodel.costs import flops_per_token, memory
from ftmodel.model.config import ModelConfig
from pipelines.report.style import COLOURS, GREY

VOCABULARY = 2048
ARMS = {"baseline": (COLOURS[0], "o"), "Free Transformer": (COLOURS[1], "s")}


@dataclass(frozen=True)
class Shape:
    """Of a step: tokens a sequence, width, blocks, sequences, latent bits."""

    T: int
    D: int
    L: int
    B: int
    H: int

    def config(self, arm: str) -> ModelConfig:
        heads = max(1, self.D // 32)
        shape = dict(n_heads=heads, n_kv_heads=heads, ffn_width=self.D * 8 // 3, context=self.T)
        return ModelConfig(self.L, self.D, latent_bits=0 if arm == "baseline" else self.H, **shape)

    def flops(self, arm: str) -> float:
        return self.B * self.T * flops_per_token(self.config(arm), VOCABULARY).total

    def bytes(self, arm: str) -> float:
        return memory(self.config(arm), VOCABULARY, self.B, half=False, device="cpu").total


@dataclass
class Point:
    seconds: list[float]
    bytes: int


AXES = {
    "T": "tokens a sequence, T",
    "D": "width, D",
    "L": "blocks, L",
    "B": "sequences, B",
    "H": "latent bits, H",
}
BASE = Shape(T=256, D=256, L=8, B=8, H=8)
VARIED = {
    "T": (64, 128, 256, 512, 1024),
    "D": (64, 128, 256, 512),
    "L": (2, 4, 8, 16),
    "B": (2, 4, 8, 16),
    "H": (4, 8, 10, 12, 14),
}
QUICK = Shape(T=16, D=32, L=2, B=2, H=4)
QUICKLY = {"T": (8, 16), "D": (32, 64), "L": (2, 4), "B": (1, 2), "H": (2, 4)}

Points = dict[tuple[Shape, str], Point]  # by shape and arm


def point(shape: Shape, turns: int) -> dict[str, Point]:
    """Both arms, in turns."""
    torch.manual_seed(0)
    tokens = torch.randint(VOCABULARY, (shape.B, shape.T + 1))
    made = {arm: steps.ours(shape.config(arm), VOCABULARY) for arm in ARMS}
    work = {arm: steps.step(made[arm], tokens) for arm in ARMS}
    seconds = in_turns(work, turns)
    return {
        arm: Point(seconds[arm], steps.held(made[arm][0]) + peak_bytes(work[arm])) for arm in ARMS
    }


def line(points: Points, base: Shape, shape: Shape, arm: str) -> float:
    """Seconds that the FLOP model says, if it is right at the base shape."""
    return median(points[base, arm].seconds) * shape.flops(arm) / base.flops(arm)


def shown(axis: str) -> list[str]:
    """A baseline has no latent bits."""
    return list(ARMS)[axis == "H" :]


def draw(points: Points, base: Shape, varied: dict[str, tuple[int, ...]]) -> bytes:
    picture = matplotlib.figure.Figure(figsize=(13, 5.6), layout="constrained")
    panels = picture.subplots(2, len(AXES), sharey="row")
    for column, (axis, label) in enumerate(AXES.items()):
        shapes = {value: replace(base, **{axis: value}) for value in varied[axis]}
        for arm in shown(axis):
            colour, marker = ARMS[arm]
            found = [points[shape, arm] for shape in shapes.values()]
            times = [median(each.seconds) for each in found]
            model = [line(points, base, shape, arm) for shape in shapes.values()]
            sizes = [each.bytes / 2**20 for each in found]
            said = [shape.bytes(arm) / 2**20 for shape in shapes.values()]
            for axes, measured, expected in zip(
                panels[:, column], (times, sizes), (model, said), strict=True
            ):
                axes.plot(list(shapes), expected, color=colour, lw=1, alpha=0.7)
                style = {"color": colour, "marker": marker, "markersize": 5, "ls": ""}
                axes.plot(list(shapes), measured, **style, label=arm)
        for axes in panels[:, column]:
            axes.set(xscale="log", yscale="log")
            axes.xaxis.set_major_locator(FixedLocator(varied[axis]))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.axvline(getattr(base, axis), color=GREY, lw=0.8, ls=":", zorder=0)
            axes.grid(axis="y", color="#e5e7eb", lw=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        panels[1, column].set_xlabel(label)
    panels[0, 0].set_ylabel("a step, seconds")
    panels[1, 0].set_ylabel("memory, MiB")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False)
    picture.suptitle(
        "points: measured; lines: the planner's FLOPs (through the dotted base shape) and bytes",
        x=0.99,
        ha="right",
        fontsize=10,
        color=GREY,
    )
    file = BytesIO()
    picture.savefig(file, format="png", dpi=130)
    return file.getvalue()


def measure(turns: int, quick: bool) -> list[Figure | Picture]:
    base, varied = (QUICK, QUICKLY) if quick else (BASE, VARIED)
    shapes = {replace(base, **{axis: value}) for axis in AXES for value in varied[axis]}
    points = {
        (shape, arm): found
        for shape in sorted(shapes, key=lambda shape: shape.flops("baseline"))
        for arm, found in point(shape, turns).items()
    }
    figures: list[Figure | Picture] = []
    for arm in ARMS:
        at = f"{arm}, {', '.join(f'{k} = {v}' for k, v in vars(base).items() if arm in shown(k))}"
        figures.append(figure(f"step, {at}", points[base, arm].seconds, "s"))
        figures.append(figure(f"memory, {at}", [points[base, arm].bytes / 2**20], "MiB"))
        for axis in AXES:
            for value in sorted({varied[axis][0], varied[axis][-1]} - {getattr(base, axis)}):
                if arm not in shown(axis):
                    continue
                shape = replace(base, **{axis: value})
                found, expected = points[shape, arm], line(points, base, shape, arm)
                at = f"{arm}, {axis} = {value}"
                times = [spent / expected for spent in found.seconds]
                figures.append(figure(f"time ÷ FLOP model, {at}", times, "ratio"))
                sizes = [found.bytes / shape.bytes(arm)]
                figures.append(figure(f"memory ÷ memory model, {at}", sizes, "ratio"))
    title = "Time and memory of a training step against its shape"
    return [*figures, Picture(title, draw(points, base, varied))]
