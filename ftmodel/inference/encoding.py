"""The encoder's posterior of given texts: the logits of the bits of z, and their KL to the prior.

Shapes: B batch, T tokens, H latent bits.
"""

import torch
from torch import Tensor

from ftmodel.model.checks import check_noise
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import kl_per_bit


@torch.inference_mode()
def encode(
    model: FreeTransformer, tokens: Tensor, noise: Tensor, documents: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits o of the bits of z given tokens (B, T), and the KL of each bit to the prior in nats;
    both (B, T, H). Where several tokens share a latent code, both are 0 except at its first token.

    Args:
        noise: (B, T, H), uniform on [0, 1), by which z is sampled. It matters only under a
            recurrent prior, which depends on the earlier z; else the upper half does not run.
        documents: (B, T), the number of each token's document; None: each row is one document.

    Raises:
        ValueError: the model is a baseline, or shapes do not fit ``tokens``.
    """
    latent, hidden = model.latent, None
    if latent is None:
        raise ValueError("model: a baseline has no encoder")
    check_noise(model.config, tokens, noise)
    at = model.positions(tokens, documents=documents)
    x = model.lower(tokens, at)
    o = model.encode(tokens, x, at)
    if latent.prior.sequential:
        hidden = model.upper(x, latent.sample(o, noise)[0], at)
    return o, kl_per_bit(o, model.prior_logits(x, at, hidden))
