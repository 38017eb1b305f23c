"""The slice of kappa_124m: it stops in time, and goes on as if it had not stopped."""

import pytest

from perf.gpu import training_slice
from pipelines import ROOT
from pipelines.commands import doctor
from pipelines.config import derived
from pipelines.config.load import parse
from pipelines.host.errors import UserError
from tests.support.mutants import rejects


@pytest.fixture
def project(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(training_slice, "MIN_TRAINING_SECONDS", -1e9)


@pytest.mark.parametrize("online", [True, False])
def test_both_arms_are_those_of_the_experiment(project, monkeypatch, online):
    state = doctor.OK if online else doctor.COSTS
    monkeypatch.setattr(doctor, "hub", lambda: doctor.Finding("hub", "", state))
    experiment = parse(training_slice.composed(quick=False), "conf/")
    assert list(experiment.runs) == list(training_slice.ARMS.values())
    baseline, free = experiment.runs.values()
    assert (baseline.kappa_bits, free.kappa_bits) == (None, 0.5)
    assert baseline.tokens == free.tokens == 625_000_000 and not baseline.budgets
    config = derived.model_config(experiment, free)
    assert (config.n_layers, config.d_model, config.context) == (12, 768, 1024)
    assert experiment.compute.precision.value == "bf16" and experiment.compute.compile
    data = experiment.data["fineweb_edu"]
    assert list(data.parts) == ["fineweb_edu" if online else "stdlib"]
    assert (data.max_bytes <= 200_000_000) == online


def by_name(found):
    return {each.name: each for each in found}


@rejects(
    "StopAfter.on_step: «on_step(self, trainer: L.Trainer) -> None: trainer.should_stop "
    "|=→on_train_batch_end(self, trainer, *_) -> None:\n        trainer.should_stop |= "
    "trainer.global_step > 0 and»",
    "a GPU's slice that stops between the micro-batches of a step",
)
@pytest.mark.slow
def test_an_arm_that_was_stopped_goes_on_as_if_it_had_not_been(project, tmp_path, monkeypatch):
    def measure(folder, arm=None, seconds=1e6):
        monkeypatch.setattr(training_slice.signal, "getitimer", lambda _: (seconds, 0))
        return training_slice.measure(1, True, "cpu", str(tmp_path / folder), arm)

    def rows(folder):
        monkeypatch.chdir(tmp_path / folder)
        experiment = training_slice.load_experiment()
        return training_slice.curve(training_slice.RunSpec(experiment, "free_k1_2_s0"))

    with pytest.raises(UserError, match="no text"):
        measure("stopped", "free")
    for folder in ("stopped", "whole"):
        assert by_name(measure(folder))["tokens of text"].median > 1000
    whole = by_name(measure("whole", "free"))
    for steps in (1, 2, 3):
        found = by_name(measure("stopped", "free", seconds=-1e6))
        assert found["free: seen"].median == steps * 4 * 64
    monkeypatch.setattr(training_slice, "MINUTES", 0.0)  # all that it may train for is over
    monkeypatch.setattr(training_slice, "MIN_TRAINING_SECONDS", 1e-9)
    assert by_name(measure("stopped", "free"))["free: seen"].median == 3 * 4 * 64
    monkeypatch.undo()
    found = by_name(measure("stopped", "free"))
    assert found["free: seen"].median == whole["free: seen"].median == 20 * 4 * 64
    both = [(row.step, row.ce_nats, row.kl_bits) for row in rows("stopped")]
    assert both == [(row.step, row.ce_nats, row.kl_bits) for row in rows("whole")]

    found = by_name(measure("whole", "baseline"))
    assert "bound at 5,120 tokens, free − baseline" in found
    assert "baseline: KL, last row" not in found
