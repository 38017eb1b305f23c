"""Smaller budgets of a run: snapshots of a cosine, or decays that branch off one trunk."""

import shutil
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from pipelines.artifacts.checkpoint import load_model, read_checkpoint
from pipelines.artifacts.paths import checkpoint_path
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.load import load_experiment
from pipelines.train.core import trainer as fit_module
from pipelines.train.core.checkpoint_callback import Checkpoints
from pipelines.train.core.manifest import make_manifest
from pipelines.train.core.segments import (
    budget_path,
    segments,
    steps_taken as planned_steps,
)
from tests.support.kills import killed
from tests.support.mutants import rejects
from tests.support.training import RUN, find, losses, resume, same, tracked_runs, train_run
from tests.support.workspace import enter

BATCH = 520  # tokens
BUDGETS = [10 * BATCH, 15 * BATCH + 519]  # not whole batches: 10 and 15 steps of 20
STEPS, DECAYS = 20, [2, 3, 4]  # a fifth of 10, 15, 20


def change(schedule="wsd", tokens=STEPS * BATCH, budgets=BUDGETS):
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["models"]["target_small"]["optim"]["schedule"] = schedule
    params["runs"][RUN] |= {"tokens": tokens, "budgets": budgets}
    Path("params.yaml").write_text(yaml.safe_dump(params))


def kept(tokens=None):
    return read_checkpoint(checkpoint_path("smoke", RUN, tokens))[0]["state_dict"]


def published():
    return {tokens: kept(tokens) for tokens in (*BUDGETS, None)}


def same_everywhere(found, expected):
    return found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in found)


@pytest.fixture(scope="module")
def alone(tokenized, tmp_path_factory):
    """Weights and curves of runs of their own under wsd, each from nothing to one budget."""
    outcomes = {}
    for tokens in (*BUDGETS, None):
        with pytest.MonkeyPatch.context() as patch:
            enter(tokenized, tmp_path_factory.mktemp("alone"), patch)
            change(tokens=tokens or STEPS * BATCH, budgets=[])
            outcomes[tokens] = train_run()
    return SimpleNamespace(
        weights={tokens: weights for tokens, (weights, _) in outcomes.items()},
        rows=outcomes[None][1],
    )


@pytest.fixture(scope="module")
def with_budgets(tokenized, tmp_path_factory):
    """By schedule: a folder in which the run was trained with a checkpoint every step, its curve,
    its weights at each budget, those that it had after each step, the steps, and what it said.
    """
    made, seen, taken, inherited = {}, {}, [], Checkpoints.on_step

    def look(self, trainer):
        inherited(self, trainer)
        taken.append(self.step)
        state = trainer.strategy.lightning_module_state_dict()
        seen[self.step] = {key: value.clone() for key, value in state.items()}

    for schedule in ("wsd", "cosine"):
        with pytest.MonkeyPatch.context() as patch, redirect_stderr(StringIO()) as said:
            folder = enter(tokenized, tmp_path_factory.mktemp(schedule), patch)
            change(schedule)
            patch.setattr(fit_module, "CHECKPOINT_SECONDS", 0.0)
            patch.setattr(Checkpoints, "on_step", look)
            _, rows = train_run()
            made[schedule] = SimpleNamespace(
                folder=folder, rows=rows, weights=published(), said=said
            )
            made[schedule].steps, made[schedule].taken = dict(seen), [*taken]
        seen.clear()
        taken.clear()
    return made


@pytest.fixture
def copy(with_budgets, tmp_path, monkeypatch):
    def enter_copy(schedule):
        shutil.copytree(with_budgets[schedule].folder, tmp_path / "copy", symlinks=True)
        monkeypatch.chdir(tmp_path / "copy")
        return with_budgets[schedule]

    return enter_copy


@rejects("SegmentTraining.build_module: «self.segment→spec»", "decays on the run's schedule")
@rejects(
    "segments.segments: «decay_start(optim.decay,→»budget.steps«)→-1»", "a trunk after a decay"
)
def test_budgets_off_a_trunk_are_runs_of_their_own_bit_for_bit_at_the_cost_of_the_decays(
    with_budgets, alone, monkeypatch
):
    wsd = with_budgets["wsd"]
    assert same_everywhere(wsd.weights, alone.weights)
    assert wsd.taken == [*range(1, 11), *range(9, 16), *range(13, 21)]
    monkeypatch.chdir(wsd.folder)
    planned = planned_steps(segments(RunSpec(load_experiment(), RUN)))
    assert len(wsd.taken) == planned == STEPS - DECAYS[-1] + sum(DECAYS)


def test_segments_are_the_curve_of_the_run_without_smaller_budgets_each_step_once(
    with_budgets, alone, monkeypatch
):
    assert losses(with_budgets["wsd"].rows) == losses(alone.rows)
    monkeypatch.chdir(with_budgets["wsd"].folder)
    client, (run,) = tracked_runs()
    points = client.get_metric_history(run.info.run_id, "curve/ce_nats")
    rows = [(int(row["step"]), float(row["ce_nats"])) for row in alone.rows]
    assert [(point.step, point.value) for point in points] == rows


