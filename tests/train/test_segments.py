"""The segments of a run, and the checkpoint that it goes on from."""

from dataclasses import replace

import pytest
import torch

from pipelines.artifacts.checkpoint import ENTRY, Manifest, Preregistration
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.derived import Budget
from pipelines.config.schema import Schedule
from pipelines.train.core.segments import find_start, row_ends, segments, steps_taken
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.settings import smoke
from tests.support.training import RUN

BATCH = 520  # tokens
SMALL, MIDDLE, WHOLE = 10 * BATCH, 15 * BATCH + 519, 20 * BATCH  # the second ends within a batch
OURS = Manifest("smoke", RUN, {}, {}, 11, "data", spec_hash="ours", parts={"code": "a", "data": ""})
THEIRS = replace(OURS, spec_hash="theirs", git_revision="1234", parts={"code": "b", "data": ""})


def make_spec(schedule="wsd", budgets=(SMALL, MIDDLE), decay=0.2):
    """Under wsd the last fifth of each budget's steps are its decay."""
    spec = RunSpec(smoke(f"runs.{RUN}.tokens={WHOLE}", f"runs.{RUN}.budgets={[*budgets]}"), RUN)
    spec.optim.schedule, spec.optim.decay = Schedule(schedule), decay
    return spec


@pytest.fixture
def find(tmp_path, monkeypatch):
    """What a run goes on from if there are these checkpoints, and its folder's content then."""
    monkeypatch.chdir(tmp_path)

    def found(schedule, *names, manifest=OURS):
        for name in names:
            path = manifest.resume / f"{name}.ckpt"
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save({ENTRY: manifest.entry}, path)
        start = find_start(make_spec(schedule), replace(OURS))
        path = start.checkpoint and start.checkpoint.relative_to(OURS.resume).with_suffix("")
        return start.segment.steps, path and str(path), start.step

    return found


@pytest.mark.parametrize(
    ("schedule", "budgets"), [("wsd", ()), ("cosine", ()), ("cosine", (SMALL, MIDDLE))]
)
def test_without_smaller_budgets_or_under_a_cosine_there_is_one_segment(schedule, budgets):
    (segment,) = every = segments(make_spec(schedule, budgets))
    assert segment.last and segment.steps == 20 and steps_taken(every) == 20
    assert segment.keep == ({10: SMALL, 15: MIDDLE} if budgets else {})
    assert row_ends(segment, every) == {20}


@arrives("optim", "schedule decay")
def test_under_wsd_each_budget_decays_from_the_trunk_in_a_segment_of_its_own(tmp_path):
    every = small, middle, whole = segments(make_spec())
    annealed = [Budget(SMALL, 10, True), Budget(MIDDLE, 15, True), Budget(WHOLE, 20, True)]
    assert [each.budget for each in every] == annealed
    assert [(each.steps, each.trunk, each.last) for each in every] == [
        (10, 8, False),
        (15, 12, False),
        (20, 20, True),
    ]
    assert [each.keep for each in every] == [{10: SMALL}, {15: MIDDLE}, {}]
    assert steps_taken(every) == 8 + 2 + 4 + 3 + 8
    assert [row_ends(each, every) for each in every] == [
        {8, 10, 12, 20},
        {8, 12, 15, 20},
        {8, 12, 20},
    ]
    assert [middle.folder(tmp_path, step) for step in (12, 13)] == [
        tmp_path,
        tmp_path / f"decay-{MIDDLE}",
    ]
    assert whole.folder(tmp_path, 20) == tmp_path != small.folder(tmp_path, 10)
    assert [each.trunk for each in segments(make_spec(decay=0.4))] == [6, 9, 20]


KEPT = f"budgets/{SMALL}"


@pytest.mark.parametrize(
    ("there", "goes_on"),
    [
        ([], None),
        (["8", "9", "10", "12", "14", "15", "20"], "9"),
        (["9", "12", "14", "15", "20", KEPT], "14"),
        (["9", "12", "14", "15", "20", KEPT, f"budgets/{MIDDLE}"], "20"),
    ],
)
def test_a_run_goes_on_before_the_first_snapshot_that_it_lacks(find, there, goes_on):
    assert find("cosine", *there) == (20, goes_on, int(goes_on or 0))


