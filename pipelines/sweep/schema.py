"""conf/sweep/<name>.yaml: a base experiment, one of its runs, and the space of settings to vary."""

import re
from dataclasses import dataclass, field, fields
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import MISSING

from ftmodel.model.limits import limited
from pipelines.common.errors import UserError
from pipelines.compose import CONF, refusals
from pipelines.config.data import typed


@dataclass
class Sweep:
    """conf/sweep/<name>.yaml; the command line overrides its fields and the base experiment's."""

    experiment: str = MISSING  # the base: one of conf/experiment/
    # a run of the base experiment; settings that `space` does not name stay as they are there
    run: str = MISSING
    space: dict[str, Any] = field(default_factory=dict)  # the settings to vary, and their values
    # random draws, each tried at every point of the grid
    samples: int = limited(1, at_least=1)
    seed: int = limited(0, at_least=0)  # seed of the draws
    # number of best settings that become arms of `<name>_best`, besides the best baseline
    best: int = limited(2, at_least=1)
    # number of seeds that these are trained with; the sweep has used none of them
    best_seeds: int = limited(3, at_least=1)
    # arguments of Tune's ASHAScheduler, as {grace_period: 0.1, reduction_factor: 3}, where a budget
    # is 1; null: every trial is trained to its end
    asha: dict[str, Any] | None = None
    # largest number of trials at once; null: as many as there is room for
    concurrent: int | None = limited(None, at_least=1)


def known_sweeps() -> list[str]:
    return sorted(path.stem for path in (CONF / "sweep").glob("*.yaml"))


def read_sweep(name: str, overrides: list[str]) -> tuple[Sweep, list[str]]:
    """conf/sweep/<name>.yaml with the overrides that concern it, and the remaining overrides."""
    if name not in known_sweeps():
        raise UserError(f"sweep: {name!r} is not one of {', '.join(known_sweeps())} (conf/sweep/)")
    own, others = [], []
    names = {f.name for f in fields(Sweep)}
    for override in overrides:
        match = re.match(r"([+~]*)(\w+)", override)
        if match and match[2] in names:  # ++ also adds a field that the file leaves out
            sign = "~" if "~" in match[1] else "++"
            own.append(f"{sign}sweep.{override[match.end(1) :]}")
        else:
            others.append(override)
    source = f"conf/sweep/{name}.yaml"
    with refusals(source, own), initialize_config_dir(str(CONF.resolve()), version_base=None):
        node = compose(f"sweep/{name}", own).get("sweep")
    return typed(source, "", node or {}, Sweep), others
