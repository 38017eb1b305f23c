"""Smaller budgets of a run: snapshots of a cosine, or decays that branch off one trunk."""

import shutil
from pathlib import Path

import pytest
import torch
import yaml

from pipelines.artifacts.checkpoint import load_model, read_checkpoint
from pipelines.artifacts.paths import checkpoint_path, resume_folder
from pipelines.config.derived import Budget
from pipelines.config.load import load_experiment
from pipelines.train.core import trainer as fit_module
from pipelines.train.core.checkpoint_callback import Checkpoints
from pipelines.train.core.module import TrainingModule
from pipelines.train.core.segments import (
    Segment,
    budget_path,
    find_start,
    newest_checkpoint,
    segments,
)
from pipelines.train.core.segments import steps_taken as planned_steps
from pipelines.train.progress import Progress
from tests.support.training import RUN, losses, same, tracked_runs, train_run

BATCH = 520  # tokens
BUDGETS = [10 * BATCH, 15 * BATCH + 519]  # not whole batches: 10 and 15 steps of 20
STEPS, DECAYS = 20, [2, 3, 4]  # a fifth of 10, 15, 20
ROOT = resume_folder("smoke", RUN)


def change(schedule="wsd", tokens=STEPS * BATCH, budgets=BUDGETS):
    """Change the run in params.yaml."""
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


@pytest.fixture
def every_step(monkeypatch):
    """A checkpoint every step."""
    monkeypatch.setattr(fit_module, "CHECKPOINT_SECONDS", 0.0)


@pytest.fixture(scope="module")
def alone(tokenized, tmp_path_factory):
    """Weights of runs of their own under wsd, each from nothing to one budget."""
    from tests.support.workspace import enter

    weights = {}
    for tokens in (*BUDGETS, None):
        with pytest.MonkeyPatch.context() as patch:
            enter(tokenized, tmp_path_factory.mktemp("alone"), patch)
            change(tokens=tokens or STEPS * BATCH, budgets=[])
            weights[tokens] = train_run()[0]
    return weights


def test_budgets_are_listed_in_order_with_whole_batches_and_whether_they_are_annealed(workspace):
    for schedule, annealed in (("wsd", True), ("cosine", False)):
        change(schedule)
        experiment = load_experiment()
        assert experiment.budgets(experiment.runs[RUN]) == [
            Budget(BUDGETS[0], 10, annealed),
            Budget(BUDGETS[1], 15, annealed),
            Budget(STEPS * BATCH, 20, True),
        ]


def test_budgets_off_a_trunk_are_runs_of_their_own_bit_for_bit_at_the_cost_of_the_decays(
    workspace, alone, steps_taken
):
    change()
    train_run()
    assert same_everywhere(published(), alone)
    trunk = STEPS - DECAYS[-1]
    experiment = load_experiment()
    planned = planned_steps(segments(experiment, experiment.runs[RUN]))
    assert len(steps_taken) == planned == trunk + sum(DECAYS)
    assert steps_taken == [*range(1, 11), *range(9, 16), *range(13, 21)]


FROM_DECAY, ONE_SCHEDULE = "from the end of the decay before", "on the schedule of the whole run"


@pytest.mark.parametrize(
    ("wrong", "right"), [(FROM_DECAY, {BUDGETS[0]}), (ONE_SCHEDULE, {None})], ids=lambda w: str(w)
)
def test_a_wrong_branch_is_noticed(workspace, alone, monkeypatch, wrong, right):
    """Only the first budget, or only the last, is then that of a run of its own."""
    change()
    if wrong == ONE_SCHEDULE:
        inherited = TrainingModule.__init__
        monkeypatch.setattr(
            TrainingModule,
            "__init__",
            lambda self, *rest, **options: inherited(self, *rest[:-1], STEPS, **options),
        )
    else:
        monkeypatch.setattr(Segment, "folder", lambda segment, root, step: root)
        monkeypatch.setattr(Segment, "last", property(lambda segment: segment.steps == STEPS))
        monkeypatch.setattr("pipelines.train.core.segments.remove", lambda path: None)
        monkeypatch.setattr(
            "pipelines.train.core.segments.newest_checkpoint",
            lambda folder, manifest, until: newest_checkpoint(folder, manifest),
        )
        monkeypatch.setattr(fit_module, "CHECKPOINT_SECONDS", 0.0)
    train_run()
    found = published()
    assert {tokens for tokens in found if same(found[tokens], alone[tokens])} == right


