"""Means over documents with their errors, in numbers and in words."""

from math import nan

import pytest
import torch

from pipelines.artifacts.results import Estimate, document_sums


def test_values_are_summed_by_document():
    values, document = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([7, 4, 7])
    sums, counts = document_sums(values, document)
    assert sums.tolist() == [[3, 4], [6, 8]] and counts.tolist() == [1, 2]
    found = Estimate.by_document(values[:, 0], document)
    assert found == Estimate.over_documents(torch.tensor([3, 6]), torch.tensor([1, 2]))
    assert found.mean == 3
    assert Estimate.by_document(values[:, 0], document, size=2).mean == 1.5


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (Estimate(-1.0, 0.1), "−1.0000 ± 0.1000"),
        (Estimate(1.0, nan), "1.0000"),
        (Estimate(1.0, 0.1, converged=False), "1.0000 ± 0.1000 (not converged)"),
        (Estimate(1.0, 0.1, converged=True), "1.0000 ± 0.1000"),
    ],
)
def test_an_estimate_in_words(estimate, words):
    assert str(estimate) == words
