"""The interface of a measurement, which applies to some models on some data, and fills in its
fields of evaluation.json and details.json.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.results import Details, EvaluationResult
from pipelines.artifacts.tokens.shards import Shards
from pipelines.config.data import Data
from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate.bounds import DocumentScores


@dataclass
class Context:
    """A model, the data that it is measured on, and the results so far."""

    model: FreeTransformer
    shards: Shards
    data: Data
    settings: EvaluationConfig
    device: torch.device
    scores: DocumentScores  # of the held-out documents
    evaluation: EvaluationResult
    details: Details


class Measurement(Protocol):
    """A module of this folder; it draws all random numbers from its own stream."""

    def applies(self, context: Context) -> bool:
        """Whether this model can be measured on this data."""

    def measure(self, context: Context) -> None:
        """Fill in the fields of ``context.evaluation`` and ``context.details``."""
