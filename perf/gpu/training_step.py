"""Training steps of a preset's arms, bf16 autocast, float32 weights, beside peak and planner.

Both arms in turns, blocks compiled, in micro-batches that fit beside the other arm's weights;
docs/performance.md ("On a GPU") has targets and peaks.
"""

from contextlib import chdir
from dataclasses import replace

import torch

from ftmodel.config import ModelConfig
from ftmodel.costs.training import flops_per_token, memory, utilisation
from perf import steps
from perf.gpu.peaks import peak
from perf.measure import Figure, figure, in_turns, peak_bytes, ratio
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.compose import compose_config
from pipelines.config.load import parse
from pipelines.host.files import ROOT
from pipelines.parallel.plan import GIB, vocab_size

# for each, the experiment that trains it, sequences per step, and the utilisation to reach
GPU_PRESETS = {
    "1.5 B": ("paper_1_5b", 8, 0.40),  # as each of the experiment's 32 workers
    "124 M": ("kappa_124m", 32, None),  # as one of its micro-batches
}
MEMORY_SHARE = 0.9  # of the GPU's memory: what the planner does not count needs the rest
QUICK_VOCABULARY = 64


def shape(preset: str) -> tuple[ModelConfig, int]:
    """The Free Transformer of a preset, and its vocabulary."""
    name = GPU_PRESETS[preset][0]
    with chdir(ROOT):
        experiment = parse(compose_config([f"experiment={name}"]), "conf/")
    spec = RunSpec(
        experiment,
        next(name for name, run in experiment.runs.items() if run.kappa_bits is not None),
    )
    return spec.config, vocab_size(spec)


def sequences(configs: dict[str, ModelConfig], vocabulary: int, most: int, room: float) -> int:
    """The largest power of two up to ``most`` whose step fits ``room`` bytes as planned; or 1."""
    batch = most
    while batch > 1:
        each = [memory(config, vocabulary, batch, half=True) for config in configs.values()]
        kept = min(m.parameters + m.optimizer for m in each)
        if max(m.total for m in each) + kept <= room:
            break
        batch //= 2
    return batch


def measure(turns: int, quick: bool, device: str, preset: str) -> list[Figure]:
    config, vocabulary = shape(preset)
    _, batch, _ = GPU_PRESETS[preset]
    if quick:
        config, vocabulary, batch = replace(steps.QUICK, latent_bits=8), QUICK_VOCABULARY, 2
    configs = {"baseline": replace(config, latent_bits=0, latent_block=None), "free": config}
    room = MEMORY_SHARE * torch.cuda.mem_get_info()[1] if device == "cuda" else MEMORY_SHARE * GIB
    micro = sequences(configs, vocabulary, batch, room)
    return both_arms(preset, configs, vocabulary, micro, batch // micro, device, turns)


def both_arms(
    preset: str,
    configs: dict[str, ModelConfig],
    vocabulary: int,
    micro: int,
    accumulate: int,
    device: str,
    turns: int,
) -> list[Figure]:
    """Measure both arms, with ``accumulate`` micro-batches of ``micro`` sequences per step."""
    torch.manual_seed(0)
    context = configs["free"].context
    tokens = torch.randint(vocabulary, (micro, context + 1), device=device)
    with torch.device(device):
        made = {arm: steps.ours(c, vocabulary, True) for arm, c in configs.items()}
    work = {
        arm: steps.training_work(made[arm], tokens, True, steps.STEPS_PER_TURN, accumulate)
        for arm in made
    }
    seconds = in_turns(work, turns)
    reached = steps.products(torch.bfloat16, 8192 if device == "cuda" else 64, turns, device)
    known = peak(torch.cuda.get_device_name()) if device == "cuda" else reached
    flops = {arm: flops_per_token(c, vocabulary) for arm, c in configs.items()}
    bound = flops["free"].total / flops["baseline"].total
    least = GPU_PRESETS[preset][2]
    target = {} if least is None else {"at_least": least}
    figures = [
        figure(f"{preset}: sequences a step", [micro * accumulate], ""),
        figure(f"{preset}: sequences a micro-batch", [micro], ""),
        figure(f"{preset}: products", [reached / 1e12], "TFLOP/s"),
        figure(f"{preset}: FLOPs, free ÷ baseline", [bound]),
        ratio(
            f"{preset}: time, free ÷ baseline",
            *(seconds["free"], seconds["baseline"]),
            at_most=bound + 0.015,
        ),
    ]
    for arm, config in configs.items():
        read = steps.STEPS_PER_TURN * accumulate * micro * context
        speed = [read / each for each in seconds[arm]]
        figures.append(figure(f"{preset}, {arm}", speed, "tokens/s"))
        if known:
            share = [utilisation(each, flops[arm], known) for each in speed]
            figures.append(figure(f"{preset}, {arm}: model-FLOPs utilisation", share, "", **target))
        share = [utilisation(each, flops[arm], reached) for each in speed]
        figures.append(figure(f"{preset}, {arm}: share of the products' speed", share, ""))
        bytes_ = steps.held(made[arm][0]) + peak_bytes(work[arm], device)
        planned = memory(config, vocabulary, micro, True, device=device).total
        figures.append(figure(f"{preset}, {arm}: peak memory", [bytes_ / GIB], "GiB"))
        figures.append(figure(f"{preset}, {arm}: memory ÷ planner's", [bytes_ / planned]))
    return figures
