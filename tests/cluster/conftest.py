"""Training on two workers."""

import pytest

from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.load import load_experiment
from pipelines.train.distributed import fit_on_ray
from tests.cluster.forks import replace_ray
from tests.support.training import RUN, outcome, train
from tests.support.workspace import enter


def train_on_ray(name=RUN, **compute):
    experiment = load_experiment()
    for key, value in compute.items():
        setattr(experiment.compute, key, value)
    train(RunSpec(experiment, name), fit_on_ray)
    return outcome(name)


@pytest.fixture
def forked(workspace, monkeypatch):
    """The current folder, where training on Ray is training on forks."""
    replace_ray(monkeypatch)


@pytest.fixture(scope="session")
def two(tokenized, tmp_path_factory):
    """Outcome of RUN on two workers that nobody disturbs."""
    with pytest.MonkeyPatch.context() as patch:
        enter(tokenized, tmp_path_factory.mktemp("two"), patch)
        replace_ray(patch)
        return train_on_ray(workers=2)
