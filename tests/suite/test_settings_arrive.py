"""Settings of the suite reach the adapter, the harness and the results."""

import random
from dataclasses import asdict
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from pipelines.artifacts.result_files import Unfinished
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.suite_results import TaskResult
from pipelines.config.schema import Scoring
from pipelines.suite import stage, tasks
from pipelines.suite.lm import FreeTransformerLM
from pipelines.suite.pass_at_k import SampledOutcome
from pipelines.suite.tasks import Outcome
from tests.support.arrivals import arrives
from tests.support.benchmark_models import settings
from tests.support.settings import composed_by_hydra

RUN = "text_free_k1_2"


@arrives("suite", "batch_tokens samples")
@pytest.mark.parametrize(
    ("device", "batch", "scored", "continued"),
    [
        ("cpu", 10, 10, 10), ("cpu", 3000, 2048, 3000), ("cpu", 5000, 2048, 4096),
        ("meta", 20_000, 20_000, 20_000),
    ],
)  # fmt: skip
def test_a_batch_has_the_tokens_of_the_settings_and_on_a_cpu_no_more_than_its_caches_hold(
    make_model, device, batch, scored, continued
):
    suite = settings(batch_tokens=batch, samples=5)
    lm = FreeTransformerLM(make_model(), Mock(), torch.device(device), suite)
    assert (lm.scored_tokens, lm.continued_tokens, lm.samples) == (scored, continued, 5)


@arrives("suite", "scoring samples")
@pytest.mark.parametrize(
    ("latent_bits", "scoring", "samples"),
    [(0, "marginal", 1), (1, "marginal", 5), (1, "posterior_prompt", 1)],
)
def test_z_is_averaged_over_where_there_is_one_and_it_is_asked_for(
    make_model, latent_bits, scoring, samples
):
    suite = settings(samples=5, scoring=Scoring(scoring))
    model = make_model(latent_bits=latent_bits)
    assert FreeTransformerLM(model, Mock(), torch.device("cpu"), suite).samples == samples


@arrives("suite", "limit seed")
def test_the_harness_is_told_the_limit_and_begins_with_the_seed(monkeypatch):
    def evaluate(lm, loaded, *, limit, bootstrap_iters, **_):
        assert bootstrap_iters == 1000
        return limit, random.random(), np.random.rand(), torch.rand(()).item()

    monkeypatch.setattr(tasks, "evaluate", evaluate)
    monkeypatch.setattr(tasks, "perf_counter", iter([10.0, 12.5]).__next__)
    random.seed(5)
    numbers = np.random.RandomState(5).rand(), torch.Generator().manual_seed(5)
    expected = random.random(), numbers[0], torch.rand((), generator=numbers[1]).item()
    told, seconds = tasks.run(Mock(), {}, settings(limit=7, seed=5))
    assert told == (7, *expected) and seconds == 2.5


@arrives("suite", "name scoring limit seed")
def test_results_say_what_they_were_scored_with(monkeypatch):
    suite = "suite.name=ours suite.scoring=posterior_prompt suite.limit=7 suite.seed=5"
    spec = RunSpec(composed_by_hydra("experiment=smoke", *suite.split()), RUN)
    final = SimpleNamespace(results=dict, skipped={}, manifest=Mock(), samples=1)
    found = stage.suite_results(spec, [final])
    assert (found.suite, found.scoring, found.limit, found.seed) == (
        "ours",
        "posterior_prompt",
        7,
        5,
    )
    assert found.settings == asdict(spec.experiment.suite)


@arrives("pass_at_k", "samples tasks")
@pytest.mark.parametrize(("samples", "sampled"), [(3, ["idioms"]), (0, [])])
def test_tasks_that_are_named_are_answered_several_times_and_with_no_samples_none(
    monkeypatch, tmp_path, samples, sampled
):
    """Each task is run with its own entry of the suite."""
    asked = f"suite.pass_at_k={{samples: {samples}, k: [1], tasks: [idioms]}}"
    spec, made, ran = RunSpec(composed_by_hydra("experiment=smoke", asked), RUN), [], []
    outcome = Outcome(TaskResult(0.5, None, "acc"), None, [], {})
    monkeypatch.setattr(stage, "run_task", lambda *told: ran.append(told[1:]) or outcome)
    monkeypatch.setattr(stage, "sample_answers", lambda *told: made.append(told[2]))
    monkeypatch.setattr(stage, "load_trained", Mock(return_value=(Mock(), Mock(), Mock())))
    for name in ("FreeTransformerLM", "decisive"):
        monkeypatch.setattr(stage, name, Mock(return_value="decisive"))
    monkeypatch.setattr(stage.FreeTransformerLM, "return_value", Mock(samples=1))
    stage.score_checkpoint(spec, spec.budgets[-1], Unfinished(tmp_path))
    suite = spec.experiment.suite
    assert ran == [(name, task, suite) for name, task in suite.tasks.items()] and made == sampled


@pytest.mark.parametrize(
    ("source", "ways"), [(None, ["tokens_0.8"]), (1, ["z", "tokens_0.8", "z_and_tokens_0.8"])]
)
def test_answers_of_a_model_are_drawn_in_all_ways_that_it_has(source, ways):
    made = []

    def outcome(name, spec, kind, make):
        made.append((name, *make.args))
        return SampledOutcome(Mock(figures=dict), {}, [])

    suite = composed_by_hydra("experiment=smoke").suite
    lm = Mock(model=Mock(noise_source=source))
    stage.sample_answers(lm, RUN, "idioms", suite, Mock(outcome=outcome))
    assert [name for name, *_ in made] == [f"idioms.{way}" for way in ways]
    assert [told[-1].name for told in made] == ways
    assert all(told[1:5] == (lm, "idioms", suite.tasks["idioms"], suite) for told in made)
