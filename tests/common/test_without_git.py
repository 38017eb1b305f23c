"""A copy of the project without .git, in which DVC would refuse to do anything."""

import shutil
from pathlib import Path

import pytest
from dvc.exceptions import DvcException
from dvc.repo import Repo

from pipelines.common.without_git import allow_no_git

ROOT = Path(__file__).parents[2]


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
