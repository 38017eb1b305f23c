"""conf/sweep/<name>.yaml: a base experiment, one of its runs, and the space of settings to vary."""

import re
from dataclasses import dataclass, field, fields
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipelines.common.errors import UserError
from pipelines.compose import CONF, refusals
from pipelines.config.data import keyed
from pipelines.config.schema import NAME


@dataclass
class Sweep:
    """conf/sweep/<name>.yaml; its fields, and all settings of the base experiment, may be given on
    the command line.
    """

    experiment: str = MISSING  # the base: one of conf/experiment/
    run: str = MISSING  # of the base experiment; what `space` does not name stays as it is there
    space: dict[str, Any] = field(default_factory=dict)
    samples: int = 1  # random draws; each of them is tried at every point of the grid
    seed: int = 0  # of the draws
    best: int = 2  # settings that become arms of <name>_best, besides the best baseline
    best_seeds: int = 3  # that these are trained with; the sweep has used none of them
    # of Tune's ASHAScheduler, as {grace_period: 0.1, reduction_factor: 3}, where a budget is 1;
    # null: every trial is trained to its end
    asha: dict[str, Any] | None = None
    concurrent: int | None = None  # trials at once; null: as many as there is room for

    def validate(self) -> None:
        for name in ("samples", "best", "best_seeds", "concurrent"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: {value} must be at least 1")


def known_sweeps() -> list[str]:
    return sorted(path.stem for path in (CONF / "sweep").glob("*.yaml"))


def read_sweep(name: str, overrides: list[str]) -> tuple[Sweep, list[str]]:
    """conf/sweep/<name>.yaml with the overrides that concern it, and the remaining overrides."""
    if not NAME.fullmatch(name) or name not in known_sweeps():
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
    try:
        with (
            refusals(source, own),
            initialize_config_dir(str(CONF.resolve()), version_base=None),
        ):
            node = compose(f"sweep/{name}", own).get("sweep")
        merged = OmegaConf.merge(OmegaConf.structured(Sweep), node or {})
        OmegaConf.resolve(merged)
        if missing := sorted(OmegaConf.missing_keys(merged)):
            raise UserError(f"{source}: {missing[0]} is missing")
        sweep = OmegaConf.to_object(merged)
        assert isinstance(sweep, Sweep)
        sweep.validate()
    except OmegaConfBaseException as error:
        raise UserError(f"{source}: {keyed(error)}") from None
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    return sweep, others
