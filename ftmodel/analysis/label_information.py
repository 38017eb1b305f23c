"""Does z carry a known label? Mutual information in bits, and what of it would come by chance.

All is computed from *sampled* bits of z, as a decoder reads them, and by counting. Such a plug-in
estimate is too high, more so the best of many bits: what it says is only what it has above the same
maximum of permuted labels. Of what z tells it may still be a small part, for bits are looked at one
by one, or all together by a guess that takes them as independent.

Shapes: n sequences, T tokens, H latent bits, F features of 0 and 1, P permutations of the labels.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ftmodel.model.objective import LN2

PERMUTATIONS = 1000


@dataclass
class Chance:
    """An information in bits, and what it is when the labels are permuted."""

    bits: float
    null_mean: float
    null_95: float  # the quantile
    p_value: float  # (1 + permutations that reach it) / (1 + permutations)


@dataclass
class LabelInformation:
    """What z tells of the label."""

    best: Chance  # of the bit that tells most, against the best bit of each permutation
    whole: Chance  # of a naive Bayes guess from the bits of all tokens
    per_bit: list[float]  # (H,)


def entropy(*shares: Tensor) -> Tensor:
    """Σ −p log2 p of probabilities, all of one shape."""
    return torch.special.entr(torch.stack(shares)).sum(0) / LN2


def told_by(posterior: Tensor) -> float:
    """Information in bits between a fair coin and what it was seen in, from the exact posteriors
    (n,) of n sightings: 1 − their mean entropy. Nothing computed from a sighting tells more.
    """
    return 1 - entropy(posterior, 1 - posterior).mean().item()


def mutual_information(features: Tensor, labels: Tensor) -> Tensor:
    """Plug-in estimate, bits, of each of features (n, F) with each of labels (n, P), all 0 or 1.

    Returns (F, P). From counts, it is too high by about 1 / (2 n ln 2) where there is no relation.
    """
    x, y = features.double(), labels.double()
    n = len(x)
    both = x.T @ y / n  # (F, P), the share of 1 and 1
    p, q = x.mean(0)[:, None], y.mean(0)[None]
    joint = (both, p - both, q - both, 1 - p - q + both)
    joint_entropy = entropy(*(share.clamp(0, 1) for share in joint))
    return (entropy(p, 1 - p) + entropy(q, 1 - q) - joint_entropy).clamp(min=0)


def bits_of_sequences(bits: Tensor) -> Tensor:
    """One value of each latent bit for a whole sequence: whether it is 1 at more of the tokens than
    on the average over sequences. bits (n, T, H) of 0 and 1 give (n, H).

    Free bits are granted to every token alike, so what z says of a sequence is spread over them.
    The mean has values on both sides unless all are equal; above the median there is none where
    most sequences have the largest count, as of a bit that equals a label that mostly is 1.
    """
    counts = bits.sum(1).double()
    return (counts > counts.mean(0)).long()


def guess(features: Tensor, labels: Tensor) -> Tensor:
    """Labels guessed from features (n, F) by naive Bayes, for each column of labels (n, P), in two
    halves: the guesses (n, P) in one come from counts in the other, so none has seen its label.
    """
    x, y = features.double(), labels.double()
    guesses = torch.empty_like(y)
    fold = torch.arange(len(x)) % 2
    for half in (0, 1):
        known, asked = fold != half, fold == half
        log_joint = []
        for label in (0, 1):
            member = torch.eq(y[known], label).double()
            share = (x[known].T @ member + 1) / (member.sum(0) + 2)  # (F, P), Laplace's
            zero, one = (-share).log1p(), share.log()
            log_joint.append(x[asked] @ (one - zero) + zero.sum(0) + (member.mean(0)).log())
        guesses[asked] = (log_joint[1] > log_joint[0]).double()
    return guesses


def against_chance(values: Tensor) -> Chance:
    """values (1 + P,): the true labels' information first, then that of each permutation."""
    true, null = values[0].item(), values[1:]
    return Chance(
        bits=true,
        null_mean=null.mean().item(),
        null_95=null.quantile(0.95).item(),
        p_value=(1 + (null >= true).sum().item()) / (1 + len(null)),
    )


def label_information(
    bits: Tensor, labels: Tensor, generator: Generator, permutations: int = PERMUTATIONS
) -> LabelInformation:
    """What sampled bits of z (n, T, H) tell of labels (n,), both of 0 and 1."""
    shuffled = [
        labels[torch.randperm(len(labels), generator=generator)] for _ in range(permutations)
    ]
    columns = torch.stack([labels, *shuffled], dim=1)  # (n, 1 + P)
    single = mutual_information(bits_of_sequences(bits), columns)  # (H, 1 + P)
    features = bits.flatten(1)
    guesses = guess(features, columns)
    whole = torch.stack(
        [
            mutual_information(guesses[:, i : i + 1], columns[:, i : i + 1])[0, 0]
            for i in range(columns.shape[1])
        ]
    )
    return LabelInformation(
        best=against_chance(single.max(0).values),
        whole=against_chance(whole),
        per_bit=single[:, 0].tolist(),
    )