def test_the_cosine_keeps_a_snapshot_at_each_budget_of_the_run_that_has_none(
    workspace, every_step, steps_taken
):
    change("cosine", budgets=[])
    on_the_way = {}
    inherited = Checkpoints.on_step

    def look(self, trainer):
        inherited(self, trainer)
        state = trainer.strategy.lightning_module_state_dict()
        on_the_way[self.step] = {key: value.clone() for key, value in state.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "on_step", look)
        last, rows = train_run()
    change("cosine")
    shutil.rmtree("resume")
    steps_taken.clear()
    again, rows_again = train_run()
    assert same(again, last) and losses(rows_again) == losses(rows)
    assert same(kept(BUDGETS[0]), on_the_way[10])
    assert same(kept(BUDGETS[1]), on_the_way[15])
    assert steps_taken == list(range(1, STEPS + 1))


@pytest.mark.parametrize("schedule", ["wsd", "cosine"])
def test_of_a_smaller_budget_weights_and_manifest_alone_are_kept(workspace, schedule):
    change(schedule)
    train_run()
    content, manifest = read_checkpoint(checkpoint_path("smoke", RUN, BUDGETS[0]))
    assert content.keys() == {"state_dict", "free_transformer"}
    assert manifest.spec_hash == read_checkpoint(checkpoint_path("smoke", RUN))[1].spec_hash
    model, _ = load_model(checkpoint_path("smoke", RUN, BUDGETS[0]))
    assert same({f"model.{k}": v for k, v in model.state_dict().items()}, kept(BUDGETS[0]))
    names = {path.name for path in checkpoint_path("smoke", RUN).parent.iterdir()}
    assert names == {"config.yaml", "last.ckpt", *(f"{tokens}.ckpt" for tokens in BUDGETS)}


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["wsd", "cosine"])
@pytest.mark.parametrize("life", [1, 3, 4])
def test_a_run_that_dies_again_and_again_loses_and_repeats_nothing(
    workspace, every_step, monkeypatch, steps_taken, schedule, life
):
    """After each ``life`` steps, before its checkpoint is written; with life 1, after it."""
    change(schedule)
    expected = train_run()
    weights = published()
    needed = len(steps_taken)
    shutil.rmtree("resume")
    runs_before = {run.info.run_id for run in tracked_runs()[1]}

    def die(self, trainer):
        lived.append(self.step)
        if life == 1:
            inherited(self, trainer)
        if len(lived) == life:
            raise RuntimeError("killed")
        if life > 1:
            inherited(self, trainer)

    inherited = Checkpoints.on_step
    steps_taken.clear()
    deaths = 0
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_step", die)
        while True:
            lived = []
            try:
                again = train_run()
                break
            except RuntimeError as error:
                assert "killed" in str(error)
                deaths += 1
            assert len(list(ROOT.glob("*.ckpt"))) <= 2
            assert len(list(ROOT.glob("decay-*"))) <= 1
    assert deaths >= needed // life
    assert len(steps_taken) == needed + (deaths if life > 1 else 0)
    assert same_everywhere(published(), weights)
    assert same(again[0], expected[0]) and losses(again[1]) == losses(expected[1])
    client, runs = tracked_runs()
    (run,) = [run for run in runs if run.info.run_id not in runs_before]
    history = client.get_metric_history(run.info.run_id, "train/ce_nats")
    assert [point.step for point in history] == list(range(1, STEPS + 1))
    assert run.info.status == "FINISHED"


def test_segments_are_the_curve_of_the_run_without_smaller_budgets_each_step_once(workspace):
    change(budgets=[])
    _, rows = train_run()
    (run,) = tracked_runs()[1]
    shutil.rmtree("resume")
    change()
    _, with_budgets = train_run()
    assert losses(with_budgets) == losses(rows)
    client, runs = tracked_runs()
    assert len(runs) == 2
    (other,) = [r for r in runs if r.info.run_id != run.info.run_id]
    first, second = (
        [(p.step, p.value) for p in client.get_metric_history(r.info.run_id, "train/ce_nats")]
        for r in (run, other)
    )
    assert first == second


def test_no_row_of_the_curve_is_of_the_trunk_and_of_a_decay(workspace, monkeypatch):
    monkeypatch.setattr(fit_module, "ROWS", 3)  # of 7 steps, were there no decays
    change()
    _, rows = train_run()
    assert [int(row["step"]) for row in rows] == [7, 8, 12, 14, 20]
    watched = []
    shutil.rmtree("resume")
    fit_module.fit(load_experiment(), RUN, fit_module.Process(), watch=watched.append)
    assert [row["step"] for row in watched] == [7, 8, 12, 14, 20]


