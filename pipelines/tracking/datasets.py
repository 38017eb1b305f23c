"""The data of a run as MLflow's dataset inputs: plain data for the record, and MLflow's types."""

import json

from mlflow.entities import Dataset, DatasetInput, InputTag
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from pipelines.artifacts.corpus import SPLITS
from pipelines.artifacts.paths import tokens_folder


def of_data(data: str, data_hash: str) -> list[dict[str, str]]:
    """Dataset inputs for the splits of an entry under `data`."""
    source = str(tokens_folder(data))
    return [
        dataset(split_name(data, split), data_hash, source, context)
        for split, context in zip(SPLITS, ("train", "eval"), strict=True)
    ]


def split_name(data: str, split: str) -> str:
    """The name of a dataset: MLflow tells a run's inputs apart by name and digest alone."""
    return f"{data}_{split}"


def dataset(name: str, digest: str, source: str, context: str) -> dict[str, str]:
    """A dataset input. ``source`` is relative to the project, so it is right wherever that lies."""
    return {
        "name": name,
        "digest": digest,
        "source_type": "local",
        "source": json.dumps({"uri": source}),
        "context": context,
    }


def dataset_input(content: dict[str, str]) -> DatasetInput:
    fields = {key: value for key, value in content.items() if key != "context"}
    return DatasetInput(Dataset(**fields), [InputTag(MLFLOW_DATASET_CONTEXT, content["context"])])
