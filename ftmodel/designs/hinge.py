"""The hinge of the KL above κ ("free bits"), and what the KL is averaged over before it.

Shapes: B batch, T positions.
"""

from collections.abc import Callable
from math import log

from torch import Tensor

from ftmodel.config import FreeBits
from ftmodel.designs.sharing import mean_over_documents

LN2 = log(2.0)

Reduce = Callable[[Tensor], Tensor]  # averages a tensor over data-parallel workers


def free_bits(
    kl: Tensor,
    kappa_bits: float,
    over: FreeBits = FreeBits.token,
    documents: Tensor | None = None,
    over_workers: Reduce | None = None,
) -> Tensor:
    """Mean over tokens of max(0, KL_t − κ), nats (eq. 5 of the paper): the hinge precedes the mean.

    Args:
        kl: KL_t in nats, (B, T), or any shape for a hinge per token.
        kappa_bits: κ in bits per token; this is the one place where it becomes nats.
        over: what KL_t is averaged over before the hinge; nothing, in the paper.
        documents: (B, T) as in ``Positions.of``; a sequence is then a document.
        over_workers: averages a tensor over the data-parallel workers.
    """
    match over:
        case FreeBits.sequence if documents is not None:
            kl = mean_over_documents(kl, documents)  # longer documents count for more
        case FreeBits.sequence:
            kl = kl.mean(1)
        case FreeBits.position:
            kl = of_whole_batch(kl.mean(0), over_workers)
        case FreeBits.batch:
            kl = of_whole_batch(kl.mean(), over_workers)
    return (kl - kappa_bits * LN2).clamp(min=0).mean()


def of_whole_batch(mean: Tensor, over_workers: Reduce | None) -> Tensor:
    """Mean over all workers' rows, given this worker's ``mean``. Only this worker's rows have a
    gradient, because workers average their gradients.
    """
    own = mean.detach()
    return mean if over_workers is None else mean + (over_workers(own) - own)
