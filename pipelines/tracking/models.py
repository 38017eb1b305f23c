"""The kept checkpoints of a run as MLflow's logged models.

Their weights stay where DVC has them: a tag names the file. MLflow has what they are and how they
score.
"""

from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus

from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.paths import checkpoint_path
from pipelines.tracking.outbox import Record

KEPT = ("kappa_bits", "seed", "data", "model")  # of a run's parameters


def model_name(run: str, tokens: int | None = None) -> str:
    """Of a run's last checkpoint, or of that of a smaller budget, as listed."""
    return f"{run}_at_{tokens}" if tokens else run


def of_checkpoint(
    manifest: Manifest, params: dict[str, str], tokens: int, listed: int | None = None
) -> dict[str, Any]:
    """Plain data for the record; ``tokens`` that it was trained on, ``listed`` if it is that of a
    smaller budget.
    """
    name, path = manifest.run_name, checkpoint_path(manifest.experiment, manifest.run_name, listed)
    return {
        "name": model_name(name, listed),
        "params": {key: params[key] for key in KEPT if key in params} | {"tokens": str(tokens)},
        "tags": {"checkpoint": str(path), "config_hash": manifest.spec_hash, "run": name},
    }


def models_of(client: MlflowClient, experiment_id: str, run_id: str) -> dict[str, LoggedModel]:
    """The logged models of a run, by name."""
    models = client.search_logged_models([experiment_id], f"source_run_id = '{run_id}'")
    return {model.name: model for model in models}


def send_models(client: MlflowClient, record: Record, count: int, experiment_id: str) -> None:
    """Make those of the first ``count`` models that the store lacks, and fill in all ids."""
    there = models_of(client, experiment_id, record.run_id)
    outputs = client.get_run(record.run_id).outputs
    linked = {output.model_id for output in (outputs.model_outputs if outputs else [])}
    ids = {}
    for content in record.models[:count]:
        model = there.get(content["name"]) or client.create_logged_model(
            experiment_id,
            content["name"],
            source_run_id=record.run_id,
            tags=content["tags"],
            params=content["params"],
            model_type="checkpoint",
        )
        if model.status != LoggedModelStatus.READY:
            client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        if model.model_id not in linked:
            output = LoggedModelOutput(model.model_id, int(content["params"]["tokens"]))
            client.log_outputs(record.run_id, [output])
        ids[content["name"]] = model.model_id
    record.model_ids = ids
