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


def trainings(runs: Mapping[str, Any], experiment: str) -> dict[str, dict[str, str]]:
    """``Experiment.trainings`` of composed ``runs``, without malformed ones (for validation)."""
    entries = {}
    for name, run in runs.items():
        if not isinstance(run, Mapping):
            continue
        start, data, model = (run.get(key) for key in ("init_from", "data", "model"))
        start = start if isinstance(start, Mapping) else {}
        if isinstance(data, str) and isinstance(model, str):
            path = f"data/tokens/{data}"  # from random weights
            if start.get("hf") is not None:
                path = str(start["hf"])
            elif start.get("run") is not None:
                path = f"checkpoints/{experiment}/{start['run']}"
            entries[str(name)] = {"data": data, "model": model, "parent": path}
    return entries


def suite_runs(runs: Mapping[str, Any], data: Mapping[str, Any], suite: Any) -> dict[str, str]:
    """``Experiment.suite_runs``: composed runs on text with the names of their data, none if the
    suite has no tasks; without malformed ones (for validation).
    """
    chosen = {}
    for name, run in runs.items() if suite.get("tasks") else ():
        entry = data.get(str(run.get("data"))) if isinstance(run, Mapping) else None
        if isinstance(entry, Mapping) and entry.get("source") == "text":
            chosen[str(name)] = run["data"]
    return chosen
