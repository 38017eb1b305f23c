"""Training in the current folder, which the fixture ``workspace`` makes, and what came of it."""

import csv
from pathlib import Path

import pytest
import torch
from mlflow import MlflowClient

from pipelines.artifacts.checkpoint import read_checkpoint
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.load import load_experiment
from pipelines.host.files import checkpoint_path
from pipelines.train.core.segments import make_manifest, publish
from pipelines.train.core.trainer import fit

RUN = "free_k1_8"


def train_run(name=RUN, compute=None, optim=None, every_tokens=None, **changes):
    """Train in the current folder; returns the weights and the rows of the curve."""
    experiment = load_experiment()
    for key, value in changes.items():
        setattr(experiment.runs[name], key, value)
    for key, value in (compute or {}).items():
        setattr(experiment.compute, key, value)
    experiment.evaluation.every_tokens = every_tokens
    vars(experiment.models[experiment.runs[name].model].optim).update(optim or {})
    train(RunSpec(experiment, name))
    return outcome(name)


def train(spec, fit=fit):
    """To the end, here or by another ``fit``; publishes what came of it."""
    manifest = make_manifest(spec, spec.shards())
    fit(spec, manifest)
    publish(spec, manifest)


def resume(name=RUN):
    """The folder of what it goes on from."""
    spec = RunSpec(load_experiment(), name)
    return make_manifest(spec, spec.shards()).resume


def outcome(name=RUN):
    """Weights and rows of the curve of the run last published in the current folder."""
    content, _ = read_checkpoint(checkpoint_path("smoke", name))
    curve = Path("results/smoke") / name / "curve.csv"
    return content["state_dict"], list(csv.DictReader(curve.open()))


def losses(rows):
    return [(row["step"], row["ce_nats"], row.get("kl_bits")) for row in rows]


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def tracked_runs(folder=Path(), experiment="smoke"):
    """A client of the folder's MLflow store, and the runs of the experiment there, but for the one
    of its name in which they are nested.
    """
    client = MlflowClient(f"sqlite:///{(folder / 'mlflow.db').resolve()}")
    key = client.get_experiment_by_name(experiment).experiment_id
    return client, [run for run in client.search_runs([key]) if run.info.run_name != experiment]


def check_close(rows, expected, rel=1e-4):
    """The same steps, and every figure of theirs but speed equal up to ``rel`` (or 1e-6)."""
    assert [row["step"] for row in rows] == [row["step"] for row in expected]
    for row, wanted in zip(rows, expected, strict=True):
        for key in wanted.keys() - {"tokens_per_second"}:
            assert float(row[key]) == pytest.approx(float(wanted[key]), rel=rel, abs=1e-6), key
