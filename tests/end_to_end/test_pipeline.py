"""The pipeline as a user runs it: `dvc repro` on `smoke`, then changed, broken and killed."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from contextlib import suppress

import pytest

from pipelines.artifacts.result_files import flat_numbers
from pipelines.host.errors import UserError
from tests.support.commands import call
from tests.support.project_copy import ROOT, Project
from tests.support.training import tracked_runs

pytestmark = pytest.mark.slow

RUNS = {"baseline", "free_k1_8", "free_k1", "text_free_k1_2"}
KILLED = {"baseline", "free_k1_8"}  # runs of the experiment that is killed
LEFT_OUT = (*(f"~runs.{run}" for run in sorted(RUNS - KILLED)), "~data.stdlib")
ONE_BY_ONE = ("dvc", "repro")
FTLAB = ("python", "-m", "pipelines.cli")
SIDE_BY_SIDE = (*FTLAB, "repro", "experiment=smoke", *LEFT_OUT, "--jobs", "2")
STAGES = {
    "sources",
    *(f"{stage}@{name}" for stage in ("data", "tokenize") for name in ("target", "stdlib")),
    *(f"{stage}@{run}" for stage in ("train", "evaluate") for run in RUNS),
    "suite@text_free_k1_2",
    "report",
}


def stages_run(output):
    return re.findall(r"Running stage '([^']+)'", output)


def test_every_stage_runs_once_in_a_fresh_clone(finished):
    ran = stages_run((finished.folder / "repro.log").read_text())
    assert set(ran) == STAGES
    assert len(ran) == len(STAGES)
    page = (finished.folder / "report/smoke/index.html").read_text()
    assert all(run in page for run in RUNS)
    link = r'<a href="http://127[^"]*/runs/\w+\?workflowType=\w+">free_k1_8 in MLflow</a>'
    assert re.search(link, page)


def test_another_kappa_reruns_that_run_and_the_report_alone_and_can_be_compared(copied):
    """By `dvc exp run`, which composes as `ftlab compose` does."""
    copied.ok("git", "add", "-A")
    copied.ok("git", "commit", "-qm", "finished")
    kappa = "runs.free_k1.kappa_bits"
    settings = ("-S", "experiment=smoke", "-S", f"{kappa}=0.5")
    output = copied.ok("dvc", "exp", "run", "--name", "half", *settings)
    assert stages_run(output) == ["sources", "train@free_k1", "evaluate@free_k1", "report"]

    path, name = "results/smoke/free_k1/metrics.json", "bound_bits_per_token"
    make = ["make", "-n", "--no-print-directory", "experiments"]
    said = subprocess.run(make, cwd=ROOT, capture_output=True, text=True).stdout
    shown = copied.ok(*shlex.split(said.splitlines()[-1].lstrip("@"))).splitlines()
    assert max(map(len, shown)) <= 100
    where = [line for line in shown if line.startswith(("workspace:", "half:"))]
    assert [*map(str.split, where)] == [
        [name, "experiment", "smoke", "with", f"{kappa}=0.5"] for name in ("workspace:", "half:")
    ]
    workspace, before, half = (line.split() for line in shown if line.startswith("  free_k1 "))
    assert [row[1:4] for row in (before, half)] == [[k, "10,400", "0"] for k in ("1", "1/2")]
    assert workspace == half != before

    numbers = [float(row[4]) for row in (half, before)]
    difference = pytest.approx(numbers[0] - numbers[1], abs=2e-4)
    for command in (("metrics", "diff"), ("exp", "diff", "HEAD", "half")):
        changes = json.loads(copied.ok("dvc", *command, "--json"))
        changes = changes.get("metrics", changes)
        assert changes.keys() == {path}  # no figure of another run, and none that is not known
        assert changes[path][name]["diff"] == difference

    params = (copied.folder / "params.yaml").read_text()
    copied.compose(f"{kappa}=0.5")
    assert (copied.folder / "params.yaml").read_text() == params
    copied.compose()
    assert stages_run(copied.ok("dvc", "repro")) == ["sources"]  # the first κ is in DVC's cache


def test_metrics_and_plots_show_something(copied):
    shown = json.loads(copied.ok("dvc", "metrics", "show", "--json"))
    files = shown[""]["data"]
    suite = files.pop("results/smoke/text_free_k1_2/suite_metrics.json")
    assert {"snippets", "words", "passages"} <= suite["data"].keys()
    assert set(files) == {f"results/smoke/{run}/metrics.json" for run in RUNS}
    assert all("bound_bits_per_token" in shown["data"] for shown in files.values())
    copied.ok("dvc", "plots", "show", "-o", "plots_page")
    assert "free_k1_8" in (copied.folder / "plots_page/index.html").read_text()


def test_sampling_prints_groups_and_pinned_ones_repeat_their_seed(finished, monkeypatch, capsys):
    """After 20 steps the model can only repeat itself, but for a high temperature. Another process
    repeats it, which has another hash seed.
    """
    monkeypatch.chdir(finished.folder)
    command = ("sample", "free_k1_8", "--z", "pinned", "--prompt", "Q>", "--groups", "2")
    command += ("--temperature", "10")
    call(*command)
    output = capsys.readouterr().out
    assert output.count("the same z in a group") == 2
    assert len(re.findall(r"^Q>.{64}$", output, re.MULTILINE)) == 10
    assert "\033[" not in output
    assert finished.ftlab(*command).stdout == output
    call(*command, "--seed", "1")
    assert capsys.readouterr().out != output
    call("sample", "text_free_k1_2", "--prompt", "import ", "--new", "8")
    assert capsys.readouterr().out.count("import ") >= 10


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["baseline", "--z", "pinned"], "has no z to pin"),
        (["free_k1", "--prompt", "é>"], "cannot be written"),
        (["free_k1", "--new", "65"], "exceed the context of 65"),
        (["free_k1", "--prompt", "K>" + "_" * 65], "67 tokens leave no room in a context of 65"),
    ],
)
def test_a_mistake_in_sampling_says_what_it_is(finished, monkeypatch, arguments, words):
    monkeypatch.chdir(finished.folder)
    with pytest.raises(UserError, match=re.escape(words)):
        call("sample", *arguments)


def test_mlflow_has_one_run_each_with_training_and_evaluation(finished):
    _, runs = tracked_runs(finished.folder)
    assert {run.info.run_name for run in runs} == RUNS
    assert len(runs) == len(RUNS)
    for run in runs:
        assert run.info.status == "FINISHED"
        assert {"curve/ce_nats", "bound/bits_per_token"} <= run.data.metrics.keys()
        assert ("collapsed" in run.data.tags) == (run.info.run_name != "baseline")


def start_until(project, command, pattern):
    """A command, returned as soon as it has printed a line that fits ``pattern``."""
    process = project.start(*command)
    for said in process.stdout:
        if re.search(pattern, said):
            return process
    raise AssertionError(f"{command} ended without {pattern!r}")


def figures(project, run):
    """What an evaluation measured, its speed left out; another number of threads may round."""
    measured = json.loads((project.folder / f"results/smoke/{run}/evaluation.json").read_text())
    assert measured.pop("tokens_per_second") > 0
    return pytest.approx(flat_numbers(measured), rel=1e-5, nan_ok=True)


@pytest.fixture(scope="module")
def begun(tmp_path_factory, warm_python):
    """The runs of KILLED, not yet trained."""
    folder = tmp_path_factory.mktemp("begun") / "project"
    project = Project(folder, python=warm_python)
    project.compose(*LEFT_OUT)
    project.ok("dvc", "repro", "tokenize")
    return project


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (ONE_BY_ONE, "SIGINT to all"),
        (ONE_BY_ONE, "SIGKILL to it alone"),
        (SIDE_BY_SIDE, "SIGKILL to it alone"),
    ],
    ids=["dvc interrupted", "dvc killed", "make repro JOBS=2 killed"],
)
def test_a_killed_repro_goes_on_and_keeps_what_is_finished(
    finished, begun, warm_python, tmp_path, command, kind
):
    """What `dvc repro` finds up to date in the end."""
    shutil.copytree(begun.folder, tmp_path / "project", symlinks=True)
    project = Project(tmp_path / "project", fresh=False)
    process = start_until(project, command, r"free_k1_8: +(50|60|70|80|90)%")
    try:
        if kind == "SIGINT to all":
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.kill()
        process.stdout.read()  # until the last of the group has closed it
        process.wait()
        project.python = warm_python
        output = project.ok(*command)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if command is ONE_BY_ONE:
        assert "train@baseline" not in stages_run(output)
        assert "train@free_k1_8" in stages_run(output)
    assert stages_run(project.ok("dvc", "repro")) == ["sources"]
    for run in KILLED:
        assert figures(project, run).expected == figures(finished, run)
    _, runs = tracked_runs(project.folder)
    assert sorted(run.info.run_name for run in runs) == sorted(KILLED)
