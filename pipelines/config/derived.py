"""What follows from the configuration of runs: their budgets, and what DVC must know of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Budget:
    """A token budget of a run, at whose end its model is kept and measured."""

    listed: int  # tokens, as configured
    steps: int  # optimizer steps that it pays for, whole batches
    annealed: bool  # whether the learning rate has come down to its end by then


def parent_path(experiment: str, data: str, hf: object, run: object) -> str:
    """The path of what a run starts from: a folder or file of Hugging Face's, the checkpoints of
    another run, or, from random weights, its data.
    """
    if hf is not None:
        return str(hf)
    return f"data/tokens/{data}" if run is None else f"checkpoints/{experiment}/{run}"


def trainings(runs: Mapping[str, Any], experiment: str) -> dict[str, dict[str, str]]:
    """``Experiment.trainings`` of composed ``runs``, without malformed ones (for validation)."""
    entries = {}
    for name, run in runs.items():
        if not isinstance(run, Mapping):
            continue
        start, data, model = (run.get(key) for key in ("init_from", "data", "model"))
        start = start if isinstance(start, Mapping) else {}
        if isinstance(data, str) and isinstance(model, str):
            path = parent_path(experiment, data, start.get("hf"), start.get("run"))
            entries[str(name)] = {"data": data, "model": model, "parent": path}
    return entries
