"""Forward passes whose latent codes are given, or drawn from the prior, not from the encoder.

Shapes: B batch, T positions, D model width, H latent bits.
"""

from dataclasses import replace

import torch
from torch import Tensor

from ftmodel.cache import LayerCache, cached, new_cache
from ftmodel.designs.noise import Draws
from ftmodel.designs.sharing import at_starts, is_start
from ftmodel.mapper import check_codes
from ftmodel.model.free_transformer import FreeTransformer, Output, check_noise
from ftmodel.positions import Positions, check_like


def with_codes(
    model: FreeTransformer,
    tokens: Tensor,
    codes: Tensor,
    at: Positions | None = None,
    cache: list[LayerCache] | None = None,
) -> Output:
    """Read tokens (B, T) with z = ``codes`` (B, T), integers. Other arguments as in
    ``FreeTransformer.forward``. Tokens that share a latent code use the first token's; after a
    cache their codes must be equal. Raises ValueError for a baseline and for codes of
    another shape or outside 0 … 2^H − 1.
    """
    if model.latent is None:
        raise ValueError("codes: a baseline has no latent")
    check_like("codes", codes, tokens.shape, tokens)
    check_codes(codes, model.config.latent_bits)
    at = at or model.positions(tokens, cached(cache))
    codes = at_starts(codes, at.span_starts)
    x = model.lower(tokens, at, cache)
    return Output(model.upper(x, model.latent.embed(codes), at, cache), codes)


def from_prior(
    model: FreeTransformer,
    tokens: Tensor,
    noise: Tensor,
    at: Positions | None = None,
    cache: list[LayerCache] | None = None,
    before: Tensor | None = None,
) -> Output:
    """Read tokens (B, T) with z drawn from the prior by ``noise`` (B, T, H), uniform on [0, 1): bit
    h is [noise_h < p_h], and p_h = 1/2 under the uniform prior. After a cache, a recurrent prior
    also needs ``before`` (B, D), ``Output.hidden`` of the last token read. Other arguments as in
    ``FreeTransformer.forward``. Raises ValueError for a baseline and for noise of another shape.
    """
    check_noise(model, tokens, noise)
    start = cached(cache)
    at = at or model.positions(tokens, start)
    if before is not None and at.padding is not None:  # the first token has none before
        before = before * (at.padding < start)[:, None]
    x = model.lower(tokens, at, cache)
    return Output(*upper_from_prior(model, x, Draws(noise), at, cache, before))


def upper_from_prior(
    model: FreeTransformer,
    x: Tensor,
    draws: Draws,
    at: Positions,
    cache: list[LayerCache] | None = None,
    before: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``FreeTransformer.upper`` with z from the prior by ``draws`` (B, T, H), as in
    ``Latent.draw``: activations (B, T, D) and z (B, T). After a cache, all tokens of a span but its
    first must keep the z before.

    After a cache a recurrent prior needs ``before`` (B, D), ``Output.hidden`` of the last token
    that was read. A recurrent prior makes the pass go token by token.
    """
    latent = model.latent
    assert latent is not None
    if at.span_starts is not None:
        draws = replace(draws, keep=~is_start(at.span_starts).expand(x.shape[:2]))
    if not latent.prior.sequential:
        codes = latent.draw(draws, x)
        return model.upper(x, latent.embed(codes), at, cache), codes
    length = x.shape[1]
    cache = cache or new_cache(model.config, length)
    start = cache[-1].length
    assert before is not None or not start, "a recurrent prior follows the last token read"
    state = torch.zeros_like(x[:, 0]) if before is None else before
    states: list[Tensor] = []
    drawn: list[Tensor] = []
    for t in range(length):
        if at.documents is not None and t:
            state = state * (at.documents[:, t] == at.documents[:, t - 1])[:, None]
        now, here = slice(t, t + 1), at.one(t, start + t + 1)
        last = drawn[-1].squeeze(1) if drawn else None
        drawn.append(latent.draw(draws[:, now], x[:, now], state[:, None], last))
        state = model.upper(x[:, now], latent.embed(drawn[-1]), here, cache).squeeze(1)
        states.append(state)
    return torch.stack(states, dim=1), torch.cat(drawn, dim=1)
