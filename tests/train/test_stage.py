"""Where a run is trained."""

import sys
from contextlib import nullcontext
from unittest.mock import ANY, Mock, call

import pytest

from pipelines.artifacts.run_spec import RunSpec
from pipelines.train import stage
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.settings import smoke
from tests.support.training import RUN


@arrives("compute", "workers compile")
@rejects("train.stage.main: «frozen.check→str»", "a training of changed parameters is handed on")
@pytest.mark.parametrize(
    ("workers", "address", "on_ray"), [(1, "", False), (2, "", True), (1, "auto", True)]
)
def test_several_workers_or_a_cluster_train_on_ray(monkeypatch, workers, address, on_ray):
    """One process takes its threads, and hides GPUs, before it tries the compiler. What is trained
    is handed on if its settings are still the same.
    """
    monkeypatch.setenv("RAY_ADDRESS", address)
    done = Mock()
    frozen = done.frozen
    frozen.experiment = smoke(f"compute.workers={workers}", "compute.compile=true")
    for name in ("check_ray", "settle", "check_compile", "make_manifest", "fit", "publish"):
        monkeypatch.setattr(stage, name, getattr(done, name))
    monkeypatch.setattr(stage, "freeze", lambda *_: frozen)
    monkeypatch.setattr(stage, "alone", nullcontext)
    monkeypatch.setattr(RunSpec, "shards", shards := Mock())
    monkeypatch.setitem(sys.modules, "pipelines.train.distributed", done)
    stage.main(RUN)
    run = RunSpec(frozen.experiment, RUN)
    trained = (run, done.make_manifest.return_value)
    first, fit = [call.settle(run.experiment.compute), call.check_compile(True)], call.fit
    if on_ray:
        first, fit = [call.check_ray()], call.fit_on_ray
    last = [fit(*trained), call.frozen.check(ANY), call.publish(*trained)]
    assert done.mock_calls == [*first, call.make_manifest(run, shards.return_value), *last]
