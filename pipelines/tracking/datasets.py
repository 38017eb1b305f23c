"""The data of a run as MLflow's dataset inputs: plain data for the record, and MLflow's types."""

import json
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from pipelines.artifacts.corpus import SPLITS
from pipelines.artifacts.paths import tokens_folder
from pipelines.artifacts.tokens.shards import read_metadata
from pipelines.common.errors import UserError

CONTEXT_OF_SPLIT = dict(zip(SPLITS, ("train", "eval"), strict=True))


def of_data(data: str, data_hash: str) -> list[dict[str, str]]:
    """The splits of an entry under `data`, with their sizes if its tokens are still there."""
    try:
        metadata = read_metadata(tokens_folder(data))
        sizes = metadata.splits if metadata.hash == data_hash else {}
    except UserError:
        sizes = {}
    profiles = {
        split: {"tokens": size.tokens, "documents": size.documents, "bytes": size.bytes}
        for split, size in sizes.items()
    }
    source = str(tokens_folder(data))
    return [
        dataset(split_name(data, split), data_hash, source, context, profiles.get(split))
        for split, context in CONTEXT_OF_SPLIT.items()
    ]


def split_name(data: str, split: str) -> str:
    """The name of a dataset: MLflow tells a run's inputs apart by name and digest alone."""
    return f"{data}_{split}"


def held_out_name(data: str) -> str:
    """The dataset on which the bounds are measured."""
    return split_name(data, SPLITS[-1])


def dataset(
    name: str, digest: str, source: str, context: str, profile: dict[str, Any] | None = None
) -> dict[str, str]:
    """``source``: a path within the project, so that it is right wherever that lies."""
    return {
        "name": name,
        "digest": digest,
        "source_type": "local",
        "source": json.dumps({"uri": source}),
        "context": context,
        "profile": json.dumps(profile or {}),
    }


def dataset_input(content: dict[str, str]) -> DatasetInput:
    fields = {key: value for key, value in content.items() if key != "context"}
    return DatasetInput(Dataset(**fields), [InputTag(MLFLOW_DATASET_CONTEXT, content["context"])])
