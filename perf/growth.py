"""How time and memory grow, beside what the planner says of it, for one thread of a CPU.

  T, D, L, B, H   a whole training step (perf/steps.py) in float32, of a baseline and of a
                  Free Transformer, one of them varied around one shape
  K               the filtering bound with so many particles
  JOBS            so many training runs side by side, each in a process with one thread
  workers         processes of Ray that share each batch of stage train

Each point is the least of its turns, through which all points of a kind go together: CPU time, but
wall time for JOBS and workers. A ratio is measured ÷ planned. Time of a step is planned by
ftmodel/costs/time.py with two rates fitted to all steps, time of the filter by its FLOPs with one
rate, fitted too; runs and workers share the cores without loss. Memory is planned in bytes.
"""

from dataclasses import dataclass, replace
from statistics import geometric_mean
from time import process_time

import torch
from torch import nn

from ftmodel.costs import memory
from ftmodel.costs.filtering import filter_flops, filter_memory
from ftmodel.costs.time import fit_rates, step_work
from ftmodel.inference.filtering import filtering_bound
from ftmodel.kernels.install import use_kernels
from ftmodel.model.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer
from perf import side_by_side, steps
from perf.growth_plot import ARMS, Curve, draw
from perf.measure import Figure, Picture, Work, figure, in_turns, peak_bytes

MIB, VOCABULARY = 1 << 20, 2048
OFF = 0.15  # share by which the planner may be off