def test_what_a_segment_leaves_behind_goes_with_the_next(workspace, every_step):
    change()
    train_run()
    left = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()}
    assert left == {
        *("00000019.ckpt", "00000020.ckpt"),
        *(f"budgets/{tokens}.ckpt" for tokens in BUDGETS),
    }


def test_the_progress_line_names_the_budget(workspace, capsys):
    change()
    train_run()
    said = capsys.readouterr().err
    for tokens in (*BUDGETS, STEPS * BATCH):
        assert f"{RUN} to {tokens:,} tokens: 100%" in said
    assert f"{RUN} to {BUDGETS[1]:,} tokens: going on from step 8" in said


@pytest.mark.parametrize("schedule", ["wsd", "cosine"])
def test_a_kept_budget_that_is_damaged_is_trained_for_again_and_nothing_else_lost(
    workspace, every_step, monkeypatch, capsys, steps_taken, schedule
):
    change(schedule)
    expected, _ = train_run()
    weights = published()
    path = budget_path(ROOT, BUDGETS[0])
    path.write_bytes(b"no checkpoint")
    newest = (ROOT / "00000020.ckpt").stat()
    steps_taken.clear()
    again, _ = train_run()
    assert "its budget is trained for again" in capsys.readouterr().out
    assert same(again, expected) and same_everywhere(published(), weights)
    if schedule == "wsd":  # from nothing, as its part of the trunk is gone
        assert steps_taken == list(range(1, 11))
        assert (ROOT / "00000020.ckpt").stat().st_mtime_ns == newest.st_mtime_ns


@pytest.mark.parametrize(
    ("segment", "step", "found"),
    [(15, 9, 8), (20, 20, None)],
    ids=["the trunk just past its decay's start", "all trained"],
)
def test_what_lies_past_a_lost_budget_is_neither_gone_on_from_nor_in_the_way(
    workspace, every_step, monkeypatch, alone, segment, step, found
):
    def die(segment, step):
        def on_step(self, trainer):
            inherited(self, trainer)
            if (trainer.max_steps, trainer.global_step) == (segment, step):
                raise RuntimeError("killed")

        monkeypatch.setattr(Checkpoints, "on_step", on_step)
        with pytest.raises(RuntimeError, match="killed"):
            train_run()

    inherited = Checkpoints.on_step
    change()
    die(segment, step)
    budget_path(ROOT, BUDGETS[0]).unlink()
    start = find_start(load_experiment(), RUN)
    assert start.segment.steps == 10
    assert start.checkpoint == (ROOT / f"{found:08d}.ckpt" if found else None)
    if not found:
        die(10, 5)
        assert find_start(load_experiment(), RUN).checkpoint == ROOT / "00000005.ckpt"
    monkeypatch.setattr(Checkpoints, "on_step", inherited)
    train_run()
    assert same_everywhere(published(), alone)


def test_a_damaged_end_of_the_trunk_costs_only_the_steps_since_the_checkpoint_before(
    workspace, every_step, monkeypatch, alone, steps_taken
):
    change()
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "on_train_end", interrupt)
        with pytest.raises(RuntimeError, match="interrupted"):
            train_run()
    (ROOT / "00000008.ckpt").write_bytes(b"no checkpoint")
    assert find_start(load_experiment(), RUN).checkpoint == ROOT / "00000007.ckpt"
    steps_taken.clear()
    train_run()
    assert steps_taken[0] == 8
    assert same_everywhere(published(), alone)


def interrupt(*_):
    raise RuntimeError("interrupted")


def test_segments_without_budgets_or_with_a_cosine_are_one(workspace):
    for schedule, budgets in (("wsd", []), ("cosine", []), ("cosine", BUDGETS)):
        change(schedule, budgets=budgets)
        experiment = load_experiment()
        (segment,) = segments(experiment, experiment.runs[RUN])
        assert segment.last and segment.steps == STEPS
        assert segment.keep == ({10: BUDGETS[0], 15: BUDGETS[1]} if budgets else {})


def test_weights_of_a_model_in_parts_are_put_together_when_they_are_published(workspace):
    """As workers that share a model out write them: see sharding.py."""
    change("cosine")
    train_run()
    whole = kept(BUDGETS[0])
    path = budget_path(ROOT, BUDGETS[0])
    content, _ = read_checkpoint(path)
    path.unlink()
    path.mkdir()
    for i in range(2):
        state = {
            key: {"part": value.tensor_split(2)[i]} for key, value in content["state_dict"].items()
        }
        torch.save({**content, "state_dict": state}, path / f"worker-{i:05d}-of-00002.ckpt")
    train_run()
    assert checkpoint_path("smoke", RUN, BUDGETS[0]).is_file()
    assert same(kept(BUDGETS[0]), whole)
