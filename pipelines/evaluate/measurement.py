"""What a measurement is given. Measurements are functions of this folder that return results."""

from dataclasses import dataclass

import torch

from ftmodel.analysis.work import EvaluationWork
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

    @property
    def scored_tokens(self) -> int | None:
        """The most held-out tokens that are scored; None: all."""
        assert not isinstance(self.settings.tokens, str), "`auto` is settled before"
        return self.settings.tokens


@dataclass(frozen=True)
class Allowance:
    """What a model's evaluation may cost if its particles are `auto` without a limit of their own.

    ``share`` is the proposal of z that its filter takes where comparing several would cost more.
    """

    work: EvaluationWork
    passes: float  # as ftmodel/analysis/work.py counts them
    share: float
