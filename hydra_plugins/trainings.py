"""`trainings: ${trainings_of:${runs},${name}}`: each run with the path of what it starts from, on
which its training depends. DVC makes a stage for each, and cannot tell a run from a folder itself.
"""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from pipelines.config.derived import parent_path


def trainings_of(runs: Any, experiment: Any) -> DictConfig:
    """{run: its data, model and parent}; what is malformed is left out, for validation to name."""
    entries = {}
    plain: Any = OmegaConf.to_container(runs) if isinstance(runs, DictConfig) else {}
    for name, run in plain.items():
        if isinstance(run, dict):
            start = run.get("init_from")
            start = start if isinstance(start, dict) else {}
            data, model = run.get("data"), run.get("model")
            if isinstance(data, str) and isinstance(model, str):
                path = parent_path(experiment, data, start.get("hf"), start.get("run"))
                entries[str(name)] = {"data": data, "model": model, "parent": path}
    return OmegaConf.create(entries)


OmegaConf.register_new_resolver("trainings_of", trainings_of, replace=True)
