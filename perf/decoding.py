"""Decoding: tokens per second of cached generation, in float32 unless it is said.

Arms, with prompts of 16 tokens:

  ours             ftmodel/inference/generate.py, a baseline
  free             the same, a Free Transformer, H = 16; z of new tokens from the prior
  bf16             ours with the large matrices rounded to bfloat16, where the CPU multiplies it
  dynamic, static  Hugging Face's Llama with the baseline's weights, SDPA and `generate`, by either
                   kind of cache, not compiled; the one that is faster by its median counts

At temperature 0 (greedy) and at 1, drawn from the whole vocabulary; prefill counts. Both sides have
the same shapes. Half of a step is overhead in the smallest, and nearly all of it is matrix products
in the largest.
"""

from functools import partial

import torch
from torch import Tensor
from transformers import LlamaForCausalLM
from transformers.utils import logging

from ftmodel.config import ModelConfig
from ftmodel.inference.decoder import RoundedWeights, bf16_products
from ftmodel.inference.generate import generate
from ftmodel.layers import use_kernels
from ftmodel.model.free_transformer import FreeTransformer
from perf.measure import Figure, Work, figure, in_turns, ratio
from tests.support.hugging_face import to_hugging_face

PROMPT_LENGTH = 16
# L, D, heads, SwiGLU's width, V: widths of 8 D / 3 rounded up to a multiple of 64
SHAPES = {
    "small": (4, 128, 4, 384, 8192),
    "middle": (8, 256, 8, 704, 8192),
    "large": (8, 512, 8, 1408, 32768),
}
TINY_SHAPES = {"tiny": (2, 32, 2, 64, 64)}


def measure(turns: int, quick: bool, device: str = "cpu", only: str | None = None) -> list[Figure]:
    """Measure all shapes, or ``only`` one."""
    logging.set_verbosity_error()
    figures = []
    for shape, sizes in (
        TINY_SHAPES if quick else {only: SHAPES[only]} if only else SHAPES
    ).items():
        context = 64 if quick else 1024
        baseline, free = (make_model(sizes, bits, context).to(device) for bits in (0, 16))
        reference = to_hugging_face(baseline).to(device)
        reference.set_attn_implementation("sdpa")
        new = {"tiny": 4, "large": 32}.get(shape, 128)
        for rows in (1, 2) if quick else (1, 16):
            name = f"{shape}, batch {rows}"
            figures += beside_generate(name, baseline, free, reference, rows, new, turns)
    return figures


def make_model(sizes: tuple[int, ...], bits: int, context: int) -> FreeTransformer:
    layers, width, heads, ffn, vocabulary = sizes
    torch.manual_seed(0)
    config = ModelConfig(layers, width, heads, heads, ffn, context, latent_bits=bits)
    return use_kernels(FreeTransformer(config, vocabulary)).eval()


def our_generation(
    model: FreeTransformer,
    prompt: Tensor,
    new: int,
    temperature: float,
    rounded: RoundedWeights | None = None,
) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    return generate(model, prompt, new, generator=rng, temperature=temperature, rounded=rounded)


def their_generation(
    model: LlamaForCausalLM, prompt: Tensor, new: int, temperature: float, cache: str
) -> Tensor:
    """Generate without an end-of-text token, so that all rows go on to the last token."""
    model.generation_config.eos_token_id = None
    how = {"temperature": temperature, "top_k": 0} if temperature else {}
    made = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=new,
        pad_token_id=0,
        use_cache=True,
        cache_implementation=cache,
        disable_compile=True,
        do_sample=bool(temperature),
        **how,
    )
    assert made.shape[1] == prompt.shape[1] + new
    return made


def beside_generate(
    name: str,
    baseline: FreeTransformer,
    free: FreeTransformer,
    reference: LlamaForCausalLM,
    rows: int,
    new: int,
    turns: int,
) -> list[Figure]:
    rng = torch.Generator().manual_seed(0)
    prompt = torch.randint(baseline.embedding.num_embeddings, (rows, PROMPT_LENGTH), generator=rng)
    prompt, figures = prompt.to(baseline.embedding.weight.device), []
    on_cpu = prompt.device.type == "cpu"
    rounded = RoundedWeights(baseline) if on_cpu and bf16_products() else None
    for how, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        arms: dict[str, Work] = {
            "ours": partial(our_generation, baseline, prompt, new, temperature),
            "free": partial(our_generation, free, prompt, new, temperature),
            "dynamic": partial(their_generation, reference, prompt, new, temperature, "dynamic"),
            "static": partial(their_generation, reference, prompt, new, temperature, "static"),
        }
        if rounded and rounded.packed:
            arms["bf16"] = partial(our_generation, baseline, prompt, new, temperature, rounded)
        at = f"{name}, {how}"
        speeds = {
            arm: [rows * new / each for each in spent]
            for arm, spent in in_turns(arms, turns).items()
        }
        by_arm = {arm: figure(f"{at}, {arm}", speeds[arm], "tokens/s") for arm in arms}
        best = max(("dynamic", "static"), key=lambda arm: by_arm[arm].median)
        mine, beside = speeds["ours"], f"{at}, free ÷ ours: tokens/s"
        figures += [*by_arm.values(), ratio(beside, speeds["free"], mine, at_least=0.97)]
        beside = f"{at}, ours ÷ Hugging Face: tokens/s"
        figures.append(ratio(beside, mine, speeds[best], at_least=2))
        if "bf16" in arms:
            figures.append(ratio(f"{at}, bf16 ÷ ours: tokens/s", speeds["bf16"], mine))
    return figures
