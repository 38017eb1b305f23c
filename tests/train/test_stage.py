"""Where a run is trained."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from pipelines.artifacts.run_spec import RunSpec
from pipelines.train import stage
from tests.support.settings import smoke
from tests.support.training import RUN


@pytest.mark.parametrize(
    ("workers", "address", "on_ray"), [(1, "", False), (2, "", True), (1, "auto", True)]
)
def test_several_workers_or_a_cluster_train_on_ray(monkeypatch, workers, address, on_ray):
    monkeypatch.setenv("RAY_ADDRESS", address)
    frozen = Mock(experiment=smoke(f"compute.workers={workers}"))
    names = "check_ray", "settle", "check_compile", "make_manifest", "fit", "publish"
    done = SimpleNamespace(**{name: Mock() for name in names})
    for name in names:
        monkeypatch.setattr(stage, name, getattr(done, name))
    monkeypatch.setattr(stage, "freeze", lambda *_: frozen)
    monkeypatch.setattr(stage, "alone", nullcontext)
    monkeypatch.setattr(RunSpec, "shards", Mock())
    distributed = SimpleNamespace(fit_on_ray=Mock())
    monkeypatch.setitem(sys.modules, "pipelines.train.distributed", distributed)
    stage.main(RUN)
    arguments = (RunSpec(frozen.experiment, RUN), done.make_manifest.return_value)
    ways = [(distributed.fit_on_ray, done.check_ray), (done.fit, done.settle, done.check_compile)]
    for way, taken in zip(ways, (on_ray, not on_ray), strict=True):
        assert [each.called for each in way] == [taken] * len(way)
        assert not taken or way[0].call_args.args == arguments
    done.publish.assert_called_once_with(*arguments)
