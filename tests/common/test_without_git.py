"""A copy of the project without .git, in which DVC would refuse to do anything."""

import shutil
import subprocess
import sys
from pathlib import Path

from pipelines.common.without_git import allow_no_git

ROOT = Path(__file__).parents[2]


def dvc(folder):
    command = [sys.executable, "-m", "dvc", "status"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_dvc_works_in_a_copy_without_git(tmp_path):
    (tmp_path / ".dvc").mkdir()
    shutil.copy(ROOT / ".dvc/config", tmp_path / ".dvc")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    assert "is not a git repository" in dvc(tmp_path).stderr
    assert allow_no_git(tmp_path)
    assert dvc(tmp_path).returncode == 0
    assert not allow_no_git(tmp_path)  # it is said once


def test_in_git_nothing_changes(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "project/.dvc").mkdir(parents=True)
    assert not allow_no_git(tmp_path / "project")
    assert not any((tmp_path / "project/.dvc").iterdir())
