"""Mappings that conf/ computes. DVC cannot; it makes a stage for each entry of a mapping.

    arms: "${grid:{…}}"                               every combination of listed settings
    runs: ${each_seed:${arms},${seeds}}               every arm once with every seed
    trainings: ${trainings_of:${runs},${name}}        runs with the path of what each starts from
    suite_runs: ${text_runs:${runs},${data},${suite}} runs on text, which the suite scores

All are read-only: Hydra would silently apply an override of a run to a copy. Hydra imports
what lies in this folder, in `ftlab compose` as in `dvc exp run`.
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from pipelines.config.derived import suite_runs, trainings
from pipelines.config.grid import grid
from pipelines.host.dvc import keep_other_experiments, make_repro_at_work


def each_seed(arms: DictConfig, seeds: ListConfig) -> dict[str, Any]:
    """Make runs <arm>_s<seed>. A run that starts from an arm starts from that arm's run with its
    own seed. Raises ValueError that begins with the dotted key that is wrong.
    """
    if not seeds:
        raise ValueError("seeds: empty; arms need at least one seed")
    for i, seed in enumerate(seeds):
        if seed < 0:
            raise ValueError(f"seeds.{i}: {seed} is not a number 0, 1, 2, …")
        if seed in seeds[:i]:
            raise ValueError(f"seeds.{i}: {seed} is repeated")
    if not arms:
        raise ValueError("arms: empty; seeds need at least one arm")
    each = plain(arms)  # with what is missing, for validation to name

    def run(arm: dict[str, Any], seed: int) -> dict[str, Any]:
        arm = {**arm, "seed": seed}
        start = arm.get("init_from")
        if isinstance(start, dict) and start.get("run") in each:
            arm["init_from"] = {**start, "run": f"{start['run']}_s{seed}"}
        return arm

    return {f"{name}_s{seed}": run(arm, seed) for name, arm in each.items() for seed in seeds}


def plain(config: Any, resolve: bool = False) -> Any:
    return OmegaConf.to_container(config, resolve=resolve) if OmegaConf.is_dict(config) else {}


def trainings_of(runs: Any, experiment: Any) -> dict[str, Any]:
    """How each run of the experiment is trained. Raises ValueError if two files of conf/experiment/
    have its name, as after a copy: each would replace the other's results.
    """
    line = re.compile(rf"^name: *['\"]?{re.escape(str(experiment))}['\"]? *(#.*)?$", re.MULTILINE)
    paths = sorted(Path("conf/experiment").glob("*.yaml"))
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in paths}
    same = [str(path) for path, text in texts.items() if line.search(text)]
    if len(same) > 1:
        raise ValueError(
            f"name: {' and '.join(same)} are both called {experiment}: each would replace the "
            "other's results; give one another name"
        )
    return trainings(plain(runs), experiment)


def text_runs(runs: Any, data: Any, suite: Any) -> dict[str, Any]:
    return suite_runs(*(plain(config, resolve=True) for config in (runs, data, suite)))


def register(resolver: Callable[..., Mapping[str, Any]]) -> None:
    def read_only(*arguments: Any) -> DictConfig:
        return OmegaConf.create(dict(resolver(*arguments)), flags={"readonly": True})

    OmegaConf.register_new_resolver(resolver.__name__, read_only, replace=True)


for resolver in (grid, each_seed, trainings_of, text_runs):
    register(resolver)

if "dvc.utils.hydra" in sys.modules:  # `dvc exp run` is composing
    from dvc.exceptions import DvcException

    if who := make_repro_at_work():
        raise DvcException(f"{who} is at work in this folder; run this again when it has ended")
    keep_other_experiments()
