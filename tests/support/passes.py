"""Forward passes of models with a latent and without, and noise for their z."""

import torch

from ftmodel.designs.noise import Draws
from ftmodel.inference.latent_source import prompt_codes
from ftmodel.inference.passes import with_codes


def given_codes(model, tokens, codes=None, at=None, cache=None):
    """Output with z = ``codes`` (B, T), or of a baseline, for which they are None."""
    if codes is None:
        return model(tokens, at=at, cache=cache)
    return with_codes(model, tokens, codes, at, cache)


def pinned_noise(codes, bits):
    """Noise (…, H) below any probability for a set bit of ``codes`` (…), above for a clear one."""
    return 1.0 - 2 * (codes[..., None] >> torch.arange(bits) & 1)


def pinned(codes, bits):
    """What gives z = ``codes`` (…) of H = ``bits``, whatever their probabilities are."""
    return Draws(torch.zeros(*codes.shape, bits), codes)


def settled(model, prompt, noise, padding=None, codes=None, given=None):
    """z (B, P) of prompts, read without a cache."""
    at = model.positions(prompt, padding=padding)
    x = model.lower(prompt, at)
    draws = Draws(noise, codes, given)
    return prompt_codes(model, prompt, draws, x, model.encode(prompt, x, at), at)


def drawing(rng, *shape):
    """The argument ``draw`` of bounds: new noise of a shape with each call."""
    return lambda: torch.rand(*shape, generator=rng)
