"""Where every stage finds what the stages before it have written: the folders of a project."""

from pathlib import Path

BENCHMARKS = Path("data/benchmarks")  # copies of the datasets of benchmarks


def tokens_folder(data: str) -> Path:
    """The token files of an entry under `data`."""
    return Path("data/tokens") / data


def corpus_folder(data: str) -> Path:
    """The documents of an entry under `data`."""
    return Path("data/corpus") / data


def checkpoint_path(experiment: str, run: str, tokens: int | None = None) -> Path:
    """A finished run's checkpoint, cached by DVC: its last, or that of a budget of ``tokens``."""
    return Path("checkpoints") / experiment / run / f"{tokens or 'last'}.ckpt"


def resume_folder(experiment: str, run: str) -> Path:
    """The checkpoints of an unfinished run. DVC does not know this folder: it deletes a stage's
    outputs before it runs the stage (those marked to persist it keeps, but then it caches no
    earlier run).
    """
    return Path("resume") / experiment / run


def live_journal(experiment: str, run: str, spec_hash: str) -> Path:
    """What is tracked of a run while it is trained: beside the run's own folder, which ends with
    its checkpoints; no run has a dot in its name.
    """
    return resume_folder(experiment, f"{run}.tracking") / f"{spec_hash}.jsonl"


def published_journal(experiment: str, run: str) -> Path:
    """The same of a trained run."""
    return checkpoint_path(experiment, run).with_name("tracking.jsonl")


def results_folder(experiment: str, run: str) -> Path:
    """The training curve of a run, and the figures of its evaluation and its suite."""
    return Path("results") / experiment / run


def report_folder(experiment: str) -> Path:
    return Path("report") / experiment
