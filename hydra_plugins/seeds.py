"""`runs: ${each_seed:${arms},${seeds}}` in an experiment: every arm once with every seed.

Hydra imports what lies in this folder, in pipelines.compose as in `dvc exp run`.
"""

from omegaconf import DictConfig, ListConfig, OmegaConf


def each_seed(arms: DictConfig, seeds: ListConfig) -> DictConfig:
    """Runs <arm>_s<seed>."""
    return OmegaConf.create(
        {f"{name}_s{seed}": {**arm, "seed": seed} for name, arm in arms.items() for seed in seeds}
    )


OmegaConf.register_new_resolver("each_seed", each_seed, replace=True)
