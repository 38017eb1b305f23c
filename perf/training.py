"""Measure whole training steps: forward, loss, backward, clip, AdamW.

    python -m perf.training llama
    python -m perf.training 1.5B --device cuda

  llama       our baseline beside Hugging Face's Llama with PyTorch's fused attention: shape, batch
              and optimizer are the same; in float32 and bf16, with blocks compiled or not
  latent      our Free Transformer beside our baseline, for several shapes
  1.5B, 124M  the same for the shapes of experiments paper_1_5b and kappa_124m, in bf16, compiled,
              in micro-batches that fit into the GPU's memory beside the other arm's weights
  documents   the 124M shape with longer contexts, rows of eight documents: attention within
              documents by FlexAttention and by the dense mask

FLOPs and memory are beside the planner's. Speeds are beside the fastest product of two square
matrices measured in the same run, and beside the GPU's peak, if it is known.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import chdir, nullcontext
from dataclasses import dataclass, replace
from unittest.mock import patch

import click
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.benchmark import Timer
from transformers import LlamaConfig, LlamaForCausalLM

from ftmodel.config import ModelConfig
from ftmodel.conversion.llama import llama_config, llama_weights
from ftmodel.costs.training import flops_per_token, memory, utilisation
from ftmodel.kernels.attention import flex_works
from ftmodel.layers import use_kernels
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import training_loss
from perf.measure import (
    DEVICE,
    QUICK,
    TURNS,
    Measurement,
    Work,
    in_turns,
    peak_bytes,
    print_table,
    ratio,
)
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.compose import compose_config
from pipelines.config.load import parse
from pipelines.host.command_line import command, run_command
from pipelines.host.files import ROOT
from pipelines.host.machine import allowed_memory
from pipelines.parallel.plan import GIB, vocab_size
from pipelines.train.core.acceleration import blocks_of

KAPPA_BITS = 1.0
STEPS_PER_TURN = 3  # the first finds caches and allocator as another arm left them
SHAPE = ModelConfig(8, 256, 4, 4, 704, context=256, latent_bits=8)
SHAPE_D512 = replace(SHAPE, d_model=512, n_heads=8, n_kv_heads=8, ffn_width=1408)
TOY_SHAPE = ModelConfig(2, 32, 2, 2, 48, context=16, latent_bits=8)
# the experiment that trains it, sequences per step, and the utilisation to reach on a GPU
PRESETS = {
    "1.5B": ("paper_1_5b", 8, 0.40),  # as each of the experiment's 32 workers
    "124M": ("kappa_124m", 32, None),  # as one of its micro-batches
}
MEMORY_SHARE = 0.9  # of the GPU's memory: what the planner does not count needs the rest
DOCUMENT_CONTEXTS, N_DOCUMENTS = (4096, 8192), 8


@dataclass(frozen=True)
class Step:
    """What a step computes: ``accumulate`` micro-batches of ``sequences`` at full context."""

    config: ModelConfig
    vocabulary: int = 8192
    sequences: int = 8
    accumulate: int = 1
    half: bool = False  # bf16 autocast
    compiled: bool = False  # each block on its own, as stage train does
    device: str = "cpu"

    @property
    def tokens_per_turn(self) -> int:
        return STEPS_PER_TURN * self.accumulate * self.sequences * self.config.context


def baseline_of(step: Step) -> Step:
    return replace(step, config=replace(step.config, latent_bits=0, latent_block=None))


def compile_each(blocks: Sequence[nn.Module]) -> None:
    torch._dynamo.config.recompile_limit = 64  # arms share the code of a block, and its limit of 8
    for block in blocks:
        block.compile()


def our_step(step: Step, documents: Tensor | None = None) -> tuple[nn.Module, Work]:
    """Our model, and the work of a turn."""
    with torch.device(step.device):
        model = use_kernels(FreeTransformer(step.config, step.vocabulary))
    if step.compiled:
        compile_each(blocks_of(model))

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        noise = None
        if step.config.latent_bits:
            noise = torch.rand(*inputs.shape, step.config.latent_bits, device=inputs.device)
        return training_loss(model, inputs, targets, noise, KAPPA_BITS, documents).total

    return model, turn_of(step, model, loss)


def llama_step(step: Step) -> Work:
    llama = hugging_face_llama(FreeTransformer(step.config, step.vocabulary))
    llama.config.use_cache = False
    if step.compiled:
        compile_each(llama.model.layers)

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(llama(inputs).logits.flatten(0, 1), targets.flatten())

    return turn_of(step, llama, loss)


def hugging_face_llama(baseline: FreeTransformer) -> LlamaForCausalLM:
    """Our baseline as Hugging Face's Llama, with the same weights."""
    entries = llama_config(baseline.config, baseline.embedding.num_embeddings)
    llama = LlamaForCausalLM(LlamaConfig(**entries, attn_implementation="sdpa"))
    llama.load_state_dict(llama_weights(baseline), strict=False)  # without lm_head if it is tied
    return llama.eval()


