"""Decoding: tokens per second of cached generation, and how they fall with the length of a text.

Arms, all with float32 weights and prompts of 16 tokens:

  ours             ftmodel/generate.py, a baseline
  free             the same, a Free Transformer, H = 16; z of new tokens from the prior
  dynamic, static  Hugging Face's Llama with the baseline's weights, SDPA and `generate`, by either
                   kind of cache, not compiled; the one that is faster by its median counts
  products         the matrix products of ours alone, each as one `linear`, no attention

At temperature 0 (greedy) and at 1, drawn from the whole vocabulary. Shapes from one where most of a
step is overhead to one where it is matrix products, which nobody can hurry: `products ÷ …` says
what part of a step they are.
"""

from functools import partial
from itertools import pairwise
from time import perf_counter

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaForCausalLM
from transformers.utils import logging

from benchmarks.measure import Figure, figure, in_turns, ratio
from ftmodel.config import ModelConfig
from ftmodel.generate import generate
from ftmodel.transformer import FreeTransformer
from tests.hugging_face import to_hugging_face

PROMPT = 16
# L, D, heads, SwiGLU's width, V: widths of 8 D / 3 rounded up to a multiple of 64
SHAPES = {
    "small": (4, 128, 4, 384, 8192),
    "middle": (8, 256, 8, 704, 8192),
    "large": (8, 512, 8, 1408, 32768),
}
TINY = {"tiny": (2, 32, 2, 64, 64)}


def measure(turns: int, quick: bool) -> list[Figure]:
    figures = []
    logging.set_verbosity_error()
    for shape, sizes in (TINY if quick else SHAPES).items():
        baseline, free = (make_model(sizes, bits, 64 if quick else 1024) for bits in (0, 4 * 4))
        reference = to_hugging_face(baseline)
        reference.set_attn_implementation("sdpa")
        for rows in (1, 2) if quick else (1, 16):
            figures += side_by_side(
                f"{shape}, batch {rows}", baseline, free, reference, rows, 4 if quick else 64, turns
            )
        if shape != "large":
            for rows in (1, 2) if quick else (1, 16):
                figures += growth(f"{shape}, batch {rows}", free, rows, turns)
    return figures


def make_model(sizes: tuple[int, ...], bits: int, context: int) -> FreeTransformer:
    layers, width, heads, ffn, vocabulary = sizes
    torch.manual_seed(0)
    config = ModelConfig(layers, width, heads, heads, ffn, context, latent_bits=bits)
    return FreeTransformer(config, vocabulary).eval()


def prompts(model: FreeTransformer, rows: int, length: int) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    return torch.randint(model.embedding.num_embeddings, (rows, length), generator=rng)


def ours(model: FreeTransformer, prompt: Tensor, new: int, temperature: float) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    return generate(model, prompt, new, generator=rng, temperature=temperature)


def theirs(
    model: LlamaForCausalLM, prompt: Tensor, new: int, temperature: float, cache: str
) -> Tensor:
    """Without an end of text, so that all rows go on to the last token."""
    model.generation_config.eos_token_id = None
    how = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {}
    made = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=new,
        pad_token_id=0,
        use_cache=True,
        cache_implementation=cache,
        disable_compile=True,
        **({"do_sample": False} | how),
    )
    assert made.shape[1] == prompt.shape[1] + new
    return made


def products(model: FreeTransformer, rows: int, new: int) -> None:
    """Every matrix product with a weight that one position a row asks for, ``new`` times."""
    modules = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    inputs = {m.in_features: torch.ones(rows, m.in_features) for m in modules}
    with torch.inference_mode():
        for _ in range(new):
            for module in modules:
                F.linear(inputs[module.in_features], module.weight)


def side_by_side(
    name: str,
    baseline: FreeTransformer,
    free: FreeTransformer,
    reference: LlamaForCausalLM,
    rows: int,
    new: int,
    turns: int,
) -> list[Figure]:
    prompt, figures = prompts(baseline, rows, PROMPT), []
    for how, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        arms = {
            "ours": partial(ours, baseline, prompt, new, temperature),
            "free": partial(ours, free, prompt, new, temperature),
            "products": partial(products, baseline, rows, new),
            "dynamic": partial(theirs, reference, prompt, new, temperature, "dynamic"),
            "static": partial(theirs, reference, prompt, new, temperature, "static"),
        }
        seconds = in_turns(arms, turns)
        speeds = {arm: [rows * new / s for s in seconds[arm]] for arm in arms}
        by_arm = {
            arm: figure(f"{name}, {how}, {arm}", speeds[arm], "tokens/s")
            for arm in arms
            if arm != "products"
        }
        best = max(("dynamic", "static"), key=lambda arm: by_arm[arm].median)
        figures += by_arm.values()
        figures += [
            ratio(
                f"{name}, {how}, free ÷ ours: tokens/s",
                speeds["free"],
                speeds["ours"],
                at_least=0.97,
            ),
            ratio(
                f"{name}, {how}, ours ÷ Hugging Face: tokens/s",
                speeds["ours"],
                speeds[best],
                at_least=2,
            ),
            ratio(f"{name}, {how}, products ÷ ours: time", seconds["products"], seconds["ours"]),
            ratio(
                f"{name}, {how}, products ÷ Hugging Face: time", seconds["products"], seconds[best]
            ),
        ]
    return figures


def growth(name: str, model: FreeTransformer, rows: int, turns: int) -> list[Figure]:
    """Time per token in the last eighth of a text as long as the context to that in the first."""
    new = model.config.context
    eighth, prompt = new // 8, prompts(model, rows, 1)
    nobody, first, last = torch.zeros(rows, dtype=torch.bool), [], []
    for turn in range(turns + 1):
        times: list[float] = []

        def until(_: Tensor, times: list[float] = times) -> Tensor:
            times.append(perf_counter())
            return nobody

        rng = torch.Generator().manual_seed(turn)
        generate(model, prompt, new, generator=rng, until=until)
        each = sorted_median([b - a for a, b in pairwise(times)], eighth)
        if turn:
            first.append(each[0])
            last.append(each[1])
    config = model.config
    weights = sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear))
    if model.latent is not None:  # the encoder reads prompts only
        encoder = (m for m in model.latent.modules() if isinstance(m, torch.nn.Linear))
        weights -= sum(m.weight.numel() for m in encoder)
    early, late = (
        2 * weights + 4 * config.n_layers * config.d_model * position
        for position in (new / 16, new * 15 / 16)
    )
    title = f"{name}, free, a text of {new} tokens: last eighth ÷ first"
    return [
        ratio(f"{title}, time a token", last, first),
        figure(f"{title}, FLOPs a token", [late / early], "ratio"),
    ]


def sorted_median(seconds: list[float], eighth: int) -> tuple[float, float]:
    """Median seconds of a token in the first and in the last eighth: one hiccup counts little."""
    first, last = (torch.tensor(part).median() for part in (seconds[:eighth], seconds[-eighth:]))
    return first.item(), last.item()
