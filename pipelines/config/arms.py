"""How runs belong together: runs of one arm differ only in their seed, arms of one family may be
compared, and a run may start from a parent whose weights fit.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ftmodel.config import ModelConfig
from pipelines.config import derived
from pipelines.config.init_from import InitFrom
from pipelines.config.schema import Arm, Experiment, Run
from pipelines.host.errors import not_one_of

FAMILY = ("data", "model", "tokens", "init_from")  # the same for arms that may be compared


def recipe(run: Run) -> dict[str, Any]:
    """Settings that an arm's runs share; smaller budgets are only measured on the way."""
    return {key: value for key, value in vars(run).items() if key not in ("seed", "budgets")}


def family_of(run: Run, arms: Mapping[str, str]) -> tuple[Any, ...]:
    """A key that is equal for runs whose arms may be compared; ``arms`` as from `arm_of_each`.

    A parent counts as its arm, because each seed of an arm may start from its own seed's parent.
    """
    *settings, start = (getattr(run, key) for key in FAMILY)
    return *settings, start.hf or "", arms[start.run] if start.run else ""


def family_words(family: tuple[Any, ...]) -> list[str]:
    """`family_of` as words for a name, without the start if it is random weights."""
    return [re.sub(r"\W+", "_", str(value)) for value in family if value != ""]


def arm_of_each(runs: dict[str, Run]) -> dict[str, str]:
    """The name of each run's arm. ``runs`` must be all runs of an experiment: finished ones do not
    tell which arms there are.
    """
    return {name: arm for arm, names in group_by_seed(runs).items() for name in names}


def group_by_seed(runs: dict[str, Run]) -> dict[str, list[str]]:
    """Names of the runs of each arm, in order; a run that repeats a seed is an arm of its own."""
    groups: dict[Any, list[list[str]]] = defaultdict(list)
    ordered: list[list[str]] = []
    for name, run in runs.items():
        same = groups[arm_key(name, runs)]
        for group in same:
            if all(runs[other].seed != run.seed for other in group):
                group.append(name)
                break
        else:
            same.append([name])
            ordered.append(same[-1])
    names = []
    for group in ordered:
        # What names <arm>_s<seed> have in common, else the name of the first run
        stems = {name.removesuffix(f"_s{runs[name].seed}") for name in group}
        names.append(stems.pop() if len(stems) == 1 else group[0])
    if len(set(names)) < len(names):
        names = [group[0] for group in ordered]
    return dict(zip(names, ordered, strict=True))


def arm_key(name: str, runs: Mapping[str, Run]) -> str:
    """A key that is equal for runs of one arm; their parents may differ in seed, too."""
    settings = recipe(runs[name])
    start: InitFrom = settings["init_from"]
    if start.run is not None:
        settings["init_from"] = replace(start, run=arm_key(start.run, runs))
    return repr(settings)


def kind_of(run: Run) -> str:
    """What sort of arm a run belongs to, in words."""
    if run.kappa_bits is not None:
        return "Free Transformer"
    kind = "baseline"
    if blocks := run.extra_blocks:
        kind += f" + {blocks} block" if blocks == 1 else f" + {blocks} blocks"
    if run.random_prefix:
        kind += f" + random prefix of {run.random_prefix}"
    return kind


def parent_fits(experiment: Experiment, key: str, run: Arm) -> None:
    """Raise ValueError, starting with the dotted key, for a parent that a run cannot start from."""
    start = run.init_from
    for setting in ("extra_blocks", "random_prefix"):
        count = getattr(run, setting)
        if start and count:
            raise ValueError(f"{key}.{setting}: {count}, but its parent has none")
    if start.run is None:
        if start:
            check_copied_encoder(experiment, key, run)
        return
    parent_key = f"{key}.init_from.run"
    others: Mapping[str, Arm] = experiment.arms if key.startswith("arms.") else experiment.runs
    parent: Arm = run
    for _ in others:  # more steps than this lead round in a circle
        if (name := parent.init_from.run) is None:
            break
        if name not in others:
            raise ValueError(f"{parent_key}: {not_one_of(name, others)}")
        parent = others[name]
    else:
        raise ValueError(
            f"{parent_key}: {start.run} starts, through other runs, from this run itself"
        )
    parent = others[start.run]
    check_decoders(experiment, parent_key, run, parent)
    if parent.kappa_bits is None:
        check_copied_encoder(experiment, key, run)


def check_copied_encoder(experiment: Experiment, key: str, run: Arm) -> None:
    """Raise ValueError if a new separate encoder is to begin as a copy of a block."""
    if not derived.model_config(experiment, run).latent.copies_block and run.init_from.copy_encoder:
        raise ValueError(
            f"{key}.init_from.copy_encoder: true, but a separate encoder cannot be copied from a "
            "block of the decoder; false initialises it at random"
        )


def check_decoders(experiment: Experiment, key: str, run: Arm, parent: Arm) -> None:
    """Raise ValueError, starting with ``key``, unless a run can take over its parent's weights."""
    if run.data != parent.data:
        raise ValueError(f"{key}: its data are {parent.data}, not {run.data}, so the tokens differ")
    theirs, ours = (derived.model_config(experiment, each) for each in (parent, run))
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
