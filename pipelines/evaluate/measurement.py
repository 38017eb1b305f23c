"""What a measurement is given. Measurements are functions of this folder that return results."""

from dataclasses import dataclass

import torch

from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.tokens.shards import Shards
from pipelines.config.data import Data
from pipelines.config.schema import EvaluationConfig


@dataclass(frozen=True)
class Context:
    """A model, and the held-out data that it is measured on."""

    model: FreeTransformer
    shards: Shards
    data: Data
    settings: EvaluationConfig
    device: torch.device
