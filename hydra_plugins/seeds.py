"""`runs: ${each_seed:${arms},${seeds}}` in an experiment: every arm once with every seed.

Hydra imports what lies in this folder, in pipelines.compose as in `dvc exp run`.
"""

from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf


def each_seed(arms: Any, seeds: Any) -> DictConfig:
    """Runs <arm>_s<seed>; raises ValueError starting with the dotted key that is wrong."""
    if not isinstance(seeds, ListConfig) or not seeds:
        raise ValueError("seeds: not a list of at least one seed")
    for i, seed in enumerate(seeds):
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise ValueError(f"seeds.{i}: {seed!r} is not a number 0, 1, 2, …")
        if seed in seeds[:i]:
            raise ValueError(f"seeds.{i}: {seed} is repeated")
    if not isinstance(arms, DictConfig) or not arms:
        raise ValueError("arms: not a mapping of at least one arm")
    named = {str(name): arm for name, arm in arms.items()}
    for name, arm in named.items():
        if not isinstance(arm, DictConfig):
            raise ValueError(f"arms.{name}: not a mapping, as a run is")
        if "seed" in arm:
            raise ValueError(f"arms.{name}.seed: an arm has every seed of `seeds`")
    return OmegaConf.create(
        {f"{name}_s{seed}": {**arm, "seed": seed} for name, arm in named.items() for seed in seeds}
    )


OmegaConf.register_new_resolver("each_seed", each_seed, replace=True)
