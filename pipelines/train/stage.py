"""Stage `train`: one run of the experiment.    python -m pipelines.train <run>

Writes checkpoints/<experiment>/<run>/ (last.ckpt, <tokens>.ckpt for each smaller budget, the
resolved configuration) and results/<experiment>/<run>/curve.csv. A killed run goes on from its
last good checkpoint, kept in resume/ until the run is evaluated.
"""

import csv
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from pipelines.artifacts.checkpoint import ENTRY, HISTORY, read_checkpoint, whole
from pipelines.artifacts.paths import checkpoint_path, results_folder, resume_folder, tokens_folder
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.atomic_files import alone, replace_folder
from pipelines.common.console import argument
from pipelines.config.load import load_stage
from pipelines.config.schema import Experiment
from pipelines.train.core.manifest import make_card
from pipelines.train.core.segments import kept_path, newest_checkpoint
from pipelines.train.core.trainer import Place, fit


def publish(experiment: Experiment, name: str) -> None:
    """Put a trained run's checkpoints, configuration and curve where DVC expects them."""
    run, root = experiment.runs[name], resume_folder(experiment.name, name)
    card = make_card(experiment, name, Shards(tokens_folder(run.data)))
    found = newest_checkpoint(root, card)
    assert found is not None, "training left no checkpoint"
    last, content = found
    assert int(last.stem) == experiment.steps(run), f"{last} is not the end"
    rows = content[HISTORY]["rows"]
    target = checkpoint_path(experiment.name, name)
    with replace_folder(target.parent) as folder:
        put(last, content, folder / target.name)
        for tokens in run.budgets:
            kept = kept_path(root, tokens)
            put(kept, read_checkpoint(kept, mmap=True)[0], folder / f"{tokens}.ckpt")
        preset = experiment.models[run.model]
        resolved = {"experiment": experiment.name, "run": asdict(run), "model": asdict(preset)}
        OmegaConf.save(OmegaConf.create(resolved), folder / "config.yaml")
    curve = results_folder(experiment.name, name) / "curve.csv"
    curve.parent.mkdir(parents=True, exist_ok=True)
    with open(curve, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def put(source: Path, content: dict[str, Any], target: Path) -> None:
    """Give a checkpoint a second name; of one in parts, the model alone is put together."""
    if source.is_dir():
        state = {key: whole(value) for key, value in content["state_dict"].items()}
        torch.save({"state_dict": state, ENTRY: content[ENTRY]}, target)
    else:
        link(source, target)


def link(source: Path, target: Path) -> None:
    """A second name for a file, or a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def main() -> None:
    name = argument("run")
    experiment = load_stage("runs", name)
    with alone(resume_folder(experiment.name, name)):
        if experiment.compute.workers > 1 or os.environ.get("RAY_ADDRESS"):
            from pipelines.train.distributed import fit_on_ray

            fit_on_ray(experiment, name)
        else:
            fit(experiment, name, Place())
        publish(experiment, name)
