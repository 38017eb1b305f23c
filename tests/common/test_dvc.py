"""DVC: its Python, files of its own that a kill has cut short, locks, what it deletes, and folders
without git.
"""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil
import pytest
import yaml
from dvc.exceptions import DvcException
from dvc.fs import localfs
from dvc.lock import LockError
from dvc.repo import Repo
from dvc.rwlock import rwlock

from pipelines.host import dvc, files
from pipelines.host.dvc import (
    DAMAGED,
    LOCKFILE,
    RWLOCK,
    allow_no_git,
    dvc_at_work,
    dvc_environment,
    git_refusal,
    pipeline_alone,
    repair,
)
from pipelines.host.errors import UserError
from pipelines.host.files import alone
from tests import ROOT
from tests.support.mutants import rejects
from tests.support.project_copy import Project

STAGES = {
    name: {"cmd": f"echo {name} >> runs && cp in {name}", "deps": ["in"], "outs": [name]}
    for name in ("one", "two")
}


def reproduce():
    with Repo(".") as repo:
        repo.reproduce()


def readable():
    try:
        with Repo(".") as repo:
            repo.status()
            return True
    except (DvcException, NotImplementedError):  # the latter of a hash's name that was cut
        return False


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    """Two stages that have run once."""
    monkeypatch.chdir(tmp_path)
    Repo.init(".", no_scm=True).close()
    Path("in").write_text("0")
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": STAGES}))
    reproduce()
    return LOCKFILE.read_text()


@rejects('dvc.repair_lockfile: .endswith(b"«\\n→»"', "a lock file cut within a word stays")
def test_a_lock_file_and_notes_of_who_is_at_work_cut_anywhere_cost_no_run(pipeline, capsys):
    removed = 0
    for length in range(0, len(pipeline), 13):
        LOCKFILE.write_text(pipeline[:length])
        RWLOCK.write_text('{"read": {"/x": [{"pi'[:length])
        repair()
        assert not RWLOCK.exists()
        if not LOCKFILE.exists() or LOCKFILE.read_text() != pipeline[:length]:
            removed += 1
            assert DAMAGED.read_text() == pipeline[:length]
        assert readable(), length
        if length > pipeline.index("  two:") + 2:
            assert LOCKFILE.read_text().startswith(pipeline[: pipeline.index("  two:")])
    assert removed > 5
    assert capsys.readouterr().err.count("dvc.lock was truncated") == removed
    LOCKFILE.write_text("")
    repair()
    reproduce()
    assert LOCKFILE.read_text() == pipeline
    assert sorted(Path("runs").read_text().split()) == ["one", "two"]


def test_a_lock_file_without_its_last_newline_is_left_alone(pipeline, capsys):
    LOCKFILE.write_text(pipeline.removesuffix("\n"))
    repair()
    assert LOCKFILE.read_text() + "\n" == pipeline
    assert capsys.readouterr().err == ""


@rejects(
    "dvc.repair_lockfile: «float(schema[1]) > MAX_SCHEMA→False»",
    "a later schema",
    case="later schema",
)
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  two:", "<<<<<<< HEAD\n  two:", "conflict markers of git in line"),
        ("schema: '2.0'", "schema: '3.0'", "schema 3.0, of a later DVC"),
        ("    cmd", "  cmd:", "mend it, or delete it"),
    ],
    ids=["conflict", "later schema", "not at its end"],
)
def test_a_lock_file_that_no_kill_has_cut_is_left_and_named(pipeline, old, new, words):
    text = pipeline.replace(old, new, 1)
    LOCKFILE.write_text(text)
    with pytest.raises(UserError, match=words):
        repair()
    assert LOCKFILE.read_text() == text


