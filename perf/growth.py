"""How time and memory grow, beside what the planner says of it, for one thread of a CPU.

docs/performance.md ("How cost grows") has the axes and what is planned. Each point is the least CPU
time of its turns, through which all points of a kind go together; a ratio is measured ÷ planned.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import geometric_mean
from time import process_time

import torch

from ftmodel.costs.filtering import filter_flops, filter_memory
from ftmodel.costs.time import fit_rates, step_work
from ftmodel.costs.training import memory
from ftmodel.inference.filtering import filtering_bound
from ftmodel.kernels.install import use_kernels
from ftmodel.model.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer
from perf import steps
from perf.measure import Figure, Work, figure, in_turns, peak_bytes

VOCAB_SIZE = 2048
MAX_RATIO = 1.15  # of what is measured to what is planned, or the other way round


@dataclass(frozen=True)
class Sizes:
    """Of a step: tokens per sequence, width, blocks, sequences, latent bits (a baseline has 0)."""

    T: int
    D: int
    L: int
    B: int
    H: int

    @property
    def config(self) -> ModelConfig:
        heads = max(1, self.D // 32)
        shape = dict(n_heads=heads, n_kv_heads=heads, ffn_width=self.D * 8 // 3, context=self.T)
        return ModelConfig(self.L, self.D, latent_bits=self.H, **shape)


BASE_SIZES = Sizes(T=256, D=128, L=4, B=8, H=8)
VARIED = {
    "T": (64, 128, 256, 512, 1024),
    "D": (32, 64, 128, 256, 512),
    "L": (2, 4, 8, 16),
    "B": (2, 4, 8, 16),
    "H": (4, 8, 10, 12, 14),
}
QUICK_BASE = Sizes(T=16, D=32, L=2, B=2, H=4)
QUICK_VARIED = {"T": (8, 16), "D": (32, 64), "L": (2, 4), "B": (1, 2), "H": (2, 4)}
PARTICLES = (4, 8, 16, 32, 64)
CHUNKS, FILTER_TOKENS = 8, 128  # of the filter, and tokens of each


def training_step(shape: Sizes) -> Work:
    torch.manual_seed(0)
    tokens = torch.randint(VOCAB_SIZE, (shape.B, shape.T + 1))
    return steps.training_work(steps.ours(shape.config, VOCAB_SIZE), tokens)


def held_at_most(shape: Sizes) -> int:
    """Bytes of a step as Lightning does it: old gradients live until the loss is computed."""
    torch.manual_seed(0)
    tokens = torch.randint(VOCAB_SIZE, (shape.B, shape.T + 1))
    model, loss = steps.ours(shape.config, VOCAB_SIZE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def training(count: int) -> None:
        for _ in range(count):
            value = loss(tokens)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()

    training(1)
    optimizer.zero_grad()
    return steps.held(model) + peak_bytes(partial(training, 2))


def points(base: Sizes, varied: dict[str, Sequence[int]]) -> Iterator[tuple[str, str, Sizes]]:
    """Axis, the name of a point on it, and its shape."""
    for axis, values in varied.items():
        for value in values:
            at, shape = f"{axis} = {value}", replace(base, **{axis: value})
            yield axis, f"Free Transformer, {at}", shape
            if axis != "H":
                yield axis, f"baseline, {at}", replace(shape, H=0)


def growth_of_steps(turns: int, base: Sizes, varied: dict[str, Sequence[int]]) -> list[Figure]:
    found = list(points(base, varied))
    shapes = dict.fromkeys(shape for *_, shape in found)
    arms = {shape: training_step(shape) for shape in shapes}
    seconds = {shape: min(spent) for shape, spent in in_turns(arms, turns, process_time).items()}
    arms.clear()
    works = {shape: step_work(shape.config, VOCAB_SIZE, shape.B) for shape in shapes}
    rates = fit_rates(list(works.values()), list(seconds.values()))
    time = {shape: seconds[shape] / rates.seconds(works[shape]) for shape in shapes}
    plans = {s: memory(s.config, VOCAB_SIZE, s.B, half=False, device="cpu").total for s in shapes}
    most = {shape: held_at_most(shape) / plans[shape] for shape in shapes}
    return [
        *by_axis("time", [(axis, name, time[shape]) for axis, name, shape in found]),
        *by_axis("memory", [(axis, name, most[shape]) for axis, name, shape in found]),
    ]


def growth_of_filter(turns: int, base: Sizes, particles: Sequence[int]) -> list[Figure]:
    config = replace(base, T=min(base.T, FILTER_TOKENS)).config
    torch.manual_seed(0)
    model = use_kernels(FreeTransformer(config, VOCAB_SIZE)).eval()
    tokens = torch.randint(VOCAB_SIZE, (CHUNKS, config.context + 1))

    def bound(k: int) -> None:
        noise = partial(torch.rand, CHUNKS, config.context, base.H)
        filtering_bound(model, tokens[:, :-1], tokens[:, 1:], k, noise)

    arms: dict[int, Work] = {k: partial(bound, k) for k in particles}
    seconds = {k: min(spent) for k, spent in in_turns(arms, turns, process_time).items()}
    flops = {k: filter_flops(config, VOCAB_SIZE, CHUNKS, k) for k in particles}
    rate = geometric_mean([flops[k] / seconds[k] for k in particles])
    held = sum(p.nbytes for p in model.parameters())
    most = {k: held + peak_bytes(work) for k, work in arms.items()}
    plans = {k: filter_memory(config, VOCAB_SIZE, CHUNKS, k) for k in particles}
    return [
        *by_axis("time", [("K", f"K = {k}", seconds[k] * rate / flops[k]) for k in particles]),
        *by_axis("memory", [("K", f"K = {k}", most[k] / plans[k]) for k in particles]),
    ]


def by_axis(quantity: str, ratios: Sequence[tuple[str, str, float]]) -> list[Figure]:
    """Of each axis the ratio to the plan that is farthest from 1, and that of every point."""
    farthest: dict[str, float] = {}
    for axis, _, value in ratios:
        farthest[axis] = max(farthest.get(axis, 0.0), value, 1 / value)
    return [
        *(
            figure(
                f"{quantity} against {axis}: farthest from the planner", [most], at_most=MAX_RATIO
            )
            for axis, most in farthest.items()
        ),
        *(figure(f"{quantity} ÷ planner, {name}", [value]) for _, name, value in ratios),
    ]


def measure(turns: int, quick: bool) -> list[Figure]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    base, varied = (QUICK_BASE, QUICK_VARIED) if quick else (BASE_SIZES, VARIED)
    particles = PARTICLES[:2] if quick else PARTICLES
    found = growth_of_steps(turns, base, varied) + growth_of_filter(turns, base, particles)
    torch.set_num_threads(threads)
    return found
