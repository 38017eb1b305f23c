"""DVC: its Python, files of its own that a kill has cut short, and folders without git."""

import shutil
import sys
from pathlib import Path

import pytest
from dvc.exceptions import DvcException
from dvc.repo import Repo

from pipelines.host.dvc import LOCKFILE, RWLOCK, allow_no_git, dvc_environment, repair
from tests import ROOT
from tests.support.mutants import rejects

STAGES = (
    "stages:\n  one:\n    cmd: echo 1 > out && echo x >> runs\n    deps: [in]\n    outs: [out]\n"
)


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


@rejects('dvc.is_intact: .endswith(b"«\\n→»"', "a lock file cut within a word stays")
def test_a_lock_file_and_notes_of_who_is_at_work_cut_anywhere_cost_no_run(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Repo.init(".", no_scm=True).close()
    Path("in").write_text("0")
    Path("dvc.yaml").write_text(STAGES)
    reproduce()
    text, removed = LOCKFILE.read_text(), 0
    for length in range(0, len(text), 3):
        LOCKFILE.write_text(text[:length])
        RWLOCK.write_text('{"read": {"/x": [{"pi'[:length])
        repair()
        assert not RWLOCK.exists()
        removed += not LOCKFILE.exists()
        assert readable(), length
    assert removed > 5
    assert capsys.readouterr().err.count("dvc.lock was truncated") == removed
    LOCKFILE.write_text("")
    RWLOCK.write_text("{}")
    repair()
    assert RWLOCK.read_text() == "{}"
    reproduce()
    assert LOCKFILE.read_text() == text
    assert Path("runs").read_text() == "x\n"


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
