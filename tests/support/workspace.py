"""Fixtures of the pipeline tests."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.project_copy import Project
from tests.support.warm_python import WarmPython

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is imported: no test needs a network


@pytest.fixture(scope="session")
def warm_python() -> Iterator[Path]:
    """A `python` for `python -m …` that has imported the libraries already."""
    with closing(WarmPython()) as warm:
        yield warm.command


@pytest.fixture(scope="session")
def tokenized(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A smoke project with its data tokenized and an empty MLflow store, made once as both take
    seconds; tests must not change what is there.
    """
    project = Project(tmp_path_factory.mktemp("tokenized") / "project")
    project.compose()
    for stage in ("data", "tokenize"):
        for name in ("target", "stdlib"):
            project.ok("python", "-m", f"pipelines.{stage}", name)
    project.ok("mlflow", "db", "upgrade", f"sqlite:///{project.folder}/mlflow.db")
    return project


def enter(project, folder, monkeypatch):
    """Make ``folder`` the current one, with the composed smoke experiment and its tokens."""
    for name in ("params.yaml", "mlflow.db"):
        shutil.copy(project.folder / name, folder)
    (folder / "data").symlink_to(project.folder / "data")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return folder


@pytest.fixture
def workspace(tokenized, tmp_path, monkeypatch):
    return enter(tokenized, tmp_path, monkeypatch)
