"""Smaller budgets of a run: snapshots of a cosine, or decays that branch off one trunk."""

from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from pipelines.artifacts.checkpoint import read_checkpoint
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.load import load_experiment
from pipelines.host.files import checkpoint_path
from pipelines.train.core.module import TrainingModule
from pipelines.train.core.segments import segments, steps_taken as planned_steps
from tests.support.kills import at_step, killed
from tests.support.mutants import rejects
from tests.support.training import RUN, losses, same, tracked_runs, train_run
from tests.support.workspace import enter

BATCH = 520  # tokens
BUDGETS = [10 * BATCH, 15 * BATCH + 519]  # not whole batches: 10 and 15 steps of 20
STEPS, DECAYS = 20, [2, 3, 4]  # a fifth of 10, 15, 20


def change(schedule="wsd", tokens=STEPS * BATCH, budgets=BUDGETS):
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["models"]["target_small"]["optim"]["schedule"] = schedule
    params["runs"][RUN] |= {"tokens": tokens, "budgets": budgets}
    Path("params.yaml").write_text(yaml.safe_dump(params))


def published():
    """The weights of each budget."""
    paths = {tokens: checkpoint_path("smoke", RUN, tokens) for tokens in (*BUDGETS, None)}
    return {tokens: read_checkpoint(path)[0]["state_dict"] for tokens, path in paths.items()}


@pytest.fixture
def alone(tokenized, tmp_path_factory):
    """Weights and the longest curve of runs of their own under wsd, each from nothing to one
    budget.
    """
    weights = {}
    for tokens in (*BUDGETS, None):
        with pytest.MonkeyPatch.context() as patch:
            enter(tokenized, tmp_path_factory.mktemp("alone"), patch)
            change(tokens=tokens or STEPS * BATCH, budgets=[])
            weights[tokens], rows = train_run()
    return SimpleNamespace(weights=weights, rows=rows)


@pytest.fixture
def steps_taken(monkeypatch):
    """The optimizer steps taken, by number, from 1."""
    taken = []
    inherited = TrainingModule.configure_gradient_clipping

    def note(self, *arguments, **options):
        taken.append(self.global_step + 1)
        inherited(self, *arguments, **options)

    monkeypatch.setattr(TrainingModule, "configure_gradient_clipping", note)
    return taken


@rejects("SegmentTraining.build_module: «self.segment→spec»", "decays on the run's schedule")
@rejects(
    "segments.segments: «decay_start(optim.decay,→»budget.steps«)→-1»", "a trunk after a decay"
)
def test_budgets_off_a_trunk_are_runs_of_their_own_bit_for_bit_at_the_cost_of_the_decays(
    alone, workspace, steps_taken
):
    """Through a kill in a decay; the curve is that of a run without smaller budgets."""
    change()
    with killed(14, segment=15):
        train_run()
    _, rows = train_run()
    weights = published()
    assert all(same(weights[tokens], alone.weights[tokens]) for tokens in (*BUDGETS, None))
    assert steps_taken == [*range(1, 11), *range(9, 16), *range(13, 21)]
    planned = planned_steps(segments(RunSpec(load_experiment(), RUN)))
    assert len(steps_taken) == planned == STEPS - DECAYS[-1] + sum(DECAYS)
    assert losses(rows) == losses(alone.rows)
    client, (run,) = tracked_runs()
    points = client.get_metric_history(run.info.run_id, "curve/ce_nats")
    found = [(point.step, point.value) for point in points]
    assert found == [(int(row["step"]), float(row["ce_nats"])) for row in alone.rows]


def test_the_cosine_keeps_a_snapshot_at_each_budget_of_the_run_that_has_none(
    workspace, trained, monkeypatch
):
    """Whose schedule is the cosine, too."""
    seen = []

    def look(_, trainer):
        seen.append(deepcopy(trainer.lightning_module.state_dict()))

    for step in (10, 15):
        at_step(monkeypatch, step, look)
    change("cosine")
    weights, rows = train_run()
    assert same(weights, trained.weights)
    assert losses(rows) == losses(trained.rows)
    kept = published()
    assert all(same(kept[tokens], state) for tokens, state in zip(BUDGETS, seen, strict=True))
