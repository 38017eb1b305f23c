"""What the filtering bound adds to the time of an evaluation's other bounds.

  bounds   ftmodel/inference/bounds.py: ELBO, IWAE-16 and the prior-sample bound in one call
  filter   ftmodel/inference/filtering.py: two independent filters, with 4, 8 and 16 particles

A batch of 4096 tokens in chunks of the context, as evaluation scores them, on the shapes of the
quickstart's models with random weights.
"""

import torch
from torch import Tensor

from ftmodel.inference.bounds import latent_bounds
from ftmodel.inference.filtering import filtering_bound
from ftmodel.kernels.install import use_kernels
from ftmodel.model.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer
from perf.measure import Figure, Work, in_turns, ratio

FILTERS, SAMPLES = 2, 16  # the defaults of evaluation
# L, D, heads, key-value heads, SwiGLU's width, context, V
SHAPES = {
    "target_small": (4, 64, 4, 4, 168, 65, 29),
    "text_small": (4, 128, 4, 2, 336, 128, 2048),
}
TINY = {"tiny": (2, 16, 2, 1, 32, 8, 11)}


def measure(turns: int, quick: bool) -> list[Figure]:
    figures = []
    for name, (layers, d, heads, kv_heads, ffn, context, v) in (TINY if quick else SHAPES).items():
        torch.manual_seed(0)
        config = ModelConfig(layers, d, heads, kv_heads, ffn, context, latent_bits=8)
        model = use_kernels(FreeTransformer(config, v)).eval()
        tokens = torch.randint(v, ((16 if quick else 4096) // context, context + 1))
        shape = len(tokens), context, config.latent_bits
        arms: dict[str, Work] = {"bounds": lambda m=model, t=tokens, s=shape: bounds(m, t, s)}
        for k in (2,) if quick else (4, 8, 16):
            arms[f"{k} particles"] = lambda m=model, t=tokens, s=shape, k=k: filters(m, t, s, k)
        seconds = in_turns(arms, turns)
        for arm in list(arms)[1:]:
            figures.append(ratio(f"{name}: {arm} ÷ bounds", seconds[arm], seconds["bounds"]))
    return figures


def bounds(model: FreeTransformer, tokens: Tensor, shape: tuple[int, int, int]) -> None:
    latent_bounds(model, tokens[:, :-1], tokens[:, 1:], SAMPLES, lambda: torch.rand(shape))


def filters(model: FreeTransformer, tokens: Tensor, shape: tuple[int, int, int], k: int) -> None:
    for _ in range(FILTERS):
        filtering_bound(model, tokens[:, :-1], tokens[:, 1:], k, lambda: torch.rand(shape))
