"""Files of DVC that a kill has cut short stop no later command."""

from pathlib import Path

import pytest
from dvc.exceptions import DvcException
from dvc.repo import Repo

from pipelines.common.dvc_repair import LOCKFILE, RWLOCK, repair
from tests.support.mutants import rejects
from tests.support.project_copy import Project

STAGES = (
    "stages:\n  one:\n    cmd: echo 1 > out && echo x >> runs\n    deps: [in]\n    outs: [out]\n"
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    project = Project(tmp_path, fresh=False)
    for command in (["git", "init", "-q"], ["dvc", "init", "-q"]):
        project.ok(*command)
    Path(tmp_path / "in").write_text("0")
    Path(tmp_path / "dvc.yaml").write_text(STAGES)
    project.ok("dvc", "repro")
    monkeypatch.chdir(tmp_path)
    return project


def readable():
    try:
        with Repo(".") as repo:
            repo.status()
            return True
    except DvcException:
        return False


@rejects(
    "common/dvc_repair.py",
    "    except DvcException:\n        LOCKFILE.unlink()\n",
    "    except DvcException:\n",
    "a lock file of DVC that was cut short stays",
)
def test_a_lock_file_cut_anywhere_costs_no_run(project, capsys):
    text, removed = LOCKFILE.read_text(), 0
    for length in range(0, len(text), 7):
        LOCKFILE.write_text(text[:length])
        repair()
        removed += not LOCKFILE.exists()
        assert readable(), length
    assert removed > 5
    assert capsys.readouterr().err.count("dvc.lock was cut short") == removed
    LOCKFILE.write_text("")
    repair()
    project.ok("dvc", "repro")
    assert LOCKFILE.read_text() == text
    assert Path("runs").read_text() == "x\n"


@pytest.mark.parametrize("text", ["", '{"read": {"/x": [{"pi'])
def test_notes_of_who_is_at_work_may_be_cut_short(project, text):
    RWLOCK.write_text(text)
    before = LOCKFILE.read_text()
    repair()
    assert LOCKFILE.read_text() == before
    project.ok("dvc", "repro", "--force")
    RWLOCK.write_text("{}")
    repair()
    assert RWLOCK.read_text() == "{}"
