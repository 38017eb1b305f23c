"""Where every stage finds what the stages before it have written: the folders of a project."""

from pathlib import Path

BENCHMARKS = Path("data/benchmarks")  # copies of the datasets of benchmarks
JOURNAL = "tracking.jsonl"  # beside a run's checkpoints, before and after its training has ended


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
    """A folder for each specification of an unfinished run (see Manifest.resume). DVC does not know
    them: it deletes a stage's outputs before it runs the stage (those marked to persist it keeps,
    but then it caches no earlier run).
    """
    return Path("resume") / experiment / run


def published_journal(experiment: str, run: str) -> Path:
    """What was tracked of a trained run."""
    return checkpoint_path(experiment, run).with_name(JOURNAL)


def results_folder(experiment: str, run: str) -> Path:
    """The training curve of a run, and the figures of its evaluation and its suite."""
    return Path("results") / experiment / run


def report_folder(experiment: str) -> Path:
    return Path("report") / experiment
