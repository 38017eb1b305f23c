"""What z says about a label: a naive Bayes probe of sampled bits of z, which never reads a token.

Its measurements are variational lower bounds on information (Barber & Agakov 2003).
docs/measurement/latent_probe.md has the derivation, and the upper bound that the ELBO gives.

Shapes: n sequences, T tokens, H latent bits, S values of the label, K exponents.
"""

from dataclasses import dataclass
from functools import partial
from math import log2

import torch
from torch import Tensor

from ftmodel.designs.hinge import LN2

EXPONENTS = (0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
CHUNK = 256  # sequences evaluated at once


@dataclass
class ProbeResult:
    """Lower bounds in bits, up to sampling error."""

    label_bits: list[float]  # T: I(label; z_0 … z_t)
    next_bits: list[float]  # T: H less the entropy of z_t given z_0 … z_{t−1}
    aggregate_bits: float  # KL of the aggregate posterior of a sequence's z from uniform


def fit(p: Tensor, labels: Tensor, values: int) -> Tensor:
    """Fit the probe q(bit is 1 | label), (S, T, H) in float64, to the encoder's probabilities p
    (n, T, H) for sequences of ``labels`` (n,), 0 … S − 1 with S = ``values``.

    Means of probabilities are less noisy than means of sampled bits. Each label gets one extra
    sequence: the mean of all sequences and of one with fair bits. So no probability is 0 or 1, and
    a label may have no sequence.
    """
    p = p.double()
    mean = (p.sum(0) + 0.5) / (len(p) + 1)
    totals = mean.repeat(values, 1, 1).index_add_(0, labels, p)
    counts = 1 + labels.bincount(minlength=values)
    return totals / counts[:, None, None]


def evaluate(probe: Tensor, bits: Tensor, labels: Tensor) -> ProbeResult:
    """Score a ``probe`` (S, T, H) on the bits of z (n, T, H), 0 or 1, of n ≥ 2 sequences that it
    was not fitted to, whose ``labels`` (n,) are drawn uniformly.
    """
    posteriors = map(partial(log_posteriors, probe), bits.split(CHUNK), labels.split(CHUNK))
    label, following = (torch.cat(parts, dim=1) for parts in zip(*posteriors, strict=True))
    label_bits = log2(len(probe)) + cross_validated_mean(label) / LN2
    next_bits = bits.shape[-1] + cross_validated_mean(following) / LN2
    return ProbeResult(
        label_bits=label_bits.clamp(min=0).tolist(),
        next_bits=next_bits.clamp(min=0).tolist(),
        aggregate_bits=max(0.0, next_bits.sum().item()),
    )


def log_posteriors(probe: Tensor, bits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """log q(S | z_0 … z_t) of the true label and log q(z_t | z_0 … z_{t−1}), nats, (K, n, T) each;
    arguments as in ``evaluate``.
    """
    zero, one = (-probe).log1p(), probe.log()
    log_q = torch.einsum("nth,sth->nts", bits.double(), one - zero) + zero.sum(-1).T  # log q(z_t|S)
    total = log_q.cumsum(1)  # log q(z_0 … z_t | S), (n, T, S)
    sequences = torch.arange(len(labels))
    of_label, of_next = [], []
    for exponent in EXPONENTS:
        posterior = (exponent * total).log_softmax(-1)
        prior = (exponent * (total - log_q)).log_softmax(-1)
        of_label.append(posterior[sequences, :, labels])
        of_next.append((prior + log_q).logsumexp(-1))
    return torch.stack(of_label), torch.stack(of_next)


def cross_validated_mean(log_q: Tensor) -> Tensor:
    """Means (T,) of log q (K, n, T); each half uses the exponents best in the other half."""
    halves = torch.stack((log_q[:, 0::2].mean(1), log_q[:, 1::2].mean(1)))  # (2, K, T)
    best = halves.flip(0).argmax(1, keepdim=True)
    return halves.gather(1, best).mean((0, 1))


def mean_by_offset(values: Tensor, origins: Tensor) -> tuple[list[int], list[float], list[int]]:
    """Average values (n, T) by offset t − origins[i], with origins (n,). Returns the offsets in
    ascending order, their means, and the number of values in each mean.
    """
    offsets = torch.arange(values.shape[1]) - origins[:, None]
    distinct, index, counts = offsets.unique(return_inverse=True, return_counts=True)
    totals = index.flatten().bincount(values.double().flatten())
    return distinct.tolist(), (totals / counts).tolist(), counts.tolist()
