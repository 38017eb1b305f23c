"""What MLflow shows about a run and an experiment before figures: parameters, tags, notes."""

import getpass
from dataclasses import asdict
from typing import Any

from mlflow.utils.mlflow_tags import (
    MLFLOW_GIT_COMMIT,
    MLFLOW_RUN_NOTE,
    MLFLOW_SOURCE_NAME,
    MLFLOW_SOURCE_TYPE,
    MLFLOW_USER,
)
from mlflow.utils.validation import MAX_TAG_VAL_LENGTH as MAX_TAG

from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.run_results import fraction
from pipelines.common.errors import name_user
from pipelines.config.arms import group_by_seed
from pipelines.config.schema import Experiment

WHAT_IS_COMPARED = (
    "Arms are compared by `bound/bits_per_token` and `bound/bits_per_byte` alone (the exact NLL of "
    "a baseline, the filtering bound of a Free Transformer), and only with arms of the same data, "
    "model and token budget, over all seeds, by the rule in docs/measurement/differences.md. "
    "Training losses, and the cross-entropy of a Free Transformer, are not comparable between arms."
)

NESTED = ("init_from", "latent")  # settings of a run that have a form of their own


def run_params(manifest: Manifest, experiment: Experiment) -> dict[str, str]:
    """Every setting of a run; one that is not set, such as κ of a baseline, is left out."""
    parent, optim = manifest.parent, experiment.models[manifest.run["model"]].optim
    precision = experiment.compute.precision
    architecture = dict(manifest.architecture)
    design = architecture.pop("latent", {})
    if architecture["latent_bits"]:
        architecture |= {f"latent.{key}": str(value) for key, value in design.items()}
    settings: dict[str, Any] = {
        **{key: value for key, value in manifest.run.items() if key not in NESTED},
        **({f"init_from.{k}": v for k, v in manifest.run["init_from"].items()} if parent else {}),
        **{f"parent.{key}": value for key, value in parent.items()},
        **{f"architecture.{key}": value for key, value in architecture.items()},
        **{f"optim.{key}": value for key, value in asdict(optim).items()},
        "device": manifest.device,
        "vocab_size": manifest.vocab_size,
        "steps": experiment.budgets(experiment.runs[manifest.run_name])[-1].steps,
        "precision": precision.value,
        "git_revision": manifest.git_revision,
        "data_hash": manifest.data_hash,
        "config_hash": manifest.spec_hash,
    }
    kappa = manifest.run["kappa_bits"]
    settings["kappa_axis"] = -1 if kappa is None else kappa  # a chart leaves out runs without one
    return {key: str(value) for key, value in settings.items() if value not in (None, "")}


def run_tags(manifest: Manifest, command: str = "") -> dict[str, str]:
    """The tags of a run; ``command`` has made it, by default DVC's command."""
    command = command or f"dvc repro train@{manifest.run_name}"
    tags = {
        "arm": "baseline" if manifest.run["kappa_bits"] is None else "free transformer",
        MLFLOW_GIT_COMMIT: manifest.git_revision,
        **source_tags(run_note(manifest, command), command),
    }
    return {key: value for key, value in tags.items() if value}


def source_tags(note: str, command: str) -> dict[str, str]:
    """Tags that MLflow shows: the description, and who ran what."""
    name_user()
    return {
        MLFLOW_RUN_NOTE: note[:MAX_TAG],
        MLFLOW_SOURCE_NAME: command,
        MLFLOW_SOURCE_TYPE: "LOCAL",
        MLFLOW_USER: getpass.getuser(),
    }


def run_note(manifest: Manifest, command: str) -> str:
    run = manifest.run
    kappa = run["kappa_bits"]
    if kappa is None:
        blocks = run.get("extra_blocks") or 0
        arm = f"Baseline, with {blocks} more block{'s' * (blocks > 1)}" if blocks else "Baseline"
        if prefix := run.get("random_prefix"):
            arm += f", with a random prefix of {prefix}"
    else:
        arm = f"Free Transformer with κ = {fraction(kappa)} bit{'s' * (kappa > 1)} per token"
    lines = (
        f"**{arm}** on `{run['data']}`, model `{run['model']}`, {run['tokens']:,} tokens, "
        f"seed {run['seed']}.",
        WHAT_IS_COMPARED,
        f"Made by `{command}` in experiment `{manifest.experiment}`, with the settings "
        f"under Parameters; the weights are in `checkpoints/{manifest.experiment}/"
        f"{manifest.run_name}/`.",
    )
    return "\n\n".join(lines)


def experiment_note(experiment: Experiment) -> str:
    """Arms, what is asked and expected of them, and what may be compared."""
    rows = []
    for arm, names in group_by_seed(experiment.runs).items():
        run = experiment.runs[names[0]]
        kappa = "no latent" if run.kappa_bits is None else fraction(run.kappa_bits)
        seeds = ", ".join(str(experiment.runs[name].seed) for name in names)
        rows.append(f"| {arm} | {kappa} | {run.data} | {run.model} | {run.tokens:,} | {seeds} |")
    parts = [
        experiment.question or "",
        "\n".join(f"- Expected: {each}" for each in experiment.expectation),
        "| arm | κ, bits per token | data | model | tokens | seeds |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows),
        WHAT_IS_COMPARED,
        f"Made by `make repro EXPERIMENT={experiment.name}`.",
    ]
    return "\n\n".join(part for part in parts if part)[:MAX_TAG]


def statement_tags(experiment: Experiment) -> dict[str, str]:
    """What the experiment asks and expects, as tags."""
    expected = "\n".join(map(str, experiment.expectation))
    tags = {"question": experiment.question or "", "expectation": expected}
    return {key: text[:MAX_TAG] for key, text in tags.items() if text}
