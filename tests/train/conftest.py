"""Trainings that several tests look at."""

from types import SimpleNamespace

import pytest

from pipelines.train.core import trainer
from pipelines.train.core.module import TrainingModule
from tests.support.training import train_run
from tests.support.workspace import enter


@pytest.fixture(scope="session")
def trained(tokenized, tmp_path_factory):
    """The folder in which RUN was trained in one go, which tests must not change, its weights and
    the rows of its curve.
    """
    with pytest.MonkeyPatch.context() as patch:
        folder = enter(tokenized, tmp_path_factory.mktemp("trained"), patch)
        weights, rows = train_run()
    return SimpleNamespace(folder=folder, weights=weights, rows=rows)


@pytest.fixture
def every_step(monkeypatch):
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)


@pytest.fixture
def steps_taken(monkeypatch):
    """The optimizer steps taken, by number, from 1."""
    taken = []
    inherited = TrainingModule.configure_gradient_clipping

    def note(self, *arguments, **options):
        taken.append(self.global_step + 1)
        inherited(self, *arguments, **options)

    monkeypatch.setattr(TrainingModule, "configure_gradient_clipping", note)
    return taken
