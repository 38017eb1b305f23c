"""Fixtures of the pipeline tests."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir, closing
from pathlib import Path

import pytest
from filelock import FileLock

from tests.support.project_copy import ROOT, Project
from tests.support.warm_python import WarmPython

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is imported: no test needs a network


@pytest.fixture(scope="session")
def warm_python() -> Iterator[Path]:
    """A `python` for `python -m …` that has imported the libraries already."""
    with closing(WarmPython()) as warm:
        yield warm.command


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Project], None]) -> Project:
    """A project that all workers of pytest-xdist share, made by the first one that asks for it."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    project, ready = Project(folder / name, fresh=False), folder / f"{name}.ready"
    with FileLock(folder / f"{name}.lock"):
        if not ready.exists():
            shutil.rmtree(project.folder, ignore_errors=True)  # another worker's failure
            project.create()
            make(project)
            ready.touch()
    return project


@pytest.fixture(scope="session")
def tokenized(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A smoke project with its data tokenized and an empty MLflow store, made once as both take
    seconds; tests must not change what is there.
    """

    def make(project: Project) -> None:
        from pipelines.tracking.store import create
        from tests.support.commands import call

        with chdir(project.folder):
            call("compose", "experiment=smoke")
            for stage in ("data", "tokenize"):
                for name in ("target", "stdlib"):
                    call(stage, name)
        create(project.folder / "mlflow.db")

    return once(tmp_path_factory, "tokenized", make)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, warm_python: Path) -> Project:
    """The smoke experiment, run once from nothing, and repro.log with what DVC said; tests must
    not change it, and two commands of DVC at once would: run these in a copy. Its folder and its
    Python have paths with a space.
    """

    def make(project: Project) -> None:
        made = Project(project.folder, fresh=False, python=warm_python)
        made.compose()
        (project.folder / "repro.log").write_text(made.ok("dvc", "repro"))

    return once(tmp_path_factory, "finished lab", make)


@pytest.fixture
def copied(finished: Project, tmp_path: Path, warm_python: Path) -> Project:
    """A finished project of one's own, whose stages start fast."""
    shutil.copytree(finished.folder, tmp_path / "project", symlinks=True)
    return Project(tmp_path / "project", fresh=False, python=warm_python)


@pytest.fixture
def conf(tmp_path, monkeypatch):
    """The current folder, which has a copy of conf/ alone."""
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def enter(project, folder, monkeypatch):
    """Make ``folder`` the current one, with the composed smoke experiment and its tokens."""
    for name in ("params.yaml", "mlflow.db"):
        shutil.copy(project.folder / name, folder)
    for name in ("data", "tasks"):
        (folder / name).symlink_to(project.folder / name)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def workspace(tokenized, tmp_path, monkeypatch):
    return enter(tokenized, tmp_path, monkeypatch)
