"""Checks the parents that runs start from."""

from collections.abc import Mapping
from typing import Any

from ftmodel.model.config import ModelConfig
from pipelines.config.schema import Arm, Experiment


def parent_fits(experiment: Experiment, key: str, run: Arm) -> None:
    start = run.init_from
    for setting in ("extra_blocks", "random_prefix"):
        count = getattr(run, setting)
        if start and count:
            raise ValueError(f"{key}.{setting}: {count}, but its parent has none")
    if start.run is None:
        if start:
            check_copied_encoder(experiment, key, run)
        return
    here = f"{key}.init_from.run"
    others: Mapping[str, Arm] = experiment.arms if key.startswith("arms.") else experiment.runs
    parent: Arm = run
    for _ in others:  # more steps than this lead round in a circle
        if (name := parent.init_from.run) is None:
            break
        if name not in others:
            raise ValueError(f"{here}: {name!r} is not one of {', '.join(others)}")
        parent = others[name]
    else:
        raise ValueError(f"{here}: {start.run} starts, through other runs, from this run itself")
    parent = others[start.run]
    check_decoders(experiment, here, run, parent)
    if parent.kappa_bits is None:
        check_copied_encoder(experiment, key, run)


def check_copied_encoder(experiment: Experiment, key: str, run: Arm) -> None:
    """Raise ValueError if a new separate encoder is to begin as a copy of a block."""
    if not experiment.model_config(run).latent.copies_block and run.init_from.copy_encoder:
        raise ValueError(
            f"{key}.init_from.copy_encoder: true, but a separate encoder cannot be copied from a "
            "block of the decoder; false initialises it at random"
        )


def check_decoders(experiment: Experiment, key: str, run: Arm, parent: Arm) -> None:
    """Raise ValueError, starting with ``key``, unless a run can take over its parent's weights."""
    if run.data != parent.data:
        raise ValueError(f"{key}: its data are {parent.data}, not {run.data}, so the tokens differ")
    theirs, ours = (experiment.model_config(each) for each in (parent, run))
    pairs = theirs.decoder_differences(ours)
    if theirs.latent_bits and ours.latent_bits:  # the latent is taken over, too
        wanted = latent_settings(ours)
        pairs |= {name: (their, wanted[name]) for name, their in latent_settings(theirs).items()}
    for name, (their, our) in pairs.items():
        if their != our:
            raise ValueError(f"{key}: its {name} is {their}, not {our}")


def latent_settings(config: ModelConfig) -> dict[str, Any]:
    """Settings that a latent's weights depend on, without those on how they are trained."""
    design = {
        f"latent.{name}": value
        for name, value in vars(config.latent).items()
        if name not in ("free_bits", "gradient")
    }
    return {"latent_bits": config.latent_bits, "latent_block": config.lower_blocks + 1, **design}
