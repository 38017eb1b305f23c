"""What z does, of encoders and decoders whose answers are known."""

import json
from math import comb, log, log2
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from ftmodel.inference.generate import generate
from ftmodel.mapper import pack_bits
from ftmodel.model.objective import kl_per_bit
from ftmodel.synthetic import target as target_task
from ftmodel.synthetic.target import ALPHABET, BANG, LETTERS, PROMPT, STARTS, sample_with_starts
from pipelines.artifacts.result_files import plain_data
from pipelines.artifacts.results import Between, Reconstruction
from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate import target
from pipelines.evaluate.target import encoded, latent_figures, reconstruction
from tests.evaluate.conftest import tiny
from tests.support.mutants import rejects

CPU = torch.device("cpu")
PROBED = EvaluationConfig(probe_sequences=64)
SURE = 30.0  # a logit
BACK = Reconstruction(1.0)


@pytest.fixture
def encoded_by(monkeypatch):
    """Factory of models whose encoder gives logits (n, T, H) of the tokens (n, T) that it reads."""

    def make(encode, latent_bits=1):
        model = tiny(latent_bits)
        monkeypatch.setattr(model, "lower", lambda tokens, at: tokens)
        monkeypatch.setattr(model.latent, "encode", lambda x, at: encode(x).float())
        monkeypatch.setattr("pipelines.evaluate.target.reconstruction", lambda *_: BACK)
        return model

    return make


