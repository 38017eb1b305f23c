"""Training in the current folder, which the fixture ``workspace`` makes, and what came of it."""

import csv
from pathlib import Path

import torch
from mlflow import MlflowClient

from pipelines.checkpoint import checkpoint_path, read_checkpoint
from pipelines.schema import load_experiment
from pipelines.shards import Shards
from pipelines.train import train

RUN = "free_k1_8"


def train_run(name=RUN, **changes):
    """Train in the current folder; returns the weights and the rows of the curve."""
    experiment = load_experiment()
    for key, value in changes.items():
        setattr(experiment.runs[name], key, value)
    shards = Shards(Path("data/tokens") / experiment.runs[name].data)
    curve = Path("results/smoke") / name / "curve.csv"
    train(experiment, name, shards, curve)
    content, _ = read_checkpoint(checkpoint_path("smoke", name))
    return content["state_dict"], list(csv.DictReader(curve.open()))


def losses(rows):
    return [(row["step"], row["ce_nats"], row.get("kl_bits")) for row in rows]


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def tracked_runs():
    client = MlflowClient(f"sqlite:///{Path('mlflow.db').resolve()}")
    experiment = client.get_experiment_by_name("smoke")
    return client, client.search_runs([experiment.experiment_id])