def test_git_tracks_the_lock_file_whatever_a_global_list_ignores(tmp_path):
    (tmp_path / "everywhere").write_text("*.lock\n")
    shutil.copy(ROOT / ".gitignore", tmp_path)
    git = ["git", "-c", f"core.excludesFile={tmp_path / 'everywhere'}"]
    subprocess.run([*git, "init", "-q"], cwd=tmp_path, check=True)
    ignored = [*git, "check-ignore", "dvc.lock", "x.lock"]
    assert subprocess.run(ignored, cwd=tmp_path, capture_output=True).stdout == b"x.lock\n"


def test_lines_end_as_committed_whatever_a_global_setting_says(tmp_path):
    """With other ends, pages of the report and templates would count as changed."""
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    page = tmp_path / "page.md"
    page.write_bytes(b"a\nb\n")
    for command in ("init -q", "add -A", "checkout page.md"):
        git = ["git", "-c", "core.autocrlf=true", *command.split()]
        if command.startswith("checkout"):
            page.unlink()
        subprocess.run(git, cwd=tmp_path, check=True)
    assert page.read_bytes() == b"a\nb\n"


def test_a_number_that_another_process_has_now_is_nobodys(pipeline):
    """As after a restart: its command is another one, or it began after DVC wrote its notes."""
    me = psutil.Process()
    for command, age, seen in (
        (" ".join(me.cmdline()), 0, True),
        (f"/x/dvc/__main__.py {me.cmdline()[-1]}", 0, True),
        ("/x/dvc/__main__.py repro", 0, False),
        (" ".join(me.cmdline()), 3600, False),
    ):
        RWLOCK.write_text(json.dumps({"write": {"/x": {"pid": me.pid, "cmd": command}}}))
        os.utime(RWLOCK, (me.create_time() - age,) * 2)
        assert bool(dvc_at_work()) == seen, (command, age)
    repair()
    assert not RWLOCK.exists()  # DVC would wait for it


@rejects('dvc.left_running: groups = «→"" and »" ".join(', "no way to stop them")
def test_what_a_killed_make_repro_has_left_is_named_with_how_to_stop_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pipeline_alone() as lock:
        wait = [sys.executable, "-c", "input()", "dvc"]
        left = subprocess.Popen(wait, stdin=subprocess.PIPE, pass_fds=[lock])
    with closing(left.stdin):
        words = rf"left running \(dvc \(pid {left.pid}, .*`kill -INT -- -{left.pid}` stops it\)"
        with pytest.raises(UserError, match=words), pipeline_alone(wait=False):
            pass
    left.wait()


def test_no_dvc_exp_run_begins_while_the_pipeline_is_held(pipeline):
    """It would set params.yaml aside, which stages at work read."""
    begins = partial(rwlock, str(dvc.EXPERIMENTS), localfs, "dvc exp run", [], ["workspace"], False)
    with pipeline_alone(), pytest.raises(LockError, match=rf"PID {os.getpid()}\): make repro"):
        begins().__enter__()
    with begins(), pipeline_alone():
        pass


def test_storage_without_flock_takes_locks_of_this_machine(pipeline, tmp_path, monkeypatch, capsys):
    def flock(file, operation):
        if os.readlink(f"/proc/self/fd/{getattr(file, 'fileno', lambda: file)()}").startswith(
            str(tmp_path)
        ):
            raise OSError(errno.ENOSYS, "Function not implemented")
        return real(file, operation)

    real = fcntl.flock
    for module in (fcntl, dvc, files):
        monkeypatch.setattr(module, "flock", flock)
    (dvc.DVC_TMP / "lock").write_text(" 7\n")  # of a DVC before
    with pipeline_alone(wait=False):
        with pytest.raises(UserError, match="is at work"), pipeline_alone(wait=False):
            pass
        repair()
    assert "no flock on this storage" in capsys.readouterr().err
    Path("in").write_text("1")
    reproduce()
    with alone(tmp_path / "x"):
        assert not (tmp_path / ".x.lock").exists()


