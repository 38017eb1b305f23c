"""Particles and proposal of a run's filter: from training text alone, and the bound with them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ftmodel.analysis.calibration import Calibration, merged
from ftmodel.analysis.work import EvaluationWork
from pipelines.artifacts.packing import held_out, packed
from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.rng_streams import Purpose
from pipelines.config.data import TextData
from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate import bounds
from pipelines.evaluate.bounds import (
    calibrated,
    filter_estimates,
    own_text_gap,
    part_of,
    results_of,
    score,
    training_chunks,
)
from pipelines.evaluate.measurement import Allowance
from pipelines.evaluate.stage import headline
from pipelines.evaluate.work import allowance, evaluation_work, settled
from tests.evaluate.conftest import lively, tiny
from tests.support.arrivals import arrives
from tests.support.corpora import write_shards
from tests.support.mutants import rejects
from tests.support.settings import smoke

CPU = torch.device("cpu")
CONTEXT, SCORED = 16, 40 * 32
SETTINGS = EvaluationConfig(batch_tokens=64, iwae_samples=2, max_particles=16)


def text(seed, documents=60):
    """Documents of 20 ids, each after an end of text."""
    ids = np.random.default_rng(seed).integers(1, 50, (documents, 20))
    return np.pad(ids, ((0, 0), (1, 0))).flatten().tolist()


@pytest.fixture
def shards(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.artifacts.tokens.shards.Shards.token_bytes", lambda _: None)
    return write_shards(tmp_path / "shards", [text(1)], [text(2)], vocab_size=50)


@pytest.fixture
def model():
    return lively(3, 50, CONTEXT)


@rejects("bounds.training_chunks: «train→validation»", "calibrated on the scored documents")
def test_a_filter_is_calibrated_on_training_text(shards):
    chunks, known = training_chunks(shards, CONTEXT, 40 * 32 * CONTEXT), text(1)
    assert len(chunks) == 40 and len(training_chunks(shards, CONTEXT, 1)) == 32
    windows = (len(known) - 1) // CONTEXT
    for number, chunk in enumerate(chunks):
        part = chunk.tokens.tolist()
        places = [i for i in range(len(known)) if known[i : i + len(part)] == part]
        assert len(places) == 1 and 0 not in part[1:-1] and len(part) > CONTEXT // 2
        start = number * windows // 40 * CONTEXT  # they are evenly spaced
        assert start <= places[0] <= start + CONTEXT + 1 - len(part)
    assert len({tuple(chunk.tokens) for chunk in chunks}) == 40


@pytest.mark.parametrize(
    ("ids", "end", "part"),
    [
        ([0, 1, 2, 0, 4, 5, 6, 0], 0, [0, 4, 5, 6, 0]),
        ([0, 1, 2, 0, 4, 5, 6, 0], 9, [0, 1, 2, 0, 4, 5, 6, 0]),
        ([0, 1, 2, 0, 4], None, [0, 1, 2, 0, 4]),
        ([0, 1, 2, 0, 4, 5, 6], 0, [0, 1, 2, 0]),  # the first of two as long
    ],
)
def test_a_calibration_chunk_lies_in_one_document(ids, end, part):
    assert part_of(np.array(ids), end).tolist() == part


@rejects("bounds.calibrated: index=«particles→chunk.index»", "noise that ignores the number")
@rejects("bounds.calibrated: «CALIBRATION→FILTER»", "calibrated with the scored noise")
def test_what_a_calibration_runs(shards, model, monkeypatch):
    """Every share with the same noise, and then new noise for each number of particles. What has a
    proposal of its own has no share.
    """
    calls = []

    def record(model, chunks, settings, filters, purpose, device):
        index = {chunk.index for chunk in chunks}
        calls.append((settings.particles, settings.proposal, filters, purpose, index))
        return torch.tensor([[1.0], [9.0], [9.0], [9.0]]) * settings.proposal + 20

    monkeypatch.setattr(bounds, "filter_estimates", record)
    monkeypatch.setattr(bounds, "enumerable", lambda _: False)
    one_code, prefixed = tiny(3, 50, CONTEXT, latent={"per": "sequence"}), tiny(0, random_prefix=1)
    for each, proposal, shares in (
        (model, None, [0, 1 / 16, 1 / 8, 1 / 4, 1 / 2]),
        (model, 0.7, [0.7]),
        (one_code, 0.7, [0]),
        (prefixed, None, [0]),
    ):
        calls.clear()
        settings = replace(SETTINGS, proposal=proposal)
        found = calibrated(each, shards, settings, SCORED, CPU)
        assert {call[2:4] for call in calls} == {(4, Purpose.CALIBRATION)}
        assert [call[1] for call in calls[: len(shares)]] == shares
        assert all(call[4] == {call[0]} for call in calls)
        assert found.proposal == shares[0]


@rejects("bounds.chosen: «calibration.particles→4»", "other particles than were picked")
def test_the_scored_bound_is_of_what_was_picked(shards, model, monkeypatch):
    """With noise and text of its own: the mean probability of filters, document by document."""
    picked = Calibration(64, 0.25, False, 0.1, 0.01, {}, {64: 5.0, 128: 4.9})
    monkeypatch.setattr(bounds, "calibrated", lambda *_: picked)
    settings = replace(SETTINGS, tokens=300)
    scores = score(model, shards, TextData(), settings, CPU)
    chunks = [*held_out(shards, CONTEXT, 300)]
    given = replace(settings, particles=64, proposal=0.25)
    rows = []
    monkeypatch.setattr(bounds, "packed", lambda *given: rows.append(given[2]) or packed(*given))
    filter_estimates(model, chunks, replace(given, particles=32), 2, Purpose.FILTER, CPU)
    filters = filter_estimates(model, chunks, given, 2, Purpose.FILTER, CPU)
    filter_estimates(model, chunks, replace(given, batch_tokens=1), 2, Purpose.FILTER, CPU)
    assert rows == [4, 2, 1]
    torch.testing.assert_close(scores.filtering.sum(), merged(filters).sum())
    evaluation, _ = results_of(scores, settings)
    bound = evaluation.bits_per_token.filtering
    units = scores.tokens.sum().item() * np.log(2)
    assert bound.half_variance == pytest.approx(filters.var(0).sum().item() / 4 / units)
    assert evaluation.calibration is picked and str(bound).endswith(" (not converged)")
    assert bound.converged is headline(evaluation)["converged"] is False


@rejects(
    "bounds.scored: merged(filters) «if calibrated→if not calibrated»", "bounds of other means"
)
@rejects("bounds.own_text_gap: «chosen(settings, calibration)→settings»", "a gap of other filters")
def test_the_gap_on_a_models_own_text_is_of_the_filters_that_score(shards, model, monkeypatch):
    told, filters = [], torch.tensor([[1.0], [2.0]]).double()

    def both(_, text, particles, count, draw, how):
        told.append((particles, how.proposal, len(text.tokens)))
        return torch.zeros(len(text.tokens)).double(), filters.expand(-1, len(text.tokens))

    monkeypatch.setattr(bounds, "both_bounds", both)
    settings = replace(SETTINGS, particles=8, proposal=0.5, own_text_rows=5)
    picked = Calibration(64, 0.25, True, 0.1, 0.01, {}, {})
    for calibration, nats in (picked, merged(filters).item()), (None, 1.5):
        gap = own_text_gap(model, shards, settings, calibration, CPU)
        assert gap.mean == pytest.approx(nats / CONTEXT / np.log(2)) and gap.se < 1e-12
    assert told == [(64, 0.25, 2), (64, 0.25, 2), (64, 0.25, 1), (8, 0.5, 4), (8, 0.5, 1)]
    one_code = tiny(3, 50, CONTEXT, latent={"per": "sequence"})
    for exact in (tiny(0, 50, CONTEXT), tiny(0, 50, CONTEXT, random_prefix=1), one_code):
        assert own_text_gap(exact, shards, settings, None, CPU) is None
    assert own_text_gap(model, shards, replace(settings, own_text_rows=0), None, CPU) is None


def test_auto_is_repeatable_and_picks_nothing_where_nothing_is_to_be_picked(shards, model):
    found = calibrated(model, shards, SETTINGS, SCORED, CPU)
    assert found == calibrated(model, shards, SETTINGS, SCORED, CPU)
    assert found.particles in (4, 8, 16) and found.shares
    baseline, enumerable = tiny(0, 50, CONTEXT), tiny(3, 50, CONTEXT, latent={"per": "sequence"})
    for other, settings in (
        (model, replace(SETTINGS, particles=8)),
        (baseline, SETTINGS),
        (enumerable, SETTINGS),
    ):
        assert calibrated(other, shards, settings, SCORED, CPU) is None


@pytest.fixture
def tried(monkeypatch):
    """The shares and the most affordable particles that calibrations are told."""
    told = []
    monkeypatch.setattr(bounds, "calibrate", lambda *given: told.append((given[4], given[5])))
    return told


@rejects(
    "EvaluationWork.affordable: most_particles(«allowed_passes, 1→1e9, 1»", "work without a limit"
)
def test_an_evaluation_does_no_more_work_than_its_allowance(shards, model, tried, capsys):
    """Else it does not compare proposals, or does with four particles what is left to do."""
    unlimited, settings = 512, replace(SETTINGS, max_particles=None)
    work = EvaluationWork(model.config, 0, 0, settings.filters, settings.iwae_samples)
    chunks = sum(map(len, training_chunks(shards, CONTEXT, SCORED)))
    counted = replace(work, scored_tokens=SCORED, calibration_tokens=chunks)
    for shares, particles in ((5, 32), (5, 4), (1, 8), (1, 4)):
        allowed = counted.passes(particles, shares)
        calibrated(model, shards, settings, SCORED, CPU, Allowance(work, allowed, 0.25))
        assert (len(tried[-1][0]), tried[-1][1]) == (shares, particles)
        assert shares == 5 or tried[-1][0] == (0.25,)
    assert not capsys.readouterr().err
    allowed = counted.passes(4, 1) / 2
    calibrated(model, shards, settings, SCORED, CPU, Allowance(work, allowed, 0.25))
    assert "does 2.0 times the work of the training" in capsys.readouterr().err
    calibrated(model, shards, SETTINGS, SCORED, CPU, Allowance(work, allowed, 0.25))
    calibrated(model, shards, settings, SCORED, CPU)
    assert [each for _, each in tried[-2:]] == [SETTINGS.max_particles, unlimited]


@arrives("evaluation", "tokens")
@pytest.mark.parametrize(
    ("asked", "trained", "scored"),
    [
        *(("auto", 1_024_000, 16_000), ("auto", 10_400, 4096), ("auto", 10**7, 65_536)),
        *((90, 1_024_000, 90), (None, 1_024_000, None)),
    ],
)
def test_auto_scores_a_share_of_what_was_trained_on_whatever_the_arm(asked, trained, scored):
    experiment = smoke()
    experiment.evaluation.tokens = asked
    for name in ("baseline", "free_k1"):
        experiment.runs[name].tokens = trained
        assert settled(RunSpec(experiment, name)).tokens == scored


@rejects("work.allowance: «/ len(spec.budgets)→»", "every budget may cost as much as all")
def test_models_of_several_budgets_share_what_their_training_cost():
    allowed = []
    assert evaluation_work(RunSpec(smoke(), "baseline"), SETTINGS).own_text_tokens == 0
    for budgets in ("[]", "[5200]"):
        spec = RunSpec(
            smoke(f"runs.free_k1.budgets={budgets}", "runs.free_k1.kappa_bits=2"), "free_k1"
        )
        allowed.append(allowance(spec, settled(spec)))
    assert [each.passes for each in allowed] == [3 * 10_400, 3 * 10_400 / 2]
    assert {(each.share, each.work.own_text_tokens) for each in allowed} == {(0.125, 24 * 65)}


def test_measurements_of_z_and_samples_are_work_too():
    """What is read and generated: of the target task groups and samples, of text the steering."""

    def counted(name, *overrides):
        spec = RunSpec(smoke(*(f"evaluation.{each}" for each in overrides)), name)
        work = evaluation_work(spec, settled(spec))
        return work.read_tokens, work.generated_tokens

    samples = 4 * 6 * 64  # prompts, draws, tokens
    assert counted("baseline") == (0, samples + 10 * 65)
    assert counted("free_k1") == (80 * 65 // 2, 7 * samples + 10 * 65 + (10 + 512) * 65)
    read, generated = counted("text_free_k1_2")
    assert (read, generated) == (2080 + 8 * 1040, 3 * 7 * 4 * 96 + 2 * 2 * 2 * 8)
    assert counted("text_free_k1_2", "steering_prompts=4")[1] == generated + 2 * 2 * 2 * 8
