"""`runs: ${each_seed:${arms},${seeds}}` in an experiment: every arm once with every seed.

Hydra imports what lies in this folder, in pipelines.compose as in `dvc exp run`.
"""

from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf


def each_seed(arms: DictConfig, seeds: ListConfig) -> DictConfig:
    """Runs <arm>_s<seed>, each starting from that of its own seed if it starts from an arm; raises
    ValueError starting with the dotted key that is wrong. They are read-only: Hydra would apply an
    override of a run to a copy, and say nothing.
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
    plain: Any = OmegaConf.to_container(arms)  # with what is missing, for validation to name

    def run(arm: dict[str, Any], seed: int) -> dict[str, Any]:
        arm = {**arm, "seed": seed}
        start = arm.get("init_from")
        if isinstance(start, dict) and start.get("run") in plain:
            arm["init_from"] = {**start, "run": f"{start['run']}_s{seed}"}
        return arm

    runs = {f"{name}_s{seed}": run(arm, seed) for name, arm in plain.items() for seed in seeds}
    return OmegaConf.create(runs, flags={"readonly": True})


OmegaConf.register_new_resolver("each_seed", each_seed, replace=True)
