"""`make repro`: one at a time in a folder, and params.yaml is composed by the one at work."""

import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from fcntl import LOCK_EX, flock
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from pipelines.artifacts.run_spec import RunSpec
from pipelines.evaluate.work import evaluation_work, settled
from pipelines.host import dvc
from pipelines.host.dvc import DVC_TMP, dvc_at_work, pipeline_alone, stage_of
from pipelines.host.errors import UserError
from pipelines.parallel import repro
from pipelines.parallel.plan import RunPlan
from pipelines.parallel.repro import ANY_GPU, stage_flops
from pipelines.parallel.scheduler import Graph, StageOutcome
from tests.support.arrivals import arrives
from tests.support.commands import call
from tests.support.mutants import rejects
from tests.support.settings import composed_by_hydra as composed

ME = rf"pid {os.getpid()}, since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    DVC_TMP.mkdir(parents=True)
    return tmp_path


def write_rwlock(pid, mode="write"):
    info = {"pid": pid, "cmd": " ".join(psutil.Process().cmdline())}
    content = {mode: {"results/a": info if mode == "write" else [info]}}
    (DVC_TMP / "rwlock").write_text(json.dumps(content))


def test_a_second_one_is_refused_with_the_name_of_the_first(folder):
    words = rf"^make repro \({ME}\) is at work in this folder; run this again when it has ended$"
    with pipeline_alone(), pytest.raises(UserError, match=words), pipeline_alone(wait=False):
        raise AssertionError("both are at work")
    words = rf"^ftlab sweep \({ME}\) is"
    with pipeline_alone(what="ftlab sweep"), pytest.raises(UserError, match=words):
        pipeline_alone(wait=False).__enter__()
    with pipeline_alone(wait=False):
        pass


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_stage_of_dvc_is_seen_while_it_runs(folder, mode):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    write_rwlock(os.getpid(), mode)
    assert re.fullmatch(rf"dvc \({ME}\)", dvc_at_work())
    write_rwlock(ended.pid, mode)
    assert dvc_at_work() == ""
    (DVC_TMP / "rwlock").write_text("{")
    assert dvc_at_work() == ""


def test_a_command_of_dvc_between_its_stages_is_seen(folder):
    path = DVC_TMP / "lock"
    path.write_text(f" {os.getpid()}\n")
    assert dvc_at_work() == ""
    with open(path, "rb+") as file:
        flock(file, LOCK_EX)
        assert re.fullmatch(rf"dvc \({ME}\)", dvc_at_work())
        path.write_text("")
        assert dvc_at_work() == "dvc"
    assert dvc_at_work() == ""


def test_who_waits_says_so_once_and_goes_on_when_the_other_has_ended(folder, monkeypatch, capsys):
    write_rwlock(os.getpid())
    waits = []

    def other_works(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            (DVC_TMP / "rwlock").unlink()

    monkeypatch.setattr(dvc, "sleep", other_works)
    with pipeline_alone():
        assert len(waits) == 3
    said = capsys.readouterr().err
    assert re.search(rf" dvc \({ME}\)", said) and said.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "stage"),
    [
        (["python", "-m", "pipelines.train", "baseline"], "train baseline"),
        (["/x/python3", "-X", "dev", "-m", "pipelines.report"], "report"),
        (["python", "-m", "pipelines.cli", "repro", "experiment=smoke"], ""),
        (["python", "-m", "dvc", "repro"], ""),
        ([], ""),
    ],
)
def test_the_stage_is_read_off_its_command(command, stage):
    assert stage_of(command) == stage


@rejects("repro.main: : «→write_params(»compose_valid(overrides)«→)»", "params.yaml written early")
def test_nothing_is_composed_while_another_is_at_work(conf, monkeypatch):
    monkeypatch.setattr(repro, "dvc_repro", lambda: pytest.fail("DVC was run"))
    with pipeline_alone(), pytest.raises(UserError, match="is at work in this folder"):
        call("repro", "--no-wait", "experiment=smoke")
    assert not Path("params.yaml").exists()


@rejects(
    'compose.main: «with pipeline_alone(what="ftlab compose"):→if True:»', "composed in between"
)
def test_compose_waits_for_its_turn_too(conf, monkeypatch):
    monkeypatch.setattr(dvc, "sleep", lambda _: 1 / 0)
    with pipeline_alone(), pytest.raises(ZeroDivisionError):
        call("compose", "experiment=smoke")
    assert not Path("params.yaml").exists()