def turn_of(step: Step, model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> Work:
    """The optimizer steps of a turn, all on the same tokens."""
    rng = torch.Generator().manual_seed(0)
    shape = (step.sequences, step.config.context + 1)
    tokens = torch.randint(step.vocabulary, shape, generator=rng).to(step.device)
    model.train()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    def turn() -> None:
        for _ in range(STEPS_PER_TURN):
            for _ in range(step.accumulate):
                precision = torch.autocast(step.device, torch.bfloat16)
                with precision if step.half else nullcontext():
                    value = loss(tokens[:, :-1], tokens[:, 1:])
                value.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return turn


def fastest_product(dtype: torch.dtype, size: int, device: str) -> float:
    """FLOP/s of the fastest product of two square matrices."""
    a, b = torch.randn(2, size, size, device=device).to(dtype)
    names, threads = {"torch": torch, "a": a, "b": b}, torch.get_num_threads()
    product = Timer("torch.mm(a, b)", globals=names, num_threads=threads)
    return 2 * size**3 / min(product.blocked_autorange(min_run_time=1).times)


def beside_llama(turns: int, quick: bool) -> list[Measurement]:
    """Speeds of our baseline ÷ Llama's, and our share of the machine's fastest products."""
    found = []
    for precision in (torch.float32, torch.bfloat16):
        product = fastest_product(precision, 512 if quick else 4096, "cpu")
        for compiled in (False,) if quick else (False, True):
            step = baseline_of(Step(TOY_SHAPE if quick else SHAPE))
            step = replace(step, half=precision is torch.bfloat16, compiled=compiled)
            seconds = in_turns({"ours": our_step(step)[1], "Llama": llama_step(step)}, turns)
            where = f"{precision}, {'compiled' if compiled else 'not compiled'}"
            where = where.removeprefix("torch.")
            speeds = [step.tokens_per_turn / spent for spent in seconds["ours"]]
            flops = flops_per_token(step.config, step.vocabulary)
            shares = [utilisation(speed, flops, product) for speed in speeds]
            name = f"{where}: ours ÷ Llama, speed"
            found += [
                ratio(name, seconds["Llama"], seconds["ours"], at_least=1.0),
                Measurement(f"{where}: ours", speeds, "tokens/s"),
                Measurement(f"{where}: ours, share of the products' speed", shares),
            ]
    return found


def beside_baseline(
    name: str, step: Step, turns: int, least_utilisation: float | None = None
) -> list[Measurement]:
    """A Free Transformer's step beside its baseline's.

    The planner's ratio of FLOPs bounds the ratio of times. Memory is the peak with parameters and
    the optimizer's moments. The ratio of memory leaves out the table (2^H, D) and its moments. If
    the table's gradient is there at a step's peak, it counts.
    """
    arms = {"free": step, "baseline": baseline_of(step)}
    torch.manual_seed(0)
    made = {arm: our_step(each) for arm, each in arms.items()}
    seconds = in_turns({arm: turn for arm, (_, turn) in made.items()}, turns)
    on_gpu = step.device == "cuda"
    dtype = torch.bfloat16 if step.half else torch.float32
    product = fastest_product(dtype, 8192 if on_gpu else 1024, step.device)
    peak = gpu_peak(torch.cuda.get_device_name()) if on_gpu else None
    flops = {arm: flops_per_token(each.config, step.vocabulary) for arm, each in arms.items()}
    bound = flops["free"].total / flops["baseline"].total
    time = f"{name}: time, free ÷ baseline"
    found = [
        Measurement(f"{name}: sequences a step", [step.sequences * step.accumulate]),
        Measurement(f"{name}: sequences a micro-batch", [step.sequences]),
        Measurement(f"{name}: fastest product", [product / 1e12], "TFLOP/s"),
        Measurement(f"{name}: FLOPs, free ÷ baseline", [bound], "ratio"),
        ratio(time, seconds["free"], seconds["baseline"], at_most=bound + 0.015),
    ]
    held = {}
    for arm, (model, turn) in made.items():
        speeds = [step.tokens_per_turn / spent for spent in seconds[arm]]
        found.append(Measurement(f"{name}, {arm}", speeds, "tokens/s"))
        if peak:
            shares = [utilisation(speed, flops[arm], peak) for speed in speeds]
            what = f"{name}, {arm}: model-FLOPs utilisation"
            found.append(Measurement(what, shares, at_least=least_utilisation))
        shares = [utilisation(speed, flops[arm], product) for speed in speeds]
        found.append(Measurement(f"{name}, {arm}: share of the product's speed", shares))
        # parameters and both moments are there before a step
        held[arm] = 12 * sum(parameter.numel() for parameter in model.parameters())
        held[arm] += peak_bytes(turn, step.device)
        planned = memory(
            arms[arm].config, step.vocabulary, step.sequences, step.half, device=step.device
        )
        found += [
            Measurement(f"{name}, {arm}: peak memory", [held[arm] / GIB], "GiB"),
            Measurement(f"{name}, {arm}: memory ÷ planner's", [held[arm] / planned.total], "ratio"),
        ]
    table = 4 * step.config.d_model << step.config.latent_bits
    without_table = (held["free"] - 3 * table) / held["baseline"]
    found.append(Measurement(f"{name}: memory, free ÷ baseline", [without_table], "ratio"))
    return found


def latent_costs(turns: int, quick: bool) -> list[Measurement]:
    if quick:
        return beside_baseline("D = 32, H = 8, float32", Step(TOY_SHAPE), turns)
    steps = {
        "D = 256, H = 8, float32": Step(SHAPE),
        "D = 256, H = 8, float32, compiled": Step(SHAPE, compiled=True),
        "D = 256, H = 8, bf16, compiled": Step(SHAPE, half=True, compiled=True),
        "D = 512, H = 8, float32": Step(SHAPE_D512),
        "D = 256, H = 16, float32": Step(replace(SHAPE, latent_bits=16)),
    }
    return [each for name, step in steps.items() for each in beside_baseline(name, step, turns)]


def preset_step(preset: str, device: str, quick: bool) -> Step:
    """The step of a preset's Free Transformer in micro-batches that fit; toy-sized if quick."""
    experiment_name, sequences, _ = PRESETS[preset]
    with chdir(ROOT):
        experiment = parse(compose_config([f"experiment={experiment_name}"]), "conf/")
    runs = experiment.runs.items()
    spec = RunSpec(experiment, next(name for name, run in runs if run.kappa_bits is not None))
    step = Step(spec.config, vocab_size(spec), sequences, half=True, compiled=True, device=device)
    if quick:
        return replace(step, config=TOY_SHAPE, vocabulary=64, sequences=2, compiled=False)
    room = torch.cuda.mem_get_info()[1] if device == "cuda" else allowed_memory()
    micro = fitting_sequences(step, MEMORY_SHARE * room)
    return replace(step, sequences=micro, accumulate=sequences // micro)


def fitting_sequences(step: Step, room: float) -> int:
    """The most sequences, halved as often as it takes, whose micro-batch fits ``room`` bytes beside
    the other arm's weights, as planned; at least 1.
    """
    micro = step.sequences
    while micro > 1:
        planned = [
            memory(arm.config, step.vocabulary, micro, step.half)
            for arm in (step, baseline_of(step))
        ]
        other = min(each.parameters + each.optimizer for each in planned)
        if max(each.total for each in planned) + other <= room:
            break
        micro //= 2
    return micro


def masks_of_documents(turns: int, device: str, quick: bool) -> list[Measurement]:
    """FlexAttention beside the dense mask; raises AssertionError if it does not work on a GPU."""
    step = replace(preset_step("124M", device, quick), sequences=1, accumulate=1)
    found = []
    for context in DOCUMENT_CONTEXTS:
        if quick:
            context //= 128
        longer = replace(step, config=replace(step.config, context=context, document_mask=True))
        if device == "cuda":
            works = flex_works(torch.device(device, 0), step.config.head_channels)
            assert works, "FlexAttention does not work here; a warning says why"
        torch.manual_seed(0)
        documents = torch.arange(context, device=device)[None] // (context // N_DOCUMENTS)
        _, turn = our_step(longer, documents)

        def dense(turn: Work = turn) -> None:
            with patch("ftmodel.positions.flex_works", lambda *_: False):
                turn()

        arms: dict[str, Work] = {"flex": turn, "dense": dense}
        seconds = in_turns(arms, turns)
        peaks = {arm: [peak_bytes(work, device) / GIB] for arm, work in arms.items()}
        for arm in arms:
            of_a_step = [spent / STEPS_PER_TURN for spent in seconds[arm]]
            found += [
                Measurement(f"{context} tokens, {arm}: a step", of_a_step, "s"),
                Measurement(f"{context} tokens, {arm}: peak beside weights", peaks[arm], "GiB"),
            ]
        for what, values in (("time", seconds), ("memory", peaks)):
            name = f"{context} tokens, {what}, flex ÷ dense"
            found.append(ratio(name, values["flex"], values["dense"], at_most=1.0))
    return found


# Dense bf16 peaks of GPUs, FLOP/s, sums in float32, as NVIDIA's datasheets say. Lightning's table
# (get_available_flops) does not recognise "NVIDIA H200", has the rates of sparse matrices for H200
# and H100 NVL, and has half the rates or less for RTX 4090, RTX 3090 and A40.
GPU_PEAKS = {
    "B200": 2250e12,
    "GH200": 989.4e12,
    "H200": 989.4e12,
    "H200 NVL": 835.5e12,
    "H100": 989.4e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835.5e12,
    "A100": 312e12,
    "A40": 149.7e12,
    "A10": 125e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "RTX 4090": 165.2e12,
    "RTX 3090": 71e12,
}


def gpu_peak(device_name: str) -> float | None:
    """Peak of a GPU by PyTorch's name for it, which may contain several of ours: the longest
    counts. None if it is not in the table.
    """
    names = [name for name in GPU_PEAKS if re.search(rf"\b{name}\b", device_name)]
    return GPU_PEAKS[max(names, key=len)] if names else None


@command(__doc__)
@click.argument("what", type=click.Choice(["llama", "latent", *PRESETS, "documents"]))
@TURNS
@QUICK
@DEVICE
def main(what: str, turns: int, quick: bool, device: str) -> None:
    if what == "llama":
        found = beside_llama(turns, quick)
    elif what == "latent":
        found = latent_costs(turns, quick)
    elif what == "documents":
        found = masks_of_documents(turns, device, quick)
    else:
        step = preset_step(what, device, quick)
        found = beside_baseline(what, step, turns, PRESETS[what][2])
    print_table(found, quick)


if __name__ == "__main__":
    run_command(main, "python -m perf.training")
