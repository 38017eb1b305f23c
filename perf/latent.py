"""What the latent costs: our Free Transformer beside our baseline.

A whole training step, same shapes and code paths. Time and memory are ratios to the baseline, whose
bound is the ratio of FLOPs that the planner counts; memory is the peak with parameters and the
optimizer's moments, without the table (2^H, D) and its moments, which are reported apart with its
gradient. If the gradient is there at a step's peak, it counts.
"""

from dataclasses import replace

import torch

from ftmodel.config import ModelConfig
from ftmodel.costs.training import flops_per_token
from perf import steps
from perf.measure import Figure, figure, in_turns, peak_bytes, ratio
from perf.steps import BATCH, QUICK, SHAPE, VOCABULARY

MIB = 1 << 20
SHAPE_D512 = replace(SHAPE, d_model=512, n_heads=8, n_kv_heads=8, ffn_width=1408)
COMPARED_SHAPES = {  # shape, H, compiled, bf16
    "D = 256, H = 8, float32": (SHAPE, 8, False, False),
    "D = 256, H = 8, float32, compiled": (SHAPE, 8, True, False),
    "D = 256, H = 8, bf16, compiled": (SHAPE, 8, True, True),
    "D = 512, H = 8, float32": (SHAPE_D512, 8, False, False),
    "D = 256, H = 16, float32": (SHAPE, 16, False, False),
}


def beside_baseline(
    where: str, config: ModelConfig, compiled: bool, half: bool, turns: int
) -> list[Figure]:
    tokens = torch.randint(VOCABULARY, (BATCH, config.context + 1))
    configs = {"free": config, "baseline": replace(config, latent_bits=0)}
    made = {arm: steps.ours(c, VOCABULARY, compiled) for arm, c in configs.items()}
    arms = {arm: steps.training_work(made[arm], tokens, half, steps.STEPS_PER_TURN) for arm in made}
    seconds = in_turns(arms, turns)
    flops = {arm: flops_per_token(c, VOCABULARY).total for arm, c in configs.items()}
    bound = flops["free"] / flops["baseline"]
    table = 4 * config.d_model << config.latent_bits
    most = {arm: steps.held(made[arm][0]) + peak_bytes(arms[arm]) for arm in made}
    memory = (most["free"] - 3 * table) / most["baseline"]  # its moments too
    return [
        figure(f"{where}: FLOPs, Free Transformer ÷ baseline", [bound]),
        ratio(f"{where}: time", seconds["free"], seconds["baseline"], at_most=bound + 0.015),
        figure(f"{where}: peak memory", [memory], at_most=bound + 0.02),
        figure(f"{where}: table, gradient, moments", [4 * table / MIB], "MiB"),
        figure(f"{where}: baseline's peak memory", [most["baseline"] / MIB], "MiB"),
    ]


def measure(turns: int, quick: bool) -> list[Figure]:
    torch.manual_seed(0)
    found: list[Figure] = []
    rows = {"D = 32, H = 8": (QUICK, 8, False, False)} if quick else COMPARED_SHAPES
    for where, (shape, bits, compiled, half) in rows.items():
        config = replace(shape, latent_bits=bits)
        found += beside_baseline(where, config, compiled, half, turns)
    return found
