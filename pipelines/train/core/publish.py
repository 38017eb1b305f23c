"""What a trained run hands on: its checkpoints, its configuration, its curve and its journal."""

import os
import shutil
from dataclasses import asdict
from pathlib import Path

from omegaconf import OmegaConf

from pipelines.artifacts.checkpoint import HISTORY, Manifest
from pipelines.artifacts.curve import row_of, write_curve
from pipelines.artifacts.paths import JOURNAL
from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.atomic_files import replace_folder
from pipelines.train.core.segments import budget_path, newest_checkpoint


def publish(spec: RunSpec, manifest: Manifest) -> None:
    """Put a trained run's checkpoints, configuration, journal and curve where DVC expects them."""
    run, root = spec.run, manifest.resume
    newest = newest_checkpoint(root, manifest)
    assert newest is not None, "training left no checkpoint"
    last, content = newest
    assert int(last.stem) == spec.steps, f"{last} is not the end"
    target = spec.checkpoint()
    with replace_folder(target.parent) as folder:
        link(last, folder / target.name)
        for tokens in run.budgets:
            link(budget_path(root, tokens), folder / f"{tokens}.ckpt")
        experiment = spec.experiment
        preset = experiment.models[run.model]
        resolved = {"experiment": experiment.name, "run": asdict(run), "model": asdict(preset)}
        OmegaConf.save(OmegaConf.create(resolved), folder / "config.yaml")
        shutil.copyfile(root / JOURNAL, folder / JOURNAL)
    curve = spec.results / "curve.csv"
    curve.parent.mkdir(parents=True, exist_ok=True)
    write_curve(curve, [row_of(figures) for figures in content[HISTORY]["rows"]])


def link(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
