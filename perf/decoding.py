"""Decoding: tokens per second of cached generation, and what a token costs late in a long text.

Arms, all but one with float32 weights, and prompts of 16 tokens:

  ours             ftmodel/inference/generate.py, a baseline
  free             the same, a Free Transformer, H = 16; z of new tokens from the prior
  bf16             ours with the large matrices rounded to bfloat16, where the CPU multiplies it
  dynamic, static  Hugging Face's Llama with the baseline's weights, SDPA and `generate`, by either
                   kind of cache, not compiled; the one that is faster by its median counts
  products         the matrix products of ours alone, no attention

At temperature 0 (greedy) and at 1, drawn from the whole vocabulary; prefill counts. Shapes from one
where half of a step is overhead to one where nearly all of it is matrix products, the same for both
sides: `products ÷ …` says what part they are, and by how much the rest can be hurried at most.
"""

from functools import partial
from itertools import pairwise
from statistics import median
from time import perf_counter

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM
from transformers.utils import logging

from ftmodel.inference.generate import generate
from ftmodel.kernels.install import use_kernels
from ftmodel.kernels.weights import RoundedWeights, bf16_products, matrix
from ftmodel.model.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer
from perf.measure import Figure, figure, in_turns, ratio
from tests.support.hugging_face import to_hugging_face

PROMPT = 16
# L, D, heads, SwiGLU's width, V: widths of 8 D / 3 rounded up to a multiple of 64
SHAPES = {
    "small": (4, 128, 4, 384, 8192),
    "middle": (8, 256, 8, 704, 8192),
    "large": (8, 512, 8, 1408, 32768),
}
TINY = {"tiny": (2, 32, 2, 64, 64)}


def measure(turns: int, quick: bool, device: str = "cpu", only: str | None = None) -> list[Figure]:
    """Of all shapes, or ``only`` of one."""
    logging.set_verbosity_error()
    figures = []
    for shape, sizes in (TINY if quick else {only: SHAPES[only]} if only else SHAPES).items():
        context = 64 if quick else 1024
        baseline, free = (make_model(sizes, bits, context).to(device) for bits in (0, 16))
        reference = to_hugging_face(baseline).to(device)
        reference.set_attn_implementation("sdpa")
        new = {"tiny": 4, "large": 32}.get(shape, 128)
        for rows in (1, 2) if quick else (1, 16):
            name = f"{shape}, batch {rows}"
            figures += side_by_side(name, baseline, free, reference, rows, new, turns)
            if shape in ("tiny", "middle"):
                figures += growth(name, free, rows, turns)
    return figures


def make_model(sizes: tuple[int, ...], bits: int, context: int) -> FreeTransformer:
    layers, width, heads, ffn, vocabulary = sizes
    torch.manual_seed(0)
    config = ModelConfig(layers, width, heads, heads, ffn, context, latent_bits=bits)
    return use_kernels(FreeTransformer(config, vocabulary)).eval()


def prompts(model: FreeTransformer, rows: int, length: int) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.embedding.num_embeddings, (rows, length), generator=rng)
    return tokens.to(model.embedding.weight.device)


def ours(
    model: FreeTransformer,
    prompt: Tensor,
    new: int,
    temperature: float,
    rounded: RoundedWeights | None = None,
) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    return generate(model, prompt, new, generator=rng, temperature=temperature, rounded=rounded)


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
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    inputs = {w.shape[1]: w.new_ones(rows, w.shape[1]) for w in weights}
    matrices = [(matrix(w, rows), inputs[w.shape[1]]) for w in weights]
    with torch.inference_mode():
        for _ in range(new):
            for each, x in matrices:
                each.times(x)


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
    on_cpu = prompt.device.type == "cpu"
    rounded = RoundedWeights(baseline) if on_cpu and bf16_products() else None
    for how, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        arms = {
            "ours": partial(ours, baseline, prompt, new, temperature),
            "free": partial(ours, free, prompt, new, temperature),
            "products": partial(products, baseline, rows, new),
            "dynamic": partial(theirs, reference, prompt, new, temperature, "dynamic"),
            "static": partial(theirs, reference, prompt, new, temperature, "static"),
        }
        if rounded and rounded.packed:
            arms["bf16"] = partial(ours, baseline, prompt, new, temperature, rounded)
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
            *(
                [ratio(f"{name}, {how}, bf16 ÷ ours: tokens/s", speeds["bf16"], speeds["ours"])]
                if "bf16" in arms
                else []
            ),
            ratio(f"{name}, {how}, products ÷ ours: time", seconds["products"], seconds["ours"]),
            ratio(
                f"{name}, {how}, products ÷ Hugging Face: time", seconds["products"], seconds[best]
            ),
        ]
    return figures


def growth(name: str, model: FreeTransformer, rows: int, turns: int) -> list[Figure]:
    """A token in the last eighth of a text as long as the context beside one in the first: its
    time, and what it has to compute and to read, weights once and the cache of every row.
    """
    new, prompt = model.config.context, prompts(model, rows, 1)
    nobody, first, last = torch.zeros(rows, dtype=torch.bool), [], []
    for turn in range(turns):
        times: list[float] = []

        def until(_: Tensor, times: list[float] = times) -> Tensor:
            times.append(perf_counter())
            return nobody

        rng = torch.Generator().manual_seed(turn)
        generate(model, prompt, new, generator=rng, until=until)
        each = [after - before for before, after in pairwise(times)]
        first.append(median(each[: new // 8]))
        last.append(median(each[-(new // 8) :]))
    c = model.config
    # the latent reads prompts alone, unless its prior is learned
    weights = sum(
        module.weight.numel()
        for part in (model.blocks, model.readout)
        for module in part.modules()
        if isinstance(module, nn.Linear)
    )
    early, late = new / 16, new * 15 / 16  # positions half-way through each eighth
    scores = 4 * c.n_layers * c.d_model  # FLOPs for each position read
    cache = rows * 2 * c.n_layers * c.n_kv_heads * c.head_channels  # its elements
    computed = (2 * weights + scores * late) / (2 * weights + scores * early)
    read = (weights + cache * late) / (weights + cache * early)
    title = f"{name}, free, {new} tokens, last eighth ÷ first"
    return [
        ratio(f"{title}: time per token", last, first, at_most=read),
        figure(f"{title}: FLOPs per token", [computed], "ratio"),
        figure(f"{title}: bytes read per step", [read], "ratio"),
    ]
