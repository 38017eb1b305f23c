"""One z per sequence on held-out chunks: of which models, and the figures that are kept."""

from functools import partial

import pytest
import torch

from ftmodel.analysis.code_clusters import with_permutations
from ftmodel.inference.interpolation import SHARES, PathCE
from ftmodel.model.objective import LN2
from pipelines.evaluate import sequence_z
from pipelines.evaluate.sequence_z import half_of_the_bits, path
from tests.evaluate.conftest import chunk
from tests.support.mutants import rejects


@pytest.fixture
def figures_of(make_model, measured, monkeypatch):
    few = partial(with_permutations, permutations=200)
    monkeypatch.setattr(sequence_z, "with_permutations", few)

    def figures(chunks, **settings):
        model = make_model(latent={"per": "sequence"})
        return measured(sequence_z, model, chunks, **settings)[0].sequence_z

    return figures


def test_a_decoder_that_reads_z_is_measured_and_repeatably(figures_of):
    chunks = [chunk(d, 16, i) for i, d in enumerate((0, 0, 1, 2, 2, 3))]
    first = figures_of(chunks)
    assert first.texts == 6 and [step.share for step in first.path] == list(SHARES[1:])
    assert first.own.mean != first.other.mean and first.path[-1].start != first.path[-1].end
    assert 0 < first.clusters.same.mean < 1 and 0 < first.clusters.p_value <= 1
    assert figures_of(chunks) == first
    again = figures_of(chunks, batch_tokens=32)
    assert again.other.mean == pytest.approx(first.other.mean, rel=1e-6)
    assert again.path[1].end.mean == pytest.approx(first.path[1].end.mean, rel=1e-4)


def test_documents_of_one_text_have_no_pairs_and_a_single_document_nobody_to_lead_to(figures_of):
    assert figures_of([chunk(d, 16, d) for d in range(4)]).clusters is None
    assert figures_of([chunk(4, 16, i) for i in range(3)]) is None


@rejects(
    "evaluate/sequence_z.py", ".end_random[", ".end[", "half of the other's bits as their own null"
)
def test_half_of_the_bits_is_set_beside_as_many_that_are_changed_at_random(figures_of, monkeypatch):
    """Texts gain 4 of 8 nats by half of the bits of their own z, and lose 2 by random ones."""
    gains = torch.tensor([0.0, 2, 4, 6, 8]).double()[:, None].expand(5, 4)
    ce = PathCE(20 + gains, 20 - gains, 20 + gains, 20 + gains / 2)
    monkeypatch.setattr(sequence_z, "interpolated_ce", lambda *_: ce)
    figures = figures_of([chunk(d, 16, d) for d in range(4)])
    assert figures.half.mean == pytest.approx(4 / 8)
    assert figures.half_random.mean == pytest.approx(-2 / 8)
    assert figures.half_minus_random.mean == pytest.approx(6 / 8)
    tokens = 16 * LN2
    assert [step.end.mean for step in figures.path] == pytest.approx(
        [-n / tokens for n in (2, 4, 6, 8)]
    )


@rejects(
    "evaluate/sequence_z.py",
    "change(ce.end, of_end, step)",
    "change(ce.end, documents, step)",
    "text at the end of a path in the document of that at the start",
)
def test_figures_are_of_the_document_of_the_text_that_is_read():
    """Two texts of document 5 and one of 6, of 4 tokens each; paths lead to one of 6 and two of 5,
    whose 16 + 40 bits lie 13.3 bits above 8 tokens of the mean, and the 8 bits as far below.
    """
    nats = LN2 * torch.tensor([4.0, 8.0, 20.0]).double()
    start = torch.stack((torch.zeros(3).double(), *[nats] * 4))  # changes from a level of 0
    ce = PathCE(start, 2 * start, start, 2 * start)
    documents, of_end = torch.tensor([5, 5, 6]), torch.tensor([6, 5, 5])
    first = path(ce, documents, of_end, length=4)[0]
    assert first.start.mean == pytest.approx(32 / 12)
    assert first.end.mean == pytest.approx(64 / 12)
    assert first.end.se == pytest.approx(2 * (40 / 3) / 12)


@rejects(
    "evaluate/sequence_z.py",
    "(nats[step] - nats[0]) / LN2",
    "(nats[step] - nats[0].mean()) / LN2",
    "the level's error for that of the change",
)
def test_an_error_is_that_of_the_change_and_not_of_the_level():
    """Three texts of very different cross-entropy, which all lose a bit a step."""
    level = torch.tensor([10.0, 200.0, 3000.0]).double()
    nats = level + LN2 * torch.arange(5)[:, None]
    steps = path(PathCE(nats, nats, nats, nats), torch.arange(3), torch.arange(3), length=1)
    assert [s.start.mean for s in steps] == pytest.approx([1, 2, 3, 4])
    assert all(s.start.se < 1e-9 and s.end.se < 1e-9 and s.random.se < 1e-9 for s in steps)


def test_half_of_the_bits_bring_their_share():
    end = torch.tensor([[8.0, 6.0], [7, 6], [5, 4], [4, 4], [2, 1]]).double()
    at_random = torch.tensor([[8.0, 6.0], [9, 6], [10, 5], [7, 9], [9, 9]]).double()
    documents = torch.tensor([0, 1])

    def shares(end):
        return half_of_the_bits(PathCE(end, end, at_random, at_random), documents)

    assert {name: share.mean for name, share in shares(end).items()} == pytest.approx(
        {"half": (3 + 2) / 11, "half_random": (-2 + 1) / 11, "half_minus_random": (5 + 1) / 11}
    )
    assert all(share.se > 0 for share in shares(end).values())
    assert not shares(end.flip(0))
    noisy = torch.tensor([[8.0, 4], [7, 6], [5, 4], [4, 4], [2, 6]]).double()
    assert not shares(noisy), "4 ± 8"
