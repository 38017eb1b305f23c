"""The swap of z on held-out chunks: who is compared with whom, and over which documents."""

import pytest
import torch

from ftmodel.model.objective import LN2
from pipelines.evaluate import swap
from pipelines.evaluate.swap import of_one_length, swap_figures
from tests.evaluate.conftest import chunk
from tests.support.mutants import rejects


def test_texts_are_cut_to_the_length_that_half_of_them_have():
    chunks = [chunk(d, n, d) for d, n in enumerate((3, 9, 16, 7, 16))]
    texts, documents = of_one_length(chunks)
    assert documents.tolist() == [1, 2, 4]
    assert texts.tolist() == [chunks[d].tokens[:10].tolist() for d in (1, 2, 4)]


@rejects(
    "evaluate/swap.py",
    "Estimate.by_document(values / LN2, document, length)",
    "Estimate.by_document(values / LN2, torch.arange(len(document)), length)",
    "errors of the swap over texts",
)
def test_figures_are_bits_per_token_over_documents():
    nats = LN2 * torch.tensor([8.0, 12.0, 16.0]).double()
    by_source = {"own": nats, "prior": 2 * nats, "other": 3 * nats, "permuted": nats}
    figures = swap_figures(by_source, torch.tensor([5, 5, 6]), length=4)
    assert figures.texts == 3
    assert figures.own.mean == pytest.approx(3) and figures.other.mean == pytest.approx(9)
    assert figures.prior_minus_own.mean == pytest.approx(3)
    assert figures.other_minus_own.mean == pytest.approx(6)
    assert figures.permuted_minus_own.mean == figures.permuted_minus_own.se == 0
    assert figures.own.se == pytest.approx(2 * 4 / 12), "20 and 16 bits of 8 and 4 tokens"


def test_a_decoder_that_reads_z_is_measured_and_repeatably(make_model, measured):
    def of(**settings):
        chunks = [chunk(d, 16, i) for i, d in enumerate((0, 0, 1, 2, 3))]
        return measured(swap, make_model().eval(), chunks, **settings)[0].swap

    first = of()
    assert first.texts == 5 and first.other_minus_own.mean != 0
    assert of() == first
    assert of(batch_tokens=32).own.mean == pytest.approx(first.own.mean, rel=1e-6)


def test_a_single_document_has_nobody_to_swap_with_which_is_said(make_model, measured, capsys):
    chunks = [chunk(4, 16), chunk(4, 16)]
    assert measured(swap, make_model().eval(), chunks, swap_tokens=32)[0].swap is None
    assert "evaluation.swap_tokens=32 are of one document" in capsys.readouterr().err
