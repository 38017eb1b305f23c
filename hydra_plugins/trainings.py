"""`trainings: ${trainings_of:${runs},${name}}`: each run with the path of what it starts from, on
which its training depends. DVC makes a stage for each, and cannot tell a run from a folder itself.
"""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from pipelines.config.derived import trainings


def trainings_of(runs: Any, experiment: Any) -> DictConfig:
    plain: Any = OmegaConf.to_container(runs) if isinstance(runs, DictConfig) else {}
    return OmegaConf.create(trainings(plain, experiment), flags={"readonly": True})


OmegaConf.register_new_resolver("trainings_of", trainings_of, replace=True)
