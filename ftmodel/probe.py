"""What z says on its own: a probe that reads sampled bits of z, and never a token.

It is naive Bayes: given the label S, here where the target starts, it takes all bits of all tokens
as independent, bit h of z_t being 1 with the mean of the encoder's own probabilities over sequences
of that label. So it is a mixture with a weight for each label, q(S, z) = q(S) Π q(z_t | S), and
tells both the label and what comes next, q(z_t | z_0 … z_{t−1}). As a cross-entropy is never less
than the entropy, whoever guesses,

    I(S; z_0 … z_t)          ≥ H(S) − E[−log q(S | z_0 … z_t)]       (Barber & Agakov 2003)
    KL(q(z) ‖ uniform) = T H − H(z)  ≥ T H − E[−Σ_t log q(z_t | z_0 … z_{t−1})]

where q(z) = E_x q(z | x) is the aggregate posterior, of the whole sequence of z. Both are lower
bounds, up to the error of sampling, if other sequences are asked about than were learned from. How
far below the truth they are is not known: what only bits together say is missed.

From above the second is bounded by the decoder. The data's entropy being H(X),

    E[−ELBO] − H(X) = KL(q(z) ‖ p(z)) + E_{z ~ q(z)} KL(q(x | z) ‖ p(x | z)),

as both sides are KL(p_data(x) q(z | x) ‖ p(z) p(x | z)), in two orders (Zhao et al. 2019, InfoVAE).
Where the model is given a first token c and X is what follows it, each term is a mean over c of
its own given c, and E_c KL(q(z | c) ‖ p(z)) = KL(q(z) ‖ p(z)) + I(c; z) is no less than KL(q(z) ‖
p(z)). So the ELBO's gap to the exact NLL, summed over a sequence, is no less than the aggregate's
KL; measured, it is an estimate with a standard error.

Shapes: n sequences, T tokens, H latent bits, S values of the label.
"""

from dataclasses import dataclass
from math import log, log2

import torch
from torch import Tensor

from ftmodel.objective import LN2


@dataclass
class Told:
    """Bits, lower bounds but for sampling error."""

    label: list[float]  # T: at t, of the label, from z_0 … z_t
    next: list[float]  # T: at t, how far z_t is from H fair bits, z_0 … z_{t−1} being known
    aggregate: float  # KL of the aggregate posterior of a sequence's z from uniform


def shares_by_label(p: Tensor, labels: Tensor, values: int) -> Tensor:
    """The probe: q(bit is 1 | label), (S, T, H) in float64, of the encoder's probabilities p
    (n, T, H) for sequences of ``labels`` (n,), 0 … S − 1 with S = ``values``.

    Probabilities say more than bits drawn with them. Each label has one sequence more, the mean of
    all; that has one more, of fair bits: no share is 0 or 1, and a label may be without sequences.
    """
    p = p.double()
    mean = (p.sum(0) + 0.5) / (len(p) + 1)
    totals = mean.repeat(values, 1, 1).index_add_(0, labels, p)
    counts = 1 + labels.bincount(minlength=values)
    return totals / counts[:, None, None]


def ask(shares: Tensor, bits: Tensor, labels: Tensor) -> Told:
    """What the probe of ``shares`` (S, T, H) is told by bits of z (n, T, H), 0 or 1, of sequences
    whose ``labels`` (n,) are drawn uniformly.
    """
    zero, one = (-shares).log1p(), shares.log()
    of_z = torch.einsum("nth,sth->nts", bits.double(), one - zero) + zero.sum(-1).T
    joint = of_z.cumsum_(1).sub_(log(len(shares)))  # log q(S, z_0 … z_t), (n, T, S)
    seen = joint.logsumexp(-1)  # log q(z_0 … z_t), (n, T)
    at_label = labels[:, None, None].expand(-1, joint.shape[1], 1)
    guessed = (joint.gather(2, at_label)[..., 0] - seen).mean(0) / LN2
    following = seen.diff(dim=1, prepend=torch.zeros_like(seen[:, :1])).mean(0) / LN2
    over_uniform = bits.shape[-1] + following
    return Told(
        label=(log2(len(shares)) + guessed).clamp(min=0).tolist(),
        next=over_uniform.clamp(min=0).tolist(),
        aggregate=max(0.0, over_uniform.sum().item()),
    )


def mean_by_offset(values: Tensor, origins: Tensor) -> tuple[list[int], list[float], list[int]]:
    """Means of values (n, T) over all (i, t) of one offset t − origins[i], with origins (n,): the
    offsets that there are, rising, the mean at each, and of how many values it is.
    """
    offsets = torch.arange(values.shape[1]) - origins[:, None]
    found, places, counts = offsets.unique(return_inverse=True, return_counts=True)
    totals = torch.zeros(len(found), dtype=torch.float64)
    totals.index_add_(0, places.flatten(), values.double().flatten())
    return found.tolist(), (totals / counts).tolist(), counts.tolist()
