"""`make repro JOBS=2`, killed again and again, leaves what `dvc repro` leaves."""

import random
import re
import subprocess

import psutil
import pytest
import yaml

from tests.support.project_copy import Project
from tests.support.training import losses, outcome, same

pytestmark = pytest.mark.slow

KILLS = 5
RUNS = ("baseline", "free_k1_8", "free_k1", "text_free_k1_2")
# one thread as tests/support/project_copy.py has it: sums of two round in another way
COMMAND = (
    "python", "-m", "pipelines.repro", "experiment=smoke", "compute.threads=1", "--jobs", "2"
)  # fmt: skip
# with times, ids of MLflow runs or the revision of the code
DIFFERS = re.compile(
    r"^checkpoints/|^report/|^results/smoke($|/.*/(curve.csv|details.json|evaluation.json|suite.json"
    r"|suite_samples)$)"
)


@pytest.fixture
def started():
    """Processes to be ended after the test, whatever becomes of it."""
    processes = []
    yield processes
    for process in processes:
        if process.is_running():
            process.kill()


def kill(process, rest, started):
    """SIGKILL to a process or, with ``rest``, to all that it has started."""
    parent = psutil.Process(process.pid)
    tree = parent.children(recursive=True)
    started += tree
    for each in [parent, *(tree if rest else [])]:
        if each.is_running():
            each.kill()
    process.wait()


def kill_once(project, choice, started):
    """Start, and kill within moments after some lines of progress; False if it ended before."""
    process = project.start(*COMMAND)
    for _ in range(choice.randint(2, 4)):
        process.stdout.readline()
    try:
        process.wait(timeout=choice.uniform(0, 1.5))
    except subprocess.TimeoutExpired:
        kill(process, choice.random() < 0.5, started)
        return True
    assert process.returncode == 0, process.stdout.read()
    return False


def test_kills_leave_what_dvc_repro_leaves(finished, warm_python, tmp_path, monkeypatch, started):
    project = Project(tmp_path / "project")
    choice, kills = random.Random(0), 0
    while kills < KILLS and kill_once(project, choice, started):
        kills += 1
    assert kills == KILLS
    project.python = warm_python
    said = project.ok(*COMMAND)
    assert "The report is in report/smoke/index.html" in said

    locks = [yaml.safe_load((p.folder / "dvc.lock").read_text()) for p in (project, finished)]
    mine, others = (lock["stages"] for lock in locks)
    assert mine.keys() == others.keys()
    for name, stage in mine.items():
        assert stage["cmd"] == others[name]["cmd"]
        assert stage.get("params") == others[name].get("params")
        for part in "deps", "outs":
            assert hashes(stage, part) == hashes(others[name], part), name

    monkeypatch.chdir(finished.folder)
    expected = {run: outcome(run) for run in RUNS}
    monkeypatch.chdir(project.folder)
    for run in RUNS:
        weights, rows = outcome(run)
        assert same(weights, expected[run][0])
        assert losses(rows) == losses(expected[run][1])

    again = project.ok(*COMMAND)
    assert re.search(r"1 of \d+ stages had work to do", again)
    assert re.findall(
        "Running stage '(.*)'", (project.folder / "logs/smoke/repro.log").read_text()
    ) == ["sources"]


def hashes(stage, part):
    """What a stage read or wrote: of what differs between any two runs, the paths alone."""
    entries = stage.get(part, [])
    return {e["path"]: None if DIFFERS.search(e["path"]) else e.get("md5") for e in entries}