@pytest.mark.parametrize("code", [0, 255])
def test_dvc_runs_while_nobody_else_can_and_its_summary_is_printed(conf, monkeypatch, capsys, code):
    monkeypatch.setattr(repro, "allow_no_git", lambda folder: code == 0)

    def dvc():
        with pytest.raises(UserError, match="is at work"), pipeline_alone(wait=False):
            pass
        assert "name: smoke" in Path("params.yaml").read_text()
        Path("report/smoke").mkdir(parents=True)
        Path("report/smoke/summary.txt").write_text("κ says\n", encoding="utf-8")
        return code

    monkeypatch.setattr(repro, "dvc_repro", dvc)
    with pytest.raises(SystemExit, match=r"^255$") if code else nullcontext():
        call("repro", "--jobs", "1", "experiment=smoke")
    said = capsys.readouterr().out
    assert ("no git here" in said) == said.endswith("κ says\n") == (code == 0)


@pytest.mark.parametrize(
    ("jobs", "address", "asked", "n"),
    [
        (None, "", ("here", None), 1),
        ("3", "", ("here", 3), 3),
        ("3", "192.0.2.1:6379", ("cluster", "3"), 2),
        ("ray", "", ("cluster", None), 2),
    ],
)
def test_stages_run_here_or_on_the_cluster_and_one_by_one_in_a_single_slot(
    monkeypatch, jobs, address, asked, n
):
    calls = []

    def slots(where):
        return lambda *given: calls.append((where, given[-1])) or [{}] * n

    monkeypatch.setenv("RAY_ADDRESS", address)
    for name, replacement in {
        "make_slots": slots("here"),
        "cluster_slots": slots("cluster"),
        "dvc_repro": lambda: calls.append("one by one"),
        "side_by_side": lambda slots, _, *rest: calls.append((len(slots), *rest)),
    }.items():
        monkeypatch.setattr(repro, name, replacement)
    repro.bring_up_to_date(composed("experiment=smoke"), jobs, 7)
    assert calls == [asked, "one by one" if n == 1 else (n, Path("logs/smoke"), 7)]


def test_a_cluster_has_the_slots_that_are_asked_for_or_fit(monkeypatch):
    monkeypatch.setattr("pipelines.cluster.connection.connect", Mock())
    monkeypatch.setattr("pipelines.cluster.connection.runs_at_once", lambda _: 2)
    monkeypatch.setattr("ray.get_runtime_context", lambda: Mock(gcs_address="192.0.2.1:6379"))
    monkeypatch.setenv("RAY_ADDRESS", "")
    experiment = composed("experiment=smoke")
    assert [len(repro.cluster_slots(experiment, jobs)) for jobs in ("5", None)] == [5, 2]
    assert os.environ["RAY_ADDRESS"] == "192.0.2.1:6379"


FAILURE = "b failed; its output is in b.log; so did a; not started: c"
FAILED = StageOutcome(failed={"b": Path("b.log"), "a": Path("a.log")})
STOPPED, FINE = StageOutcome(interrupted=True), StageOutcome(seconds={"look": 1.0})


