"""What the encoder says of texts: the logits of the bits of z, and their KL to the prior."""

import torch
from torch import Tensor

from ftmodel.model.objective import kl_per_bit
from ftmodel.model.transformer import FreeTransformer


@torch.inference_mode()
def encode(
    model: FreeTransformer, tokens: Tensor, noise: Tensor, documents: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits o and KL of each bit, nats, (B, T, H) both, of tokens (B, T); ``documents`` as in
    ``FreeTransformer.forward``.

    A recurrent prior depends on z: it is that after z sampled with ``noise`` (B, T, H), uniform on
    [0, 1). Without one the upper half does not run.
    """
    latent, hidden = model.latent, None
    assert latent is not None, "a baseline has no encoder"
    positions = model.positions(0, tokens.shape[1], tokens.device, documents)
    x = model.lower(tokens, positions)
    o = model.encode(tokens, x, positions)
    if latent.recurrent:
        hidden = model.upper(x, latent.sample(o, noise)[0], positions)
    return o, kl_per_bit(o, model.prior_logits(x, positions, hidden, documents))
