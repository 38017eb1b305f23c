"""Whether texts of one document have similar z: how often bits agree, within and between documents.

Shapes: S texts with one z each, H latent bits, D documents, P permutations.
"""

import torch
from torch import Generator, Tensor

from ftmodel.analysis.permutation import PERMUTATIONS
from ftmodel.analysis.statistics import jackknife


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
