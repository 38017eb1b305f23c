"""Which tokens share a latent code: a sequence, or every n tokens of it (``LatentDesign.per``).

Every position has a latent code, as in the paper, but a span of tokens uses its first token's code.
The other codes are unused: their posterior equals the prior, so they add no KL. Hence a loss or a
bound over all codes counts only the codes in use.

``starts`` (B or 1, T) is the index of the first token of each token's span, None where each token
uses its own code. Where z is drawn token by token, a token that is not the first of its span keeps
the code of the token before: see ``Draws`` in noise.py.

Shapes: B batch, T positions, … any further dimensions.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from ftmodel.positions import document_starts


def mean_over_documents(values: Tensor, documents: Tensor) -> Tensor:
    """Mean of values (B, T) over each token's document, (B, T)."""
    starts, zeros = document_starts(documents), torch.zeros_like(values)
    sums = zeros.scatter_add(1, starts, values)
    sizes = zeros.scatter_add(1, starts, torch.ones_like(values))
    return sums.gather(1, starts) / sizes.gather(1, starts)


def at_starts(values: Tensor, starts: Tensor | None) -> Tensor:
    """``values`` (B, T, …) at the start of each token's span."""
    if starts is None:
        return values
    rows, length = values.shape[:2]
    index = starts + length * torch.arange(rows, device=starts.device)[:, None]
    return values.flatten(0, 1).index_select(0, index.flatten()).unflatten(0, (rows, length))


def is_start(starts: Tensor) -> Tensor:
    """Whether each token is the first of its span, (B or 1, T)."""
    return starts == torch.arange(starts.shape[1], device=starts.device)


def only_starts(values: Tensor, starts: Tensor | None) -> Tensor:
    """``values`` (B, T, H), 0 except at the start of each span."""
    return values if starts is None else values * is_start(starts)[..., None]


def token_before(hidden: Tensor, documents: Tensor | None) -> Tensor:
    """Activations (B, T, D) of the token before each of ``hidden`` (B, T, D); 0 where a row begins,
    or a document of ``documents`` (B, T).
    """
    before = F.pad(hidden[:, :-1], (0, 0, 1, 0))
    if documents is not None:
        same = documents[:, 1:] == documents[:, :-1]
        before = before * F.pad(same, (1, 0))[..., None]
    return before


def mean_over_spans(kl: Tensor, starts: Tensor | None) -> Tensor:
    """Spread KL_t (B, T), 0 but at starts, equally over the tokens that share a code: (B, T)."""
    if starts is None:
        return kl
    starts = starts.expand_as(kl)
    sizes = torch.zeros_like(kl).scatter_add_(1, starts, torch.ones_like(kl))
    return at_starts(kl / sizes.clamp(min=1), starts)
