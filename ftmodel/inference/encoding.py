"""What the encoder says of texts: the logits of the bits of z, and their KL to the prior."""

import torch
from torch import Tensor

from ftmodel.model.checks import check_noise
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import kl_per_bit


@torch.inference_mode()
def encode(
    model: FreeTransformer, tokens: Tensor, noise: Tensor, documents: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits o and KL of each bit, nats, (B, T, H) both, of tokens (B, T); ``documents`` as in
    ``Positions.of``.

    A recurrent prior depends on earlier z, which are sampled with ``noise`` (B, T, H), uniform on
    [0, 1). Under any other prior the upper half does not run. Raises ValueError for a baseline and
    for arguments that do not fit.
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
