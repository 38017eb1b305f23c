"""The swap of z on held-out chunks: who is compared with whom, and over which documents."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ftmodel.model.objective import LN2
from pipelines.artifacts.packing import Chunk
from pipelines.config.data import ProcessData, TextData
from pipelines.config.schema import Evaluation
from pipelines.evaluate import swap
from pipelines.evaluate.swap import of_one_length, swap_figures
from tests.support.mutants import rejects

CPU = torch.device("cpu")


def chunk(document, length):
    return Chunk(document, 0, np.arange(length + 1) % 11)


def measured(model, chunks, monkeypatch, **settings):
    monkeypatch.setattr(swap, "held_out", lambda *_: iter(chunks))
    context = SimpleNamespace(
        model=model, shards=None, data=TextData(), settings=Evaluation(**settings), device=CPU,
        evaluation=SimpleNamespace(swap=None),
    )  # fmt: skip
    assert swap.applies(context)
    swap.measure(context)
    return context.evaluation.swap


def test_texts_are_cut_to_the_length_that_half_of_them_have():
    texts, documents = of_one_length([chunk(d, n) for d, n in enumerate((3, 9, 16, 7, 16))])
    assert documents.tolist() == [1, 2, 4]
    assert texts.tolist() == [list(range(10))] * 3


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


def test_a_decoder_that_reads_z_is_measured_and_repeatably(make_model, monkeypatch):
    chunks = [chunk(d, 16) for d in (0, 0, 1, 2, 3)]
    first = measured(make_model().eval(), chunks, monkeypatch)
    assert first.texts == 5 and first.other_minus_own.mean != 0
    assert measured(make_model().eval(), chunks, monkeypatch) == first
    assert measured(make_model().eval(), chunks, monkeypatch, batch_tokens=32).own.mean == (
        pytest.approx(first.own.mean, rel=1e-6)
    )


def test_a_single_document_has_nobody_to_swap_with_which_is_said(make_model, monkeypatch, capsys):
    chunks = [chunk(4, 16), chunk(4, 16)]
    assert measured(make_model().eval(), chunks, monkeypatch, swap_tokens=32) is None
    assert "evaluation.swap_tokens=32 are of one document" in capsys.readouterr().err


def test_it_is_left_out_of_baselines_of_processes_and_where_it_is_turned_off(make_model):
    def applies(bits=3, data=None, **settings):
        return swap.applies(
            SimpleNamespace(
                model=make_model(latent_bits=bits),
                data=data or TextData(),
                settings=Evaluation(**settings),
            )
        )

    assert applies()
    assert not applies(bits=0) and not applies(swap_tokens=0)
    assert not applies(data=ProcessData("coin"))
