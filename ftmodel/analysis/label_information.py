"""Mutual information in bits between z and a known binary label, with a permutation test.

It is computed by counting *sampled* bits of z, as a decoder reads them. Such a plug-in estimate is
biased upwards, most of all for the best of many bits: only its excess over the same estimate for
permuted labels means anything. It may be a small part of what z says about the label, because bits
are taken one at a time, or all together by a classifier that treats them as independent: see
docs/measurement/label_information.md.

Shapes: n sequences, T tokens, H latent bits, F features of 0 and 1, P permutations of the labels.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ftmodel.analysis.permutation import Chance, permutation_test
from ftmodel.designs.hinge import LN2

PERMUTATIONS = 1000


@dataclass
class LabelInformation:
    """Information of z about the label, bits."""

    best: Chance  # the most informative bit's, against the best bit of each permutation
    whole: Chance  # for a naive Bayes prediction from the bits of all tokens
    per_bit: list[float]  # (H,)


def entropy(*probabilities: Tensor) -> Tensor:
    """Σ −p log2 p, bits, over probabilities of one shape; the result has that shape too."""
    return torch.special.entr(torch.stack(probabilities)).sum(0) / LN2


def observation_information(posterior: Tensor) -> float:
    """Information in bits of an observation about a fair binary label, from the exact posteriors
    P(label = 1 | observation), (n,), of n observations: 1 − their mean entropy. By the data
    processing inequality no function of the observation has more.
    """
    return 1 - entropy(posterior, 1 - posterior).mean().item()


def mutual_information(features: Tensor, labels: Tensor) -> Tensor:
    """Plug-in mutual information (F, P), bits, between each feature (n, F) and each label (n, P),
    all 0 or 1. Its bias is about 1 / (2 n ln 2) where the two are independent (Miller 1955).
    """
    x, y = features.double(), labels.double()
    n = len(x)
    both = x.T @ y / n  # (F, P), the frequency of 1 and 1
    p, q = x.mean(0)[:, None], y.mean(0)[None]
    joint = (both, p - both, q - both, 1 - p - q + both)
    joint_entropy = entropy(*(probability.clamp(min=0) for probability in joint))
    return (entropy(p, 1 - p) + entropy(q, 1 - q) - joint_entropy).clamp(min=0)


def bits_of_sequences(bits: Tensor) -> Tensor:
    """One value of each latent bit per sequence, (n, H), from bits (n, T, H), 0 or 1: whether it is
    1 at more tokens than on average over the sequences.

    κ is the same for every token, so what z says about a sequence is spread over its tokens. The
    threshold is the mean, which has values on both sides unless all are equal. The median has none
    above it if most sequences have the largest count, as with a bit that equals a label that is
    mostly 1.
    """
    counts = bits.sum(1).double()
    return (counts > counts.mean(0)).long()


def naive_bayes(features: Tensor, labels: Tensor) -> Tensor:
    """Predict each column of labels (n, P) from features (n, F), all 0 or 1: (n, P). Twofold
    cross-validation: the predictions for each half use counts of the other half.
    """
    x, y = features.double(), labels.double()
    predictions = torch.empty_like(y)
    fold = torch.arange(len(x)) % 2
    for half in (0, 1):
        train, test = fold != half, fold == half
        log_joint = []
        for label in (0, 1):
            member = torch.eq(y[train], label).double()
            p = (x[train].T @ member + 1) / (member.sum(0) + 2)  # (F, P), Laplace's smoothing
            zero, one = (-p).log1p(), p.log()
            log_joint.append(x[test] @ (one - zero) + zero.sum(0) + (member.mean(0)).log())
        predictions[test] = (log_joint[1] > log_joint[0]).double()
    return predictions


def label_information(
    bits: Tensor, labels: Tensor, generator: Generator, permutations: int = PERMUTATIONS
) -> LabelInformation:
    """Information of sampled bits of z (n, T, H) about labels (n,), all 0 or 1."""
    shuffled = [
        labels[torch.randperm(len(labels), generator=generator)] for _ in range(permutations)
    ]
    columns = torch.stack([labels, *shuffled], dim=1)  # (n, 1 + P)
    single = mutual_information(bits_of_sequences(bits), columns)  # (H, 1 + P)
    features = bits.flatten(1)
    predictions = naive_bayes(features, columns)
    whole = torch.cat(
        [mutual_information(predictions[:, [i]], columns[:, [i]]) for i in range(columns.shape[1])]
    )
    return LabelInformation(
        best=permutation_test(single.max(0).values),
        whole=permutation_test(whole.flatten()),
        per_bit=single[:, 0].tolist(),
    )