def test_the_cosine_keeps_a_snapshot_at_each_budget_of_the_run_that_has_none(trained, with_budgets):
    """Whose schedule is the cosine, too."""
    cosine = with_budgets["cosine"]
    assert same(cosine.weights[None], trained.weights)
    assert losses(cosine.rows) == losses(trained.rows)
    assert [*cosine.steps] == [*range(1, STEPS + 1)]
    for tokens, step in zip(BUDGETS, (10, 15), strict=True):
        assert same(cosine.weights[tokens], cosine.steps[step])


@pytest.mark.parametrize("schedule", ["wsd", "cosine"])
def test_of_a_smaller_budget_weights_and_manifest_alone_are_kept(
    with_budgets, monkeypatch, schedule
):
    """And of the run's other checkpoints the newest two, until it is evaluated."""
    monkeypatch.chdir(with_budgets[schedule].folder)
    content, manifest = read_checkpoint(checkpoint_path("smoke", RUN, BUDGETS[0]))
    assert content.keys() == {"state_dict", "free_transformer"}
    assert manifest.spec_hash == read_checkpoint(checkpoint_path("smoke", RUN))[1].spec_hash
    model, _ = load_model(checkpoint_path("smoke", RUN, BUDGETS[0]))
    assert same({f"model.{k}": v for k, v in model.state_dict().items()}, kept(BUDGETS[0]))
    names = {path.name for path in checkpoint_path("smoke", RUN).parent.iterdir()}
    assert names == {
        "config.yaml",
        "tracking.jsonl",
        "last.ckpt",
        *(f"{tokens}.ckpt" for tokens in BUDGETS),
    }
    left = {str(path.relative_to(resume())) for path in resume().rglob("*") if path.is_file()}
    assert left == {
        *("00000019.ckpt", "00000020.ckpt", "tracking.jsonl"),
        *(f"budgets/{tokens}.ckpt" for tokens in BUDGETS),
    }


def test_the_progress_line_names_the_budget(with_budgets):
    said = with_budgets["wsd"].said.getvalue()
    for tokens in (*BUDGETS, STEPS * BATCH):
        assert f"{RUN} to {tokens:,} tokens: 100%" in said
    assert f"{RUN} to {BUDGETS[1]:,} tokens: going on from step 8" in said


def test_no_row_of_the_curve_is_of_the_trunk_and_of_a_decay(workspace, monkeypatch):
    monkeypatch.setattr(fit_module, "ROWS", 3)  # of 7 steps, were there no decays
    change()
    watched = []
    spec = RunSpec(load_experiment(), RUN)
    manifest = make_manifest(spec, spec.shards())
    fit_module.fit(spec, manifest, watch=watched.append)
    assert [row["step"] for row in watched] == [7, 8, 12, 14, 20]
    _, rows = train_run()
    assert [int(row["step"]) for row in rows] == [7, 8, 12, 14, 20]


@pytest.mark.parametrize("schedule", ["wsd", "cosine"])
def test_a_kept_budget_that_is_damaged_is_trained_for_again_and_nothing_else_lost(
    copy, every_step, capsys, steps_taken, schedule
):
    expected = copy(schedule).weights
    budget_path(resume(), BUDGETS[0]).write_bytes(b"no checkpoint")
    newest = (resume() / "00000020.ckpt").stat()
    train_run()
    assert "its budget is trained for again" in capsys.readouterr().out
    assert same_everywhere(published(), expected)
    if schedule == "wsd":  # from nothing, as its part of the trunk is gone
        assert steps_taken == list(range(1, 11))
        assert (resume() / "00000020.ckpt").stat().st_mtime_ns == newest.st_mtime_ns


@rejects(
    "segments.find_start: «→0 and »newest_checkpoint(decay", "a decay begun again", case="a decay"
)
@pytest.mark.parametrize(
    ("step", "segment", "damaged", "goes_on", "start"),
    [
        (9, 15, f"budgets/{BUDGETS[0]}.ckpt", 10, "00000008.ckpt"),
        (10, 10, "00000008.ckpt", 15, "00000007.ckpt"),
        (14, 15, f"decay-{BUDGETS[1]}/00000014.ckpt", 15, f"decay-{BUDGETS[1]}/00000013.ckpt"),
    ],
    ids=["a budget", "the end of the trunk", "a decay"],
)
def test_what_is_damaged_costs_only_the_steps_since_the_checkpoint_before(
    workspace, alone, steps_taken, step, segment, damaged, goes_on, start
):
    """And the trunk just past a lost budget's decay is not gone on from."""
    change()
    with killed(step, segment=segment):
        train_run()
    (resume() / damaged).write_bytes(b"no checkpoint")
    found = find()
    assert (found.segment.steps, found.checkpoint) == (goes_on, resume() / start)
    steps_taken.clear()
    train_run()
    assert steps_taken[0] == int(Path(start).stem) + 1
    assert same_everywhere(published(), alone.weights)
