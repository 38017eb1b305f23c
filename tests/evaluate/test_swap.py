"""Which measurements of z in text are taken; its swap, and paths from one z to another."""

import sys
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from ftmodel.analysis.use_of_z import with_permutations
from ftmodel.designs.hinge import LN2
from ftmodel.inference.swap import SHARES, PathCE, SwappedCE
from pipelines.config.data import ProcessData, TextData
from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate import codes, generations, hidden_causes, stage, target
from pipelines.evaluate.codes import half_of_the_bits, of_one_length, path, swap_figures
from tests.evaluate.conftest import chunk
from tests.support.mutants import rejects

SEQUENCE = {"latent": {"per": "sequence"}}
MEASUREMENTS = dict.fromkeys(  # what they return
    ("measure_answers", "measure_coin", "measure_generations", "measure_label"), None
) | {
    "measure_bits": (None,) * 3,
    "measure_groups": (None,) * 3,
    "measure_latent": (None,) * 2,
    "measure_sequence_z": None,
    "measure_steering": None,
    "measure_swap": None,
}


@pytest.mark.parametrize(
    ("measurement", "shape", "setting"),
    [
        ("measure_bits", {}, "bit_tokens"),
        ("measure_swap", {}, "swap_tokens"),
        ("measure_sequence_z", SEQUENCE, "swap_tokens"),
        ("measure_steering", {}, "steering_prompts"),
    ],
)
def test_not_on_processes_nor_where_it_is_turned_off(
    make_model, monkeypatch, measurement, shape, setting
):
    """Nor of baselines, but for steering: how far draws of tokens alone drive texts apart."""
    taken = {
        "own_text_gap": Mock(return_value=None),
        "score": Mock(),
        "results_of": Mock(return_value=(Mock(), Mock())),
    }
    for module in (stage, codes, generations, hidden_causes, target):
        for name in vars(module).keys() & {*taken, *MEASUREMENTS}:
            taken.setdefault(name, Mock(return_value=MEASUREMENTS.get(name)))
            monkeypatch.setattr(module, name, taken[name])

    def applies(data=None, latent_bits=3, shape=shape, **settings):
        taken[measurement].reset_mock()
        model = make_model(latent_bits=latent_bits, **shape)
        stage.evaluate(model, Mock(), data or TextData(), EvaluationConfig(**settings), Mock())
        return taken[measurement].called

    assert applies()
    assert not applies(ProcessData("target")) and not applies(ProcessData("coin"))
    assert not applies(**{setting: 0})
    assert applies(latent_bits=0, shape={}) == (measurement == "measure_steering")
    assert applies(shape={}) == (measurement != "measure_sequence_z")


class Asked(Exception):
    pass


@rejects("generations.beginnings: «prompts * context→None»", "prompts of the first documents")
@pytest.mark.parametrize(
    ("measure", "source", "shape", "tokens"),
    [
        (codes.measure_bits, "text", {}, 2000),
        (codes.measure_swap, "text", {}, 3000),
        (codes.measure_sequence_z, "text", SEQUENCE, 3000),
        (generations.measure_steering, "text", {}, 5 * 16),
        (generations.measure_generations, "text", {}, 3 * 16),
        (hidden_causes.measure_answers, "path_star_2", {}, 1000),
        (hidden_causes.measure_label, "coin", {}, 1000),
    ],
)
def test_each_measurement_is_of_evenly_spaced_chunks_that_its_setting_caps(
    make_model, monkeypatch, measure, source, shape, tokens
):
    """As `held_out` takes them; at beginnings, as many as prompts would fill."""

    def held_out(*arguments):
        raise Asked(*arguments)

    for each in (sys.modules[measure.__module__], generations):
        monkeypatch.setattr(each, "held_out", held_out, raising=False)
    monkeypatch.setattr(hidden_causes, "labelled_rows", lambda *_: (None, None))
    context = SimpleNamespace(
        model=make_model(context=16, **shape),
        shards=SimpleNamespace(tokenizer=lambda: None),
        data=TextData() if source == "text" else ProcessData(source),
        settings=EvaluationConfig(bit_tokens=2000, swap_tokens=3000, steering_prompts=5),
        scored_tokens=1000,
    )
    with pytest.raises(Asked) as caught:
        measure(context)
    assert caught.value.args == (context.shards, 16, tokens)


def test_texts_are_cut_to_the_length_that_half_of_them_have():
    chunks = [chunk(d, n, d) for d, n in enumerate((3, 9, 16, 7, 16))]
    texts, documents = of_one_length(chunks)
    assert documents.tolist() == [1, 2, 4]
    assert texts.tolist() == [chunks[d].tokens[:10].tolist() for d in (1, 2, 4)]


@rejects("codes.swap_figures: «document→torch.arange(len(document))»,", "errors over texts")
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


