"""A lower bound on the NLL of text that the model itself has written, beside the upper bound.

A model writes text x together with its codes z, so z is an exact draw of the posterior p(z | x). A
filter that keeps this z among its particles (conditional SMC) has E[1 / p̂(x)] = 1 / p(x). So
−log p̂ is in expectation at most the NLL, where a plain filter's is at least the NLL: bidirectional
Monte Carlo (Grosse, Ghahramani & Adams 2015, arXiv 1511.02543; for language models Zhao et al.
2024, arXiv 2404.17546). The gap between the two bounds limits how far either is from the NLL.

It says so of text that the model writes. On other text the posterior may be harder to meet.

Shapes: B rows, T tokens, H latent bits, K particles, F filters.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ftmodel.inference.bounds import importance_bound
from ftmodel.inference.filtering import FilterSettings
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import Noise
from ftmodel.inference.passes import from_prior
from ftmodel.inference.sequence_bound import nll_bound
from ftmodel.model.free_transformer import FreeTransformer


@dataclass(frozen=True)
class OwnText:
    """Text x that a model has written, and its z: a draw of p(x, z | x_1)."""

    tokens: Tensor  # (B, T + 1)
    codes: Tensor  # (B, T), z at all tokens but the last, which none reads


@torch.inference_mode()
def sample_text(
    model: FreeTransformer, first: Tensor, length: int, generator: Generator
) -> OwnText:
    """Continue the tokens ``first`` (B,) to T + 1 tokens, T = ``length``, with all z from the
    prior: the first token's as well, which in ``generate`` comes from the encoder.

    Raises ValueError for a baseline, and if T exceeds the context.
    """
    if model.latent is None:
        raise ValueError("model: a baseline has no z")
    prompt, shape = first[:, None], (len(first), length, model.config.latent_bits)
    noise = torch.rand(shape, generator=generator)
    codes = torch.zeros(shape[:2], dtype=torch.long)
    drawn = from_prior(model, prompt, noise[:, :1].to(first.device))
    assert drawn.codes is not None
    codes[:, :1] = drawn.codes
    given = torch.zeros_like(codes, dtype=torch.bool)
    given[:, 0] = True
    source = Noise(noise, codes, given)
    tokens = generate(model, prompt, length, generator=generator, z=source)
    drawn = from_prior(model, tokens[:, :-1], noise.to(first.device))
    assert drawn.codes is not None
    return OwnText(tokens, drawn.codes)


@torch.inference_mode()
def both_bounds(
    model: FreeTransformer,
    text: OwnText,
    particles: int,
    filters: int,
    draw: Callable[[], Tensor],
    settings: FilterSettings,
) -> tuple[Tensor, Tensor]:
    """Bounds on the NLL of a model's own text, nats per row, by F = ``filters`` independent filters
    of K = ``particles``: what it is at least, in expectation, (B,), from the mean of the filters'
    1 / p̂(x); and at most, by each filter, (F, B). ``draw`` as in ``latent_bounds``.
    """
    inputs, targets = text.tokens[:, :-1], text.tokens[:, 1:]

    def estimates(path: Tensor | None) -> Tensor:
        arguments = model, inputs, targets, particles, draw, None, settings, path
        return torch.stack([nll_bound(*arguments) for _ in range(filters)])

    return -importance_bound(estimates(text.codes), filters), estimates(None)
