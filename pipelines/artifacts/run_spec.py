"""A run of an experiment, in the form that every stage receives."""

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from ftmodel.config import ModelConfig
from pipelines.artifacts.tokens.shards import Shards
from pipelines.config import derived
from pipelines.config.data import Data
from pipelines.config.derived import Budget
from pipelines.config.schema import Experiment, Optim, Run
from pipelines.host.files import (
    checkpoint_path,
    results_folder,
    resume_folder,
    tokens_folder,
)


@dataclass(frozen=True)
class RunSpec:
    """A run's settings, what follows from them, and where its files lie."""

    experiment: Experiment
    name: str

    @property
    def run(self) -> Run:
        return self.experiment.runs[self.name]

    @property
    def optim(self) -> Optim:
        return self.experiment.models[self.run.model].optim

    @property
    def data(self) -> Data:
        entry: Data = self.experiment.data[self.run.data]
        return entry

    @cached_property
    def config(self) -> ModelConfig:
        """The architecture: its preset's, without the latent for a baseline."""
        return derived.model_config(self.experiment, self.run)

    @cached_property
    def design_changes(self) -> dict[str, Any]:
        """The settings in which the run's latent differs from its preset's."""
        preset = self.experiment.models[self.run.model].architecture
        own = self.run.design_settings
        of_preset = {key: attrgetter(key)(preset) for key in own}
        if preset.latent_block is None:
            of_preset["latent_block"] = preset.lower_blocks + 1
        return {key: value for key, value in own.items() if value != of_preset[key]}

    @cached_property
    def budgets(self) -> list[Budget]:
        """Token budgets in rising order; the last is the whole run's."""
        return derived.budgets(self.experiment, self.run)

    @property
    def steps(self) -> int:
        """Optimizer steps that the token budget pays for."""
        return self.budgets[-1].steps

    @property
    def batch_tokens(self) -> int:
        """Tokens that an optimizer step predicts."""
        return derived.batch_tokens(self.experiment, self.run)

    def shards(self) -> Shards:
        """The tokens of its data; raises UserError if there are none."""
        return Shards(tokens_folder(self.run.data))

    def checkpoint(self, tokens: int | None = None) -> Path:
        return checkpoint_path(self.experiment.name, self.name, tokens)

    @property
    def results(self) -> Path:
        return results_folder(self.experiment.name, self.name)

    @property
    def resume(self) -> Path:
        return resume_folder(self.experiment.name, self.name)