def test_a_decoder_that_reads_z_is_measured_and_repeatably(make_model, measured, monkeypatch):
    def of(**settings):
        chunks = [chunk(d, 16, i) for i, d in enumerate((0, 0, 1, 2, 3))]
        return measured(codes.measure_swap, make_model().eval(), chunks, **settings)

    first = of()
    assert first.texts == 5 and first.other_minus_own.mean != 0
    assert of() == first
    assert of(batch_tokens=32).own.mean == pytest.approx(first.own.mean, rel=1e-6)
    bits = 16 * LN2 * torch.ones(5).double()  # one a token
    known = Mock(return_value=SwappedCE(bits, bits, bits, bits))
    monkeypatch.setattr(codes, "swapped_ce", known)
    assert of().own.mean == pytest.approx(1)
    assert known.call_args.args[3] == 2, "draws of z from each source"


def test_a_single_document_has_nobody_to_swap_with_which_is_said(make_model, measured, capsys):
    chunks = [chunk(4, 16), chunk(4, 16)]
    assert measured(codes.measure_swap, make_model().eval(), chunks, swap_tokens=32) is None
    assert "evaluation.swap_tokens=32 are of one document" in capsys.readouterr().err
    chunks = [chunk(4, 16), chunk(5, 16)]
    assert measured(codes.measure_swap, make_model().eval(), chunks, swap_tokens=32).texts == 2


@pytest.fixture
def figures_of(make_model, measured, monkeypatch):
    few = partial(with_permutations, permutations=200)
    monkeypatch.setattr(codes, "with_permutations", few)

    def figures(chunks, **settings):
        model = make_model(latent={"per": "sequence"})
        return measured(codes.measure_sequence_z, model, chunks, **settings)

    return figures


def test_paths_and_clusters_are_measured_repeatably(figures_of, monkeypatch):
    chunks = [chunk(d, 16, i) for i, d in enumerate((0, 0, 1, 2, 2, 3))]
    first = figures_of(chunks)
    assert first.texts == 6 and [step.share for step in first.path] == list(SHARES[1:])
    assert first.own.mean != first.other.mean and first.path[-1].start != first.path[-1].end
    assert 0 < first.clusters.same.mean < 1 and 0 < first.clusters.p_value <= 1
    assert figures_of(chunks) == first
    again = figures_of(chunks, batch_tokens=32)
    assert again.other.mean == pytest.approx(first.other.mean, rel=1e-6)
    assert again.path[1].end.mean == pytest.approx(first.path[1].end.mean, rel=1e-4)
    bits = 16 * LN2 * torch.arange(1, 6).double()[:, None].expand(-1, 6)  # one a token at first
    known = PathCE(3 * bits, 5 * bits, bits, bits)
    monkeypatch.setattr(codes, "interpolated_ce", lambda *_: known)
    by_document = torch.eye(4).double()[torch.tensor([0, 0, 1, 2, 2, 3])]
    monkeypatch.setattr(codes, "posterior", lambda *_: by_document)
    found = figures_of(chunks)
    assert (found.own.mean, found.other.mean) == pytest.approx((3, 5))
    assert found.clusters.same.mean == 1 > found.clusters.different.mean


def test_documents_of_one_text_have_no_pairs_and_a_single_document_nobody_to_lead_to(figures_of):
    assert figures_of([chunk(d, 16, d) for d in range(4)]).clusters is None
    assert figures_of([chunk(4, 16, i) for i in range(3)]) is None
    assert figures_of([chunk(4, 16, 0), chunk(5, 16, 1)]).texts == 2


@rejects("codes.path: «of_end→documents», step", "the end's text in the document of the start")
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


@rejects("codes.path: 0]«→.mean()»)", "the level's error for that of the change")
def test_an_error_is_that_of_the_change_and_not_of_the_level():
    """Three texts of very different cross-entropy, which all lose a bit a step."""
    level = torch.tensor([10.0, 200.0, 3000.0]).double()
    nats = level + LN2 * torch.arange(5)[:, None]
    steps = path(PathCE(nats, nats, nats, nats), torch.arange(3), torch.arange(3), length=1)
    assert [s.start.mean for s in steps] == pytest.approx([1, 2, 3, 4])
    assert all(s.start.se < 1e-9 and s.end.se < 1e-9 and s.random.se < 1e-9 for s in steps)


@rejects("codes.half_of_the_bits: «end_random→end»", "half the bits as their own null")
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
    for gains, clear in (((5.0, 2.0), True), ((10.0, 2.0), False)):  # 3.5 ± 1.5 and 6 ± 4
        ends = torch.zeros(5, 2).double()
        ends[0] = torch.tensor(gains)
        assert bool(shares(ends)) is clear
