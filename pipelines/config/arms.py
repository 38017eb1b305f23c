"""Groups runs into arms, which differ only in their seed, and arms into families."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipelines.config.init_from import InitFrom
from pipelines.config.schema import Run

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
    return [re.sub(r"\W+", "_", str(each)) for each in family if each != ""]


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
    names = [arm_name(group, runs) for group in ordered]
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


def arm_name(group: list[str], runs: dict[str, Run]) -> str:
    """The part that names <arm>_s<seed> have in common, else the name of the first run."""
    names = {name.removesuffix(f"_s{runs[name].seed}") for name in group}
    return names.pop() if len(names) == 1 else group[0]
