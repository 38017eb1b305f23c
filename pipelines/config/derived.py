"""What follows from a run's configuration: its architecture, its steps and its budgets."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ftmodel.designs.design import LatentDesign
from ftmodel.model.config import ModelConfig

if TYPE_CHECKING:
    from pipelines.config.schema import Arm, Experiment


@dataclass(frozen=True)
class Budget:
    """A token budget of a run, at whose end its model is kept and measured."""

    listed: int  # tokens, as configured
    steps: int  # optimizer steps that it pays for, whole batches
    annealed: bool  # whether the learning rate has come down to its end by then


def model_config(experiment: "Experiment", run: "Arm") -> ModelConfig:
    """The architecture of a run: its preset's, with its own design of the latent, or without a
    latent for a baseline.
    """
    architecture = experiment.models[run.model].architecture
    if run.kappa_bits is None:
        blocks = architecture.n_layers + run.extra_blocks
        return replace(
            architecture, n_layers=blocks, latent_bits=0, latent_block=None, latent=LatentDesign()
        )
    bits = architecture.latent_bits if run.latent_bits is None else run.latent_bits
    block = architecture.latent_block if run.latent_block is None else run.latent_block
    design = architecture.latent.changed(run.latent.settings)
    return replace(architecture, latent_bits=bits, latent_block=block, latent=design)


def design_changes(experiment: "Experiment", run: "Arm") -> dict[str, Any]:
    """The settings in which the latent of a run differs from its preset's."""
    preset = experiment.models[run.model].architecture
    of_preset = {key: attrgetter(key)(preset) for key in run.design_settings}
    if preset.latent_block is None:
        of_preset["latent_block"] = preset.lower_blocks + 1
    return {key: value for key, value in run.design_settings.items() if value != of_preset[key]}


def batch_tokens(experiment: "Experiment", run: "Arm") -> int:
    """Tokens that an optimizer step predicts."""
    preset = experiment.models[run.model]
    return preset.optim.batch_size * preset.architecture.context


def budgets(experiment: "Experiment", run: "Arm") -> list[Budget]:
    """The budgets of a run as they rise, the whole run's last.

    Under wsd each has a decay of its own; under the cosine the smaller ones are snapshots on the
    way of the whole run's.
    """
    wsd = experiment.models[run.model].optim.schedule.value == "wsd"
    batch = batch_tokens(experiment, run)
    return [
        *(Budget(tokens, tokens // batch, annealed=wsd) for tokens in run.budgets),
        Budget(run.tokens, run.tokens // batch, annealed=True),
    ]


def parent_path(experiment: str, data: str, hf: object, run: object) -> str:
    """The path of what a run starts from: a folder or file of Hugging Face's, the checkpoints of
    another run, or, from random weights, its data.
    """
    if hf is not None:
        return str(hf)
    return f"data/tokens/{data}" if run is None else f"checkpoints/{experiment}/{run}"


def trainings(runs: Mapping[str, Any], experiment: str) -> dict[str, dict[str, str]]:
    """``Experiment.trainings`` of composed ``runs``; what is malformed is left out, for validation
    to name.
    """
    entries = {}
    for name, run in runs.items():
        if not isinstance(run, Mapping):
            continue
        start, data, model = (run.get(key) for key in ("init_from", "data", "model"))
        start = start if isinstance(start, Mapping) else {}
        if isinstance(data, str) and isinstance(model, str):
            path = parent_path(experiment, data, start.get("hf"), start.get("run"))
            entries[str(name)] = {"data": data, "model": model, "parent": path}
    return entries
