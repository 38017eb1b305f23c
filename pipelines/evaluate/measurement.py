"""The interface of a measurement, which applies to some models on some data, and fills in its
fields of evaluation.json and details.json.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

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


class Measurement(NamedTuple):
    """Two functions of this folder. Each draws its random numbers from a stream of its own."""

    applies: Callable[[Context], bool]  # whether this model can be measured on this data
    measure: Callable[[Context], None]  # fills in fields of ``evaluation`` and ``details``
