"""Expands a grid of settings into arms, and names settings after what varies.

    arms: "${grid:{data: stdlib, model: text_small, tokens: 2_048_000, kappa_bits: [null, 0.5, 1]}}"

makes the arms baseline, free_k1_2 and free_k1. A sweep names its trials by the same rule. Settings
are mappings by dotted key, with the group first: run.kappa_bits, run.latent.map, optim.lr.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import product
from math import isfinite
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ftmodel.config import ModelConfig, latent_only
from pipelines.config.data import keyed
from pipelines.config.schema import Arm, Optim, Run

Settings = dict[str, Any]  # by dotted key

KEY_GROUPS = {"run": Run, "architecture": ModelConfig, "optim": Optim}
KAPPA_KEY, BUDGETS_KEY = "run.kappa_bits", "run.budgets"
# settings that mean nothing to a baseline, with their defaults
LATENT_SETTINGS = {
    key: default
    for group, settings in KEY_GROUPS.items()
    for key, default in latent_only(settings, group).items()
}


def grid(*templates: Any) -> dict[str, DictConfig]:
    """The arms of each template: every combination of the values that it lists for its settings.

    A setting at its default is not part of an arm's name. Raises ValueError that begins with the
    dotted key that is wrong.
    """
    arm: Any = OmegaConf.to_container(OmegaConf.structured(Arm))
    defaults = dict(flat(arm, "run."))
    points: list[Settings] = []
    for template in templates:
        if OmegaConf.is_config(template):
            template = OmegaConf.to_container(template, resolve=True)
        if not isinstance(template, dict):
            raise ValueError(f"arms: ${{grid}} takes mappings of an arm's settings, not {template}")
        points += [
            {key: value for key, value in point.items() if value != defaults.get(key, MISSING)}
            for point in template_points(template)
        ]
    if not points:
        raise ValueError("arms: ${grid} takes at least one mapping of an arm's settings")
    try:
        named = name_points(points, always=KAPPA_KEY)
    except ValueError as error:
        raise ValueError(f"arms: {error}") from None
    arms = {}
    for name, settings in named.items():
        arms[name] = OmegaConf.structured(Arm)
        try:
            for key, value in settings.items():
                OmegaConf.update(arms[name], key.removeprefix("run."), value)
        except OmegaConfBaseException as error:
            raise ValueError(f"arms.{name}.{keyed(error)}") from None
    return arms


def template_points(template: dict[str, Any]) -> Iterator[Settings]:
    """Every combination of the values in a template; the last setting varies fastest."""
    settings = dict(flat(template, "run."))
    if KAPPA_KEY not in settings:
        raise ValueError("arms: ${grid}: kappa_bits is missing; null is the baseline")
    for key, values in settings.items():
        # budgets are a list themselves, so several of them are a list of lists
        nested = isinstance(values, list) and any(isinstance(each, list) for each in values)
        if not isinstance(values, list) or (key == BUDGETS_KEY and not nested):
            settings[key] = [values]
            continue
        name = key.removeprefix("run.")
        if not values:
            raise ValueError(f"arms: ${{grid}}: {name}: empty; list at least one value")
        for i, value in enumerate(values):
            if value in values[:i]:
                raise ValueError(f"arms: ${{grid}}: {name}.{i}: {value} is repeated")
    for combination in product(*settings.values()):
        point: Settings = {}
        for key, value in zip(settings, combination, strict=True):
            # a value may be a mapping, such as {map: linear, prior: learned} of a latent
            point.update(flat(value, f"{key}.") if isinstance(value, dict) else [(key, value)])
        yield point


def flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Nested settings by dotted key."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def name_points(
    points: Iterable[Settings], kappa_bits: float | None = None, always: str = ""
) -> dict[str, Settings]:
    """Name each point after its settings that vary, and after ``always``.

    A baseline loses settings that only a latent reads, so a grid over them has it once.
    ``kappa_bits`` is κ of points that do not set it. Raises ValueError if two points would have one
    name.
    """
    points = [*points]
    keys = dict.fromkeys(key for point in points for key in point)
    varied = [
        key
        for key in keys
        if key == always or any(point.get(key) != points[0].get(key) for point in points)
    ]
    named: dict[str, Settings] = {}
    for settings in points:
        if settings.get(KAPPA_KEY, kappa_bits) is None:
            settings = {
                key: value
                for key, value in settings.items()
                if not any(f"{key}.".startswith(f"{known}.") for known in LATENT_SETTINGS)
            }
        if settings in named.values():
            continue
        shown = varied or settings
        name = name_of({key: settings[key] for key in shown if key in settings})
        if name in named:
            raise ValueError(f"two different settings would be called {name}")
        named[name] = settings
    return named


def name_of(settings: Settings) -> str:
    """A readable name that DVC takes: free_k1_2_seed_0_lr_0p003."""
    words = []
    if KAPPA_KEY in settings:
        kappa_bits = settings[KAPPA_KEY]
        words.append("baseline" if kappa_bits is None else f"free_k{kappa_word(kappa_bits)}")
    leaves = [key.rpartition(".")[2] for key in settings]
    for (key, value), leaf in zip(settings.items(), leaves, strict=True):
        if key != KAPPA_KEY:
            label = leaf if leaves.count(leaf) == 1 else key
            words.append(f"{label}_{value_word(value)}")
    return re.sub("[^a-z0-9]+", "_", "_".join(words).lower()).strip("_")


def kappa_word(kappa_bits: Any) -> str:
    """κ in a name, as a fraction if it is a short one: 1_64, 1_2, 8."""
    if isinstance(kappa_bits, int | float) and isfinite(kappa_bits):
        short = Fraction(kappa_bits).limit_denominator(1024)
        if float(short) == kappa_bits:
            return str(short)
    return value_word(kappa_bits)


def value_word(value: Any) -> str:
    """A value in a name: 1 and 1.0 are the same, p is the decimal point, m the minus sign."""
    if value is None or isinstance(value, str):
        return value or "none"
    if isinstance(value, list):
        return "_".join(map(value_word, value))
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text.replace(".", "p").replace("-", "m").replace("+", "")