@dataclass(frozen=True)
class Shape:
    """Of a step: tokens per sequence, width, blocks, sequences, latent bits."""

    T: int
    D: int
    L: int
    B: int
    H: int

    def config(self, arm: str) -> ModelConfig:
        heads = max(1, self.D // 32)
        shape = dict(n_heads=heads, n_kv_heads=heads, ffn_width=self.D * 8 // 3, context=self.T)
        return ModelConfig(self.L, self.D, latent_bits=0 if arm == "baseline" else self.H, **shape)

    def bytes(self, arm: str) -> float:
        return memory(self.config(arm), VOCABULARY, self.B, half=False, device="cpu").total


AXES = {
    "T": "tokens per sequence, T",
    "D": "width, D",
    "L": "blocks, L",
    "B": "sequences, B",
    "H": "latent bits, H",
}
BASE = Shape(T=256, D=128, L=4, B=8, H=8)
VARIED = {
    "T": (64, 128, 256, 512, 1024),
    "D": (32, 64, 128, 256, 512),
    "L": (2, 4, 8, 16),
    "B": (2, 4, 8, 16),
    "H": (4, 8, 10, 12, 14),
}
QUICK = Shape(T=16, D=32, L=2, B=2, H=4)
QUICKLY = {"T": (8, 16), "D": (32, 64), "L": (2, 4), "B": (1, 2), "H": (2, 4)}
PARTICLES = (4, 8, 16, 32, 64)
CHUNKS, CHUNK = 8, 128  # of the filter, and tokens of each


def training_step(shape: Shape, arm: str) -> tuple[nn.Module, steps.Loss, torch.Tensor]:
    torch.manual_seed(0)
    tokens = torch.randint(VOCABULARY, (shape.B, shape.T + 1))
    return *steps.ours(shape.config(arm), VOCABULARY), tokens


def held_at_most(shape: Shape, arm: str) -> int:
    """Bytes of tensors in a step as Lightning does it: gradients of the step before are there until
    the loss has been computed.
    """
    model, loss, tokens = training_step(shape, arm)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        value = loss(tokens)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()

    def two_steps() -> None:
        step()
        step()

    step()
    optimizer.zero_grad()
    return steps.held(model) + peak_bytes(two_steps)


def training_curves(turns: int, base: Shape, varied: dict[str, tuple[int, ...]]) -> list[Curve]:
    points = {
        (replace(base, **{axis: value}), arm): None
        for axis, values in varied.items()
        for value in values
        for arm in shown(axis)
    }
    arms: dict[tuple[Shape, str], Work] = {}
    for shape, arm in points:
        model, loss, tokens = training_step(shape, arm)
        arms[shape, arm] = steps.step((model, loss), tokens)
    seconds = {at: min(spent) for at, spent in in_turns(arms, turns, process_time).items()}
    arms.clear()
    works = {(s, arm): step_work(s.config(arm), VOCABULARY, s.B) for s, arm in points}
    rates = fit_rates(list(works.values()), list(seconds.values()))
    most = {(shape, arm): held_at_most(shape, arm) for shape, arm in points}
    curves = []
    for axis, values in varied.items():
        for arm in shown(axis):
            at = [(replace(base, **{axis: value}), arm) for value in values]
            planned = [rates.seconds(works[point]) for point in at]
            measured = [seconds[point] for point in at]
            curves.append(Curve("time", axis, arm, "s", values, measured, planned))
            planned = [shape.bytes(arm) / MIB for shape, _ in at]
            measured = [most[point] / MIB for point in at]
            curves.append(Curve("memory", axis, arm, "MiB", values, measured, planned))
    return curves


def shown(axis: str) -> list[str]:
    """A baseline has no latent bits."""
    return list(ARMS)[axis == "H" :]


def particle_curves(turns: int, base: Shape, particles: tuple[int, ...]) -> list[Curve]:
    arm = "Free Transformer"
    config = replace(base, T=min(base.T, CHUNK)).config(arm)
    torch.manual_seed(0)
    model = use_kernels(FreeTransformer(config, VOCABULARY)).eval()
    tokens = torch.randint(VOCABULARY, (CHUNKS, config.context + 1))
    inputs, targets, noise = tokens[:, :-1], tokens[:, 1:], (CHUNKS, config.context, base.H)

    def bound(k: int) -> None:
        filtering_bound(model, inputs, targets, k, lambda: torch.rand(noise))

    arms: dict[int, Work] = {k: lambda k=k: bound(k) for k in particles}  # type: ignore[misc]
    seconds = [min(spent) for spent in in_turns(arms, turns, process_time).values()]
    flops = [filter_flops(config, VOCABULARY, CHUNKS, k) for k in particles]
    rate = geometric_mean([f / s for f, s in zip(flops, seconds, strict=True)])
    parameters = sum(p.nbytes for p in model.parameters())
    most = [(parameters + peak_bytes(work)) / MIB for work in arms.values()]
    said = [filter_memory(config, VOCABULARY, CHUNKS, k) / MIB for k in particles]
    return [
        Curve("time", "K", arm, "s", particles, seconds, [f / rate for f in flops]),
        Curve("memory", "K", arm, "MiB", particles, most, said),
    ]


def summary(curves: list[Curve]) -> list[Figure]:
    """The ratio at every point, and of each quantity and axis the one farthest from 1."""
    figures, farthest = [], {}
    for curve in curves:
        ratios = curve.ratios()
        for value, each in zip(curve.values, ratios, strict=True):
            name = f"{curve.quantity} ÷ planner, {curve.arm}, {curve.axis} = {value}"
            figures.append(figure(name, [each], "ratio"))
        at = curve.quantity, curve.axis
        farthest[at] = max(farthest.get(at, 0.0), *(max(r, 1 / r) for r in ratios))
    return [
        figure(f"{quantity} against {axis}: farthest from the planner", [most], "ratio",
               at_most=1 + OFF)
        for (quantity, axis), most in farthest.items()
    ] + figures  # fmt: skip


def measure(turns: int, quick: bool) -> list[Figure | Picture]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    base, varied = (QUICK, QUICKLY) if quick else (BASE, VARIED)
    curves = [
        *training_curves(turns, base, varied),
        *particle_curves(turns, base, PARTICLES[:2] if quick else PARTICLES),
    ]
    torch.set_num_threads(threads)
    config = base.config("Free Transformer")
    together = side_by_side.curves(config, VOCABULARY, base.B, turns, quick)
    words = "points: measured, with measured ÷ planned; lines: the planner"
    return [
        *side_by_side.efficiencies(together),
        *summary([*curves, *together]),
        Picture(
            "Time and memory of a training step against its shape, and of the filtering bound "
            "against particles",
            draw(curves, AXES | {"K": "particles, K"}, words),
        ),
        Picture(
            "Time and memory of runs side by side, and of Ray's workers on one batch",
            draw(together, side_by_side.AXES, words),
        ),
    ]
