"""Whether a pinned z steers what is generated: are a prompt's continuations further apart with
different z than with the same z?

Shapes: P prompts, R continuations of each, N tokens, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ftmodel.analysis.permutation import PERMUTATIONS


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
