"""Derives from the settings of runs their architecture and budgets, which decide the weights, and
what DVC must know about them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ftmodel.config import LatentDesign, ModelConfig, given
from pipelines.config.schema import Arm, Experiment


@dataclass(frozen=True)
class Budget:
    """A token budget of a run, at whose end its model is kept and measured."""

    listed: int  # tokens, as configured
    steps: int  # optimizer steps that it pays for, whole batches
    annealed: bool  # whether the learning rate has come down to its end by then


def model_config(experiment: Experiment, run: Arm) -> ModelConfig:
    """The preset's architecture with the run's design of the latent; a baseline has none."""
    architecture = experiment.models[run.model].architecture
    if run.kappa_bits is None:
        return replace(
            architecture,
            n_layers=architecture.n_layers + run.extra_blocks,
            random_prefix=run.random_prefix,
            latent_bits=0,
            latent_block=None,
            latent=LatentDesign(),
        )
    bits = architecture.latent_bits if run.latent_bits is None else run.latent_bits
    block = architecture.latent_block if run.latent_block is None else run.latent_block
    design = architecture.latent.changed(given(run.latent))
    return replace(architecture, latent_bits=bits, latent_block=block, latent=design)


def batch_tokens(experiment: Experiment, run: Arm) -> int:
    """Tokens that an optimizer step predicts."""
    preset = experiment.models[run.model]
    return preset.optim.batch_size * preset.architecture.context


def budgets(experiment: Experiment, run: Arm) -> list[Budget]:
    """A run's budgets in rising order, its own last: decays under wsd, else snapshots."""
    wsd = experiment.models[run.model].optim.schedule == "wsd"
    batch = batch_tokens(experiment, run)
    smaller = [Budget(tokens, tokens // batch, annealed=wsd) for tokens in run.budgets]
    return [*smaller, Budget(run.tokens, run.tokens // batch, annealed=True)]


def trainings(runs: Mapping[str, Any], experiment: str) -> dict[str, dict[str, str]]:
    """``Experiment.trainings`` of composed ``runs``, leaving malformed ones to validation."""
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
    suite has no tasks. Malformed runs are left to validation.
    """
    chosen = {}
    for name, run in runs.items() if suite.get("tasks") else ():
        entry = data.get(str(run.get("data"))) if isinstance(run, Mapping) else None
        if isinstance(entry, Mapping) and entry.get("source") == "text":
            chosen[str(name)] = run["data"]
    return chosen
