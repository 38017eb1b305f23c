"""Where every stage finds what the stages before it have written: the folders of a project."""

from pathlib import Path

SPLITS = ("train", "validation")


BENCHMARKS = Path("data/benchmarks")  # copies of the datasets of benchmarks
JOURNAL = "tracking.jsonl"  # beside a run's checkpoints, during training and after


def tokens_folder(data: str) -> Path:
    """The token files of an entry under `data`."""
    return Path("data/tokens") / data


def corpus_folder(data: str) -> Path:
    """The documents of an entry under `data`."""
    return Path("data/corpus") / data


def checkpoint_path(experiment: str, run: str, tokens: int | None = None) -> Path:
    """DVC's path of a finished run's last checkpoint, or of its checkpoint at ``tokens`` tokens."""
    return Path("checkpoints") / experiment / run / f"{tokens or 'last'}.ckpt"


def resume_folder(experiment: str, run: str) -> Path:
    """Where an unfinished run has a folder for each specification (see Manifest.resume). DVC does
    not know them, because it deletes a stage's outputs before it runs the stage (it keeps outputs
    marked to persist, but then it caches no earlier run).
    """
    return Path("resume") / experiment / run


def published_journal(experiment: str, run: str) -> Path:
    """The journal of a trained run."""
    return checkpoint_path(experiment, run).with_name(JOURNAL)


def results_folder(experiment: str, run: str) -> Path:
    """The folder of a run's training curve, and of its evaluation's and suite's results."""
    return Path("results") / experiment / run


def report_folder(experiment: str) -> Path:
    return Path("report") / experiment
