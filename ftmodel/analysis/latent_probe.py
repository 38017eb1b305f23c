"""What z says on its own: a probe that reads sampled bits of z, and never a token.

It is naive Bayes: given the label S, here where the target starts, it takes all bits of all tokens
as independent, bit h of z_t being 1 with the mean of the encoder's own probabilities over sequences
of that label. Where they are not independent such a guess is too sure of itself, so what it has
read counts with an exponent ≤ 1, chosen at each t by cross-validation (as a temperature is: Guo et
al. 2017, On Calibration of Modern Neural Networks):

    q(S | z_0 … z_t) ∝ Π_{τ ≤ t} q(z_τ | S)^a
    q(z_t | z_0 … z_{t−1}) = Σ_S q(S | z_0 … z_{t−1}) q(z_t | S)

As a cross-entropy is never less than the entropy, whoever guesses,

    I(S; z_0 … z_t)          ≥ H(S) − E[−log q(S | z_0 … z_t)]       (Barber & Agakov 2003)
    KL(q(z) ‖ uniform) = T H − H(z)  ≥ T H − E[−Σ_t log q(z_t | z_0 … z_{t−1})]

where q(z) = E_x q(z | x) is the aggregate posterior, of the whole sequence of z. Both are lower
bounds, up to the error of sampling, if other sequences are asked about than were learned from. How
far below the truth they are is not known: of what several bits say only together little is found.

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
from math import log2

import torch
from torch import Tensor

from ftmodel.model.objective import LN2

EXPONENTS = (0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
CHUNK = 256  # sequences asked about at once


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
    """What the probe of ``shares`` (S, T, H) is told by bits of z (n, T, H), 0 or 1, of n ≥ 2
    sequences whose ``labels`` (n,) are drawn uniformly.
    """
    parts = zip(bits.split(CHUNK), labels.split(CHUNK), strict=True)
    of_label, of_next = zip(*(guesses(shares, *part) for part in parts), strict=True)
    label = log2(len(shares)) + chosen(torch.cat(of_label, dim=1)) / LN2
    over_uniform = bits.shape[-1] + chosen(torch.cat(of_next, dim=1)) / LN2
    return Told(
        label=label.clamp(min=0).tolist(),
        next=over_uniform.clamp(min=0).tolist(),
        aggregate=max(0.0, over_uniform.sum().item()),
    )


def guesses(shares: Tensor, bits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """log q(S | z_0 … z_t) of the true label and log q(z_t | z_0 … z_{t−1}), (K, n, T) both, for
    each of the K exponents; arguments as of ``ask``.
    """
    zero, one = (-shares).log1p(), shares.log()
    of_z = torch.einsum("nth,sth->nts", bits.double(), one - zero) + zero.sum(-1).T
    read = of_z.cumsum(1)  # log q(z_0 … z_t | S), of_z that of z_t alone
    at_label = labels[:, None, None].expand(-1, read.shape[1], 1)
    of_label, of_next = [], []
    for exponent in EXPONENTS:
        known = (exponent * read).log_softmax(-1)
        before = (exponent * (read - of_z)).log_softmax(-1)
        of_label.append(known.gather(2, at_label)[..., 0])
        of_next.append((before + of_z).logsumexp(-1))
    return torch.stack(of_label), torch.stack(of_next)


def chosen(log_q: Tensor) -> Tensor:
    """Means (T,) of log q (K, n, T), each half of the sequences with the exponents that are best in
    the other half.
    """
    halves = torch.stack((log_q[:, 0::2].mean(1), log_q[:, 1::2].mean(1)))  # (2, K, T)
    best = halves.flip(0).argmax(1, keepdim=True)
    return halves.gather(1, best).mean((0, 1))


def mean_by_offset(values: Tensor, origins: Tensor) -> tuple[list[int], list[float], list[int]]:
    """Means of values (n, T) over all (i, t) of one offset t − origins[i], with origins (n,): the
    offsets that there are, rising, the mean at each, and of how many values it is.
    """
    offsets = torch.arange(values.shape[1]) - origins[:, None]
    found, places, counts = offsets.unique(return_inverse=True, return_counts=True)
    totals = torch.zeros(len(found), dtype=torch.float64)
    totals.index_add_(0, places.flatten(), values.double().flatten())
    return found.tolist(), (totals / counts).tolist(), counts.tolist()
