"""What z does, by three tests: whether texts of one document have similar z, whether a pinned z
steers what is generated, and what z says about a label.

The first two compare pairs: bits that agree within and between documents, continuations that are
further apart with different z than with the same z. The third is a naive Bayes probe of sampled
bits, which never reads a token. It gives variational lower bounds on information (Barber & Agakov
2003); docs/measurement/latent_probe.md has the derivation, and the upper bound that the ELBO gives.

Shapes: S texts with one z each, H latent bits, D documents; P prompts, R continuations of each, N
tokens, V vocabulary; n sequences, T tokens, S values of a label, K exponents.
"""

from dataclasses import dataclass
from functools import partial
from math import log2

import torch
from torch import Generator, Tensor

from ftmodel.analysis.statistics import PERMUTATIONS, jackknife
from ftmodel.designs.hinge import LN2


def agreement(q: Tensor) -> Tensor:
    """Probability (S, S), mean over bits, that bits drawn for two texts with q (S, H) agree."""
    return (q @ q.T + (1 - q) @ (1 - q).T) / q.shape[1]


def sums_by_document(agreement: Tensor, document: Tensor, same: bool) -> tuple[Tensor, Tensor]:
    """Sum the agreement (S, S) of each document's texts with others: of the ``same`` document, or
    else of all other documents. Returns the sums and the numbers of pairs, (D,) each. ``document``
    (S,) is 0 … D − 1.
    """
    alike = document[:, None] == document
    chosen = alike.fill_diagonal_(False) if same else ~alike
    sums, pairs = (agreement * chosen).sum(1), chosen.sum(1).type_as(agreement)
    return document.bincount(sums), document.bincount(pairs)


def mean_over_pairs(agreement: Tensor, document: Tensor, same: bool) -> tuple[float, float]:
    """Mean agreement over pairs of texts from the ``same`` document, or else from two, and its
    jackknife standard error over documents. A pair from two is left out with either.
    """
    sums, pairs = sums_by_document(agreement, document, same)
    times = 1 if same else 2
    left_out = (sums.sum() - times * sums) / (pairs.sum() - times * pairs)
    left_out = left_out[left_out.isfinite() & (pairs > 0)]
    return (sums.sum() / pairs.sum()).item(), jackknife(left_out)


def excess_agreement(agreement: Tensor, document: Tensor) -> Tensor:
    """Mean agreement () of two texts within a document, minus the mean between documents."""
    both = (sums_by_document(agreement, document, same) for same in (True, False))
    of_one, of_two = (sums.sum() / pairs.sum() for sums, pairs in both)
    return of_one - of_two


def with_permutations(
    agreement: Tensor, document: Tensor, generator: Generator, permutations: int = PERMUTATIONS
) -> Tensor:
    """Excess agreement (1 + P,): for the data, then with texts permuted among documents. Under the
    null, that z does not tell documents apart, texts are exchangeable.
    """
    orders = [torch.randperm(len(document), generator=generator) for _ in range(permutations)]
    labels = [document, *(document[order] for order in orders)]
    return torch.stack([excess_agreement(agreement, each) for each in labels])


@dataclass(frozen=True)
class SteeringTest:
    """Mean distances for each prompt, and the ratio of their sums under permuted labels."""

    between: Tensor  # (P,), continuations with different z
    within: Tensor  # (P,), with the same z
    null: Tensor  # (permutations,)

    @property
    def ratio(self) -> float:
        """Σ between / Σ within"""
        return (self.between.sum() / self.within.sum()).item()


def distances(tokens: Tensor) -> Tensor:
    """Total variation distances (R, R), 0 … 1, between the token frequencies of sequences (R, N):
    the share of tokens that one has and the other lacks, whatever their order.
    """
    _, kind = tokens.unique(return_inverse=True)
    frequencies = torch.nn.functional.one_hot(kind).double().mean(1)  # (R, V)
    return torch.cdist(frequencies, frequencies, p=1) / 2


def mean_distance(distances: Tensor, chosen: Tensor) -> Tensor:
    """Mean (…) of distances (…, R, R) over ``chosen`` pairs (R, R), self-pairs left out."""
    weights = chosen & ~torch.eye(len(chosen), dtype=torch.bool)
    return (distances * weights).sum((-2, -1)) / weights.sum()


def steering_test(
    distances: Tensor, labels: Tensor, generator: Generator, permutations: int = PERMUTATIONS
) -> SteeringTest:
    """Test whether z steers, by distances (P, R, R) between continuations whose z is ``labels``
    (R,). Under the null, that z does nothing, all R continuations of a prompt are exchangeable.
    """
    same = labels[:, None] == labels[None]
    rows = len(labels)
    groups = (labels[:, None] == labels.unique()).type_as(distances)  # (R, number of z)
    within = distances.new_zeros(permutations)
    for of_prompt in distances:
        order = torch.rand(permutations, rows, generator=generator).argsort(1)
        member = groups[order]
        within += (of_prompt @ member * member).sum((1, 2))
    # no continuation has a distance from itself
    between = (distances.sum() - within) / (~same).sum()
    return SteeringTest(
        mean_distance(distances, ~same),
        mean_distance(distances, same),
        between / (within / (same.sum() - rows)),
    )


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
