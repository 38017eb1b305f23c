"""`suite_runs: ${text_runs:${runs},${data},${suite}}`: the runs that an experiment's suite scores,
those on text, with their data; none if the suite has no tasks.

DVC makes a stage for each of them, and cannot choose among `runs` itself.
"""

from typing import Any

from omegaconf import DictConfig, OmegaConf


def text_runs(runs: Any, data: Any, suite: Any) -> DictConfig:
    """{run: name of its data}; what is malformed is left out, for validation to name."""
    chosen = {}
    if isinstance(runs, DictConfig) and suite.get("tasks"):
        for name, run in runs.items():
            entry = data.get(run.get("data")) if isinstance(run, DictConfig) else None
            if isinstance(entry, DictConfig) and entry.get("source") == "text":
                chosen[str(name)] = run.data
    return OmegaConf.create(chosen, flags={"readonly": True})


OmegaConf.register_new_resolver("text_runs", text_runs, replace=True)
