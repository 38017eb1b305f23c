"""Forward passes of models with a latent and without, and noise for their z."""

import torch

from ftmodel.inference.passes import with_codes


def given_codes(model, tokens, codes=None, at=None, cache=None):
    """Output with z = ``codes`` (B, T), or of a baseline, for which they are None."""
    if codes is None:
        return model(tokens, at=at, cache=cache)
    return with_codes(model, tokens, codes, at, cache)


def drawing(rng, *shape):
    """The argument ``draw`` of bounds: new noise of a shape with each call."""
    return lambda: torch.rand(*shape, generator=rng)