@rejects("target.latent_figures: ]«→.flip(0)», rng", "sequences rebuilt from another's z")
def test_sequences_are_rebuilt_from_their_own_z(encoded_by, monkeypatch):
    def first_bit(tokens):
        return SURE * (2 * (tokens[..., None] % 2) - 1)

    def record(model, rows, bits, *rest):
        rebuilt.append((rows, bits))
        return BACK

    rebuilt = []
    model = encoded_by(first_bit)
    monkeypatch.setattr("pipelines.evaluate.target.reconstruction", record)
    latent_figures(model, PROBED, CPU, 7.0)
    latent_figures(model, EvaluationConfig(probe_sequences=7), CPU, 7.0)
    monkeypatch.setattr("pipelines.evaluate.target.RECONSTRUCTED", 5)
    latent_figures(model, PROBED, CPU, 7.0)
    assert [len(rows) for rows, _ in rebuilt] == [PROBED.probe_sequences // 4, 2, 5]
    for rows, bits in rebuilt:
        assert torch.equal(bits[..., 0], rows[:, :-1] % 2)


def marks_the_start(tokens):
    """A bit that is set where the target's first character is next, and fair elsewhere."""
    first = (tokens[:, PROMPT:] < len(LETTERS)).long().argmax(1) + PROMPT
    o = torch.zeros(*tokens.shape, 1)
    o[torch.arange(len(tokens)), first - 1] = SURE
    return o


def test_the_start_is_known_from_z_as_soon_as_it_is_said(encoded_by, monkeypatch):
    """Enumerated: at its turn a clear bit rules a start out, a set one makes it twice as likely."""
    monkeypatch.setattr(target_task, "NOISE", 0.0)
    settings = EvaluationConfig(probe_sequences=8192)
    figures, details = latent_figures(encoded_by(marks_the_start), settings, CPU, 7.0)
    assert figures.start_bits == details.start_bits[-1]

    def log2_weight(others, own, unsaid):
        """E log2 of the weight of all starts, ``others`` of which have had their turn."""
        ways = ((k, comb(others, k) / 2**others) for k in range(others + 1))
        return sum(p * log2(own + unsaid + 2 * k) for k, p in ways)

    known = []
    for said in (min(t, STARTS) for t in range(65)):  # starts whose turn has been at t
        unsaid = STARTS - said
        doubt = unsaid * log2_weight(said, 0, unsaid) if unsaid else 0.0
        doubt += said * (log2_weight(said - 1, 2, unsaid) - 1) if said else 0.0
        known.append(log2(STARTS) - doubt / STARTS)
    assert details.start_bits == pytest.approx(known, abs=0.05)
    assert figures.start_bits == details.start_bits[-1] > 0.9
    assert figures.start_entropy == pytest.approx(5.8329, abs=1e-4)
    found = details.from_start
    assert found.offset == list(range(-57, 64)) and sum(found.n) == 2048 * 65
    assert found.n[57] == 2048  # offset 0
    assert found.kl_bits == pytest.approx([float(i == 57) for i in range(121)], abs=1e-4)
    assert len(details.next_bits) == 65
    assert figures.aggregate_bits.at_most == 7.0
    json.dumps([plain_data(figures), plain_data(details)], allow_nan=False)


@rejects(
    "target.latent_figures: «sample_with_starts(max(2, settings.probe_sequences // "
    "TRAINED), rng)→(rows[::TRAINED], starts[::TRAINED])»",
    "a probe asked about what it learned from",
)
def test_what_is_peculiar_to_the_sequences_learned_from_counts_for_nothing(encoded_by):
    """z names the letter and what is '!', which would tell the sequences learned from apart."""

    def names(tokens):
        n = (tokens[:, :1] + 1) * (1 + (tokens == BANG).sum(1, keepdim=True))
        return SURE * torch.sin(n * (1 + torch.arange(65)) ** 2.0)[..., None]

    figures, details = latent_figures(
        encoded_by(names), EvaluationConfig(probe_sequences=228), CPU, 7.0
    )
    assert figures.start_bits == 0
    assert max(details.start_bits) < 0.3


def test_the_gap_of_the_elbo_is_in_bits(monkeypatch):
    given = []
    monkeypatch.setattr(
        target, "latent_figures", lambda *told: given.append(told[-1]) or (None, None)
    )
    scores = SimpleNamespace(elbo=torch.tensor([3.0, 5.0]), exact=torch.tensor([1.0, 2.0]))
    target.measure_latent(Mock(), scores)
    assert given == pytest.approx([2.5 / log(2)])


@pytest.mark.parametrize("encoder", ["shared", "separate"])
def test_logits_are_those_of_the_forward_pass_whatever_the_batch(rng, encoder):
    model = tiny(latent={"encoder": encoder, "prior": "learned"})
    torch.nn.init.normal_(model.latent.prior.readout.weight)
    rows, _ = sample_with_starts(7, rng)
    noise = torch.rand(7, 65, 3, generator=rng)
    o, kl = encoded(model, rows, noise, EvaluationConfig(batch_tokens=130), CPU)
    expected = model(rows[:, :-1], noise)
    torch.testing.assert_close(o, expected.bit_logits.detach())
    of_bits = kl_per_bit(expected.bit_logits, expected.prior_logits).detach()
    torch.testing.assert_close(kl, of_bits)
    assert of_bits.std() > 0.1


@pytest.mark.parametrize(
    "latent", [{"per": "every", "every": 5}, {"prior": "learned"}], ids=["spans", "learned prior"]
)
def test_what_other_designs_do_not_have(latent):
    """Spans: KL by offset. Learned priors: a bound from below, which is for fair bits."""
    figures, details = latent_figures(tiny(latent=latent), PROBED, CPU, 7.0)
    assert (details.from_start is None) == ("per" in latent) and figures.start_bits is not None
    assert (figures.aggregate_bits == Between(None, 7.0)) == ("prior" in latent)


def spoken(tokens, ahead=1):
    """Bits (n, 65, 5) that spell the next token, or the one ``ahead`` places on."""
    shifted = torch.nn.functional.pad(tokens, (0, ahead - 1), value=ALPHABET.index("_"))
    return shifted[:, ahead : ahead + 65, None] >> torch.arange(5) & 1


def speaks(model, prompt, n, *, generator, z):
    """In place of generation: each token is what the z before it spells."""
    return torch.cat((prompt[:, :1], z.codes), dim=1)


@pytest.mark.parametrize("ahead", [1, 4])
def test_sequences_come_back_from_their_z(monkeypatch, rng, ahead):
    """As they were; or, of a decoder that runs ahead, all of it so many places too early."""
    monkeypatch.setattr("pipelines.evaluate.target.generate", speaks)
    rows, starts = sample_with_starts(300, rng)
    if ahead > 1:  # the target may not run out
        rows = rows[starts >= ahead]
    found = reconstruction(tiny(5), rows, spoken(rows, ahead), rng, CPU)
    assert found.valid == 1
    assert found.distance == pytest.approx(ahead - 1, abs=1e-6)
    assert found.noise == 1 if ahead == 1 else found.noise < 0.15


@rejects("target.reconstruction: «fmean(valid)→valid[0]»", "the first sequence for all")
def test_figures_of_what_comes_back_are_means_over_sequences(monkeypatch, rng):
    """Of four, two as they were, one three places too early, one nothing but '!'."""
    monkeypatch.setattr("pipelines.evaluate.target.generate", speaks)
    rows, starts = sample_with_starts(300, rng)
    rows = rows[starts >= 4]
    rows = rows[(rows == BANG).sum(1) > 0][:4]
    bits = torch.stack(
        [spoken(row[None], ahead)[0] for row, ahead in zip(rows, (1, 4, 1, 1), strict=True)]
    )
    bits[3, PROMPT - 1 :] = torch.tensor(BANG) >> torch.arange(5) & 1
    alone = [reconstruction(tiny(5), rows[i : i + 1], bits[i : i + 1], rng, CPU) for i in range(4)]
    found = reconstruction(tiny(5), rows, bits, rng, CPU)
    assert [each.valid for each in alone] == [1, 1, 1, 0] and found.valid == 0.75
    distances = [each.distance for each in alone]
    assert distances == [pytest.approx(0), pytest.approx(3), pytest.approx(0), None]
    assert found.distance == pytest.approx(1)  # of three
    assert found.noise == pytest.approx(sum(each.noise for each in alone) / 4)


def test_what_no_sequence_has_is_null(monkeypatch, rng):
    """Neither a letter nor a '!' in any of the sequences, as they were and as they came back."""
    blank = torch.full((2, 66), ALPHABET.index("_"))
    blank[:, 0], blank[:, 1] = 0, ALPHABET.index(">")
    monkeypatch.setattr("pipelines.evaluate.target.generate", speaks)
    found = reconstruction(tiny(5), blank, spoken(blank), rng, CPU)
    assert found == Reconstruction(valid=0, distance=None, noise=None)


@rejects(
    "target.reconstruction: «codes→codes, torch.arange(65).expand_as(codes) > 1» )",
    "a z of the prompt's own",
)
def test_the_decoder_is_given_these_codes_at_every_position(monkeypatch, rng):
    passed = {}

    def record(*args, **kwargs):
        passed.update(kwargs)
        return generate(*args, **kwargs)

    monkeypatch.setattr("pipelines.evaluate.target.generate", record)
    rows, _ = sample_with_starts(3, rng)
    bits = torch.randint(2, (3, 65, 3), generator=rng)
    found = reconstruction(tiny(), rows, bits, rng, CPU)
    assert torch.equal(passed["z"].codes, pack_bits(bits)) and passed["z"].given is None
    assert 0 <= found.valid <= 1