CONF = {
    "conf/config.yaml": "defaults: [_self_, {experiment: a}]\n",
    "conf/experiment/a.yaml": "# @package _global_\nname: a\nruns: {free: 1}\n",
    "conf/experiment/b.yaml": "# @package _global_\nname: b\nruns: {free: 2}\n",
    "params.yaml": "name: a\nruns: {free: 1}\n",
    ".gitignore": "/made\n/hydra_plugins\n/pipelines\n/ftmodel\n",
}
OF_AN_EXPERIMENT = {
    "train": {
        "foreach": "${runs}",
        "do": {"cmd": "echo ${item} > made/${name}_${key}", "outs": ["made/${name}_${key}"]},
    }
}


@rejects("dvc.git_refusal: if «not→» place", "a link out of the repository found after training")
@pytest.mark.parametrize("place", ["disk", "project/elsewhere"])
def test_a_folder_of_outputs_that_leads_out_of_the_repository_is_refused(tmp_path, place):
    project, results = tmp_path / "project", tmp_path / "project/results"
    (tmp_path / place).mkdir(parents=True)
    project.mkdir(exist_ok=True)
    results.symlink_to(tmp_path / place)
    assert git_refusal(project) is None  # no repository yet
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    words = str(git_refusal(project))
    assert ("outside this repository" in words and str(tmp_path) in words) == (place == "disk")


def test_a_git_that_another_program_has_locked_ends_no_stage(tmp_path, monkeypatch):
    """By an editor's commit, or a killed one; on a read-only `.git` it is the same."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    Repo.init(".").close()
    shutil.copy(ROOT / ".dvc/config", ".dvc/config")
    Path("in").write_text("0")
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": STAGES}))
    Path(".git/index.lock").touch()
    reproduce()
    assert Path("runs").read_text() == "one\ntwo\n"


@pytest.mark.slow
def test_dvc_deletes_nothing_of_another_experiment(tmp_path):
    """By default, each of these commands does."""
    project = Project(tmp_path, fresh=False)
    for path, text in CONF.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "made").mkdir()
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": OF_AN_EXPERIMENT}))
    for code in ("hydra_plugins", "pipelines", "ftmodel"):
        (tmp_path / code).symlink_to(ROOT / code)
    for command in (
        ("git", "init", "-q"),
        ("git", "config", "user.email", "test@example.org"),
        ("git", "config", "user.name", "test"),
        ("dvc", "init", "-q"),
        ("dvc", "config", "hydra.enabled", "true"),
        ("dvc", "repro"),
        ("git", "add", "-A"),
        ("git", "commit", "-qm", "a"),
        ("dvc", "exp", "run", "--name", "other", "-S", "experiment=b"),
        ("git", "checkout", "params.yaml", "dvc.lock"),
        ("dvc", "checkout"),
        ("dvc", "exp", "apply", "other"),
    ):
        project.ok(*command)
        made = {path.name for path in (tmp_path / "made").iterdir()}
        if command[:3] == ("dvc", "exp", "run"):
            assert made == {"a_free", "b_free"}
    assert made == {"a_free", "b_free"}


@rejects('dvc.dvc_environment: "")]«→[::-1]»', "stages run by the first Python of PATH")
def test_the_python_of_stages_is_this_one_whatever_is_activated(monkeypatch, tmp_path):
    (tmp_path / "python").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("python", path=dvc_environment()["PATH"]) == str(
        Path(sys.executable).parent / "python"
    )


def test_dvc_works_in_a_copy_without_git(tmp_path):
    (tmp_path / ".dvc").mkdir()
    shutil.copy(ROOT / ".dvc/config", tmp_path / ".dvc")
    with pytest.raises(DvcException, match="is not a git repository"):
        Repo(tmp_path).status()
    assert allow_no_git(tmp_path)
    Repo(tmp_path).status()
    assert not allow_no_git(tmp_path)  # it is said once


def test_in_git_nothing_changes(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "project/.dvc").mkdir(parents=True)
    assert not allow_no_git(tmp_path / "project")
    assert not any((tmp_path / "project/.dvc").iterdir())