@rejects("segments.find_start: «→0 and »newest_checkpoint(decay", "a decay begun again")
@pytest.mark.parametrize(
    ("there", "segment", "goes_on"),
    [
        ([], 10, None),
        (["7", "8", "9"], 10, "8"),
        (["8", f"decay-{SMALL}/9", f"decay-{SMALL}/10"], 10, f"decay-{SMALL}/9"),
        (["8", f"decay-{SMALL}/9", KEPT], 15, "8"),
        (["12", "13", f"decay-{MIDDLE}/13", KEPT], 15, f"decay-{MIDDLE}/13"),
        (["12", "13", f"decay-{MIDDLE}/13", KEPT, f"budgets/{MIDDLE}"], 20, "13"),
    ],
)
def test_a_run_goes_on_with_the_first_segment_whose_budget_it_lacks(find, there, segment, goes_on):
    """The decays of the others are gone."""
    step = int(goes_on.rpartition("/")[2]) if goes_on else 0
    assert find("wsd", *there) == (segment, goes_on, step)
    left = {path.name for path in OURS.resume.glob("decay-*")}
    unfinished = {10: {SMALL, MIDDLE}, 15: {MIDDLE}, 20: set()}[segment]
    assert left <= {f"decay-{tokens}" for tokens in unfinished}


def test_a_finished_decay_goes_but_for_what_others_have_put_there(find):
    decay = OURS.resume / f"decay-{SMALL}"
    decay.mkdir(parents=True)
    for name in ("00000010.partial", "notes.txt"):
        (decay / name).touch()
    find("wsd", f"decay-{SMALL}/9", KEPT)
    assert [path.name for path in decay.iterdir()] == ["notes.txt"]


DECAY = f"decay-{MIDDLE}"


@pytest.mark.parametrize(
    ("damaged", "there", "goes_on", "otherwise"),
    [
        (KEPT, ["8", "12"], (10, "8", 8), "its budget is trained for again"),
        ("8", ["6", "7"], (10, "7", 7), "trying the one before it"),
        (f"{DECAY}/14", ["12", f"{DECAY}/13", KEPT], (15, f"{DECAY}/13", 13), "trying the one"),
    ],
)
def test_what_is_damaged_is_put_aside_and_costs_only_the_steps_since_what_is_not(
    find, capsys, damaged, there, goes_on, otherwise
):
    """In place of what was put aside before."""
    path = OURS.resume / f"{damaged}.ckpt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no checkpoint")
    aside = path.with_suffix(".unreadable")
    aside.touch()
    assert find("wsd", *there) == goes_on
    assert aside.read_bytes() == b"no checkpoint" and not path.exists()
    said = capsys.readouterr().out
    assert said.startswith(f"{path}: not a readable checkpoint") and said.count("\n") == 1
    assert f"; put aside as {aside.name}, {otherwise}" in said


@rejects("segments.read_own: «theirs→manifest».preregistration", "what a resumed training restates")
def test_what_the_first_checkpoint_says_of_the_beginning_stays(find):
    began = replace(OURS, tracking_key="key", preregistration=Preregistration("Why?"))
    find("cosine", "5", manifest=began)
    ours = replace(OURS, tracking_key="another", preregistration=Preregistration("What?"))
    assert find_start(make_spec("cosine"), ours).step == 5
    assert (ours.tracking_key, ours.preregistration) == ("key", Preregistration("Why?"))


def test_checkpoints_of_another_specification_are_named_unless_there_are_own_ones(find, capsys):
    assert find("cosine", "5", KEPT, manifest=THEIRS) == (20, None, 0)
    said = capsys.readouterr().out
    where = f"2 checkpoints in {THEIRS.resume} belong to another specification: code. Training"
    assert said.startswith(f"{RUN}: {where}") and said.count("\n") == 1
    assert said.endswith("once that is restored (git revision 1234)\n")
    assert find("cosine", "6") == (20, "6", 6)
    assert not capsys.readouterr().out