@rejects("repro.side_by_side: «raise SystemExit(code)→pass»", "a pipeline that failed ends well")
@pytest.mark.parametrize(
    ("outcomes", "dvc", "code", "runs"),
    [
        ([FAILED], 9, FAILURE, 1),
        ([STOPPED], 9, 130, 1),
        ([FINE, FAILED], 9, FAILURE, 2),
        ([FINE, STOPPED], 9, 130, 2),
        ([FINE, FINE], 1, 1, 2),
        ([FINE, FINE], 255, 255, 2),
        ([FINE, FINE], 0, 0, 2),
    ],
)
def test_a_pipeline_side_by_side_ends_as_the_first_part_that_did_not_end_well(
    folder, monkeypatch, capsys, outcomes, dvc, code, runs
):
    """Stages at every call, then those that have changed, then `dvc repro` itself, which would end
    with 9 where it must not be called.
    """
    Path("b.log").write_text("the lamp is broken")
    Path("logs").mkdir()
    Path("logs/look.log").write_text(
        "Running 'look':\n> look\nx = 2\nUpdating lock file 'dvc.lock'\n"
    )
    scheduler = Mock(run=Mock(side_effect=outcomes))

    def last(output):
        output.write(b"Running stage 'look':\nRunning stage 'c':\n")
        output.write(b"ERROR: failed to reproduce 'c': failed to run: x\nthe last word\n")
        output.flush()
        return dvc

    graph = Graph({"look": set(), "b": {"look"}, "c": {"b"}, "d": set()}, {"look"})
    monkeypatch.setattr(repro, "read_graph", lambda: graph)
    monkeypatch.setattr(repro, "changed_stages", lambda: {"look": ["e"], "b": ["p", "q"]})
    monkeypatch.setattr(repro, "Scheduler", lambda *given: screens.append(given[-1]) or scheduler)
    monkeypatch.setattr(repro, "dvc_repro", last)
    ended, screens = 0, []
    try:
        repro.side_by_side([{"OMP_NUM_THREADS": "3"}, {}], {}, Path("logs"), 0)
    except SystemExit as error:
        ended = error.code
    except UserError as error:
        ended = str(error)
    assert (ended, scheduler.run.call_count) == (code, runs)
    assert screens[0].total == (3 if runs == 2 else 4)
    said = capsys.readouterr()
    assert "2 stages side by side (threads of each: 3)" in said.err
    # before anything runs again, what the first stages said, and why
    reasons = "x = 2\nb: run again, as these changed: p, q\n"
    assert (reasons in said.err) == (runs == 2)
    assert ("the lamp is broken" in said.err) == (code == FAILURE)
    assert ("the last word" in said.err) == (code in (1, 255))
    assert said.out.endswith("run again: c\n") == (code == 0)


def test_it_waits_by_default_but_a_mistake_ends_it_before(conf, monkeypatch):
    monkeypatch.setattr(dvc, "sleep", lambda _: 1 / 0)
    with pipeline_alone(), pytest.raises(UserError, match="seedling"):
        call("repro", "experiment=smoke", "runs.baseline.seedling=3")
    with pipeline_alone(), pytest.raises(ZeroDivisionError):
        call("repro", "experiment=smoke")


@arrives("evaluation", "particles filters iwae_samples tokens max_particles proposal")
@rejects("work.expected_passes: «* len(spec.budgets)→»", "smaller budgets that nobody measures")
def test_the_longest_way_has_the_evaluation_in_it():
    def longest(particles):
        experiment = composed(
            "experiment=smoke",
            "runs.baseline.tokens=1_040_000",
            f"evaluation.particles={particles}",
        )
        specs = [RunSpec(experiment, name) for name in ("baseline", "free_k1")]
        ways = {s.name: sum(stage_flops(RunPlan(s, ANY_GPU)).values()) for s in specs}
        return max(ways, key=lambda name: ways[name])

    assert [longest(particles) for particles in (1, 4096)] == ["baseline", "free_k1"]
    for asked, particles, shares in (
        ("particles: 8", 8, 0),
        ("particles: auto, max_particles: 9", 9, 5),
        ("particles: auto, max_particles: 99, proposal: 0.5", 16, 1),
        ("particles: auto", 4, 1),  # comparing proposals costs more than this training
    ):
        asked = f"evaluation={{{asked}, filters: 5, iwae_samples: 3, tokens: 90}}"
        budgets = "runs.free_k1.budgets=[5_200]"  # measured there, too
        spec = RunSpec(composed("experiment=smoke", asked, budgets), "free_k1")
        work = evaluation_work(spec, settled(spec))
        assert (work.filters, work.iwae_samples, work.scored_tokens) == (5, 3, 90)
        plan = RunPlan(spec, ANY_GPU)
        wanted = plan.flops_per_token / 3 * work.passes(particles, shares) * 2
        assert stage_flops(plan)["evaluate@free_k1"] == pytest.approx(wanted)


def test_an_interrupt_is_left_to_dvc_and_waited_for(monkeypatch):
    process = Mock(wait=Mock(side_effect=[KeyboardInterrupt, 130]))
    started = Mock(return_value=process)
    monkeypatch.setattr(subprocess, "Popen", started)
    assert repro.dvc_repro() == 130
    path = started.call_args.kwargs["env"]["PATH"]  # where its stages find `python`
    assert path.startswith(f"{Path(sys.executable).parent}{os.pathsep}")
