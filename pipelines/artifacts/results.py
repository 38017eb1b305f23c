"""What stages leave in results/<experiment>/<run>/, for the report and sweeps to read."""

import csv
import json
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import isnan, nan
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ftmodel.model.objective import LN2
from pipelines.common.errors import UserError
from pipelines.config.derived import Budget
from pipelines.config.schema import Experiment, Run

Curve = list[dict[str, float]]  # rows of a curve.csv


FILES = {  # of a run, and the stages that make them
    "evaluation.json": "evaluate",
    "details.json": "evaluate",
    "curve.csv": "evaluate",
    "suite.json": "suite",
    "suite_scores.json": "suite",
}


UNITS = {"bits_per_byte": "bits per byte", "bits_per_token": "bits per token"}


SIZES = {"bits_per_byte": "document_bytes", "bits_per_token": "document_tokens"}


@dataclass(frozen=True)
class Estimate:
    """A mean over held-out documents and seeds."""

    mean: float
    se: float  # standard error over documents; NaN for a single one
    spread: float = nan  # sample standard deviation over seeds; NaN for a single one

    def __str__(self) -> str:
        error = "" if isnan(self.se) else f" ± {self.se:.4f}"
        return f"{self.mean:.4f}{error}".replace("-", "−")


@dataclass
class Measured:
    """A run of the experiment with what its training and evaluation left behind."""

    name: str
    run: Run
    latent_bits: int  # H; 0 for a baseline
    source: str  # of its data: target, coin, reviews or text
    metrics: dict[str, Any]
    details: dict[str, Any]
    curve: Curve
    suite: dict[str, Any] | None = None  # its benchmarks, if it was scored on any
    suite_scores: dict[str, list[float]] = field(default_factory=dict)  # by task and document

    @property
    def baseline(self) -> bool:
        return self.run.kappa_bits is None

    @property
    def on_target(self) -> bool:
        """Whether its data are the paper's synthetic target task."""
        return self.source == "target"

    @property
    def kappa(self) -> str:
        return "–" if self.run.kappa_bits is None else fraction(self.run.kappa_bits)

    @property
    def collapsed(self) -> bool:
        return bool(self.metrics.get("collapsed"))

    @property
    def unit(self) -> str:
        """The unit to compare in: bytes do not depend on the tokenizer; a process has none."""
        return "bits_per_byte" if "bits_per_byte" in self.metrics else "bits_per_token"

    def figure(self, key: str, unit: str = "bits_per_token") -> Estimate | None:
        """A measured figure in ``unit``, or None if this run has no such figure."""
        found = self.metrics.get(unit, {}).get(key)
        return Estimate(**found) if found else None

    @property
    def bound_key(self) -> str:
        return "nll" if self.baseline else "iwae"

    def bound(self, unit: str) -> Estimate:
        """The figure to compare: the exact NLL of a baseline, else its IWAE upper bound."""
        return Estimate(**self.metrics[unit][self.bound_key])

    def estimate(self, key: str) -> Estimate | None:
        """A figure in a unit of its own, or None if this run has none."""
        found = self.metrics.get(key)
        return Estimate(**found) if found else None

    def document_bits(self) -> Tensor:
        """Bound of each held-out document, summed over its tokens: (n,)."""
        return torch.tensor(self.details["bound_bits"], dtype=torch.float64)

    def document_sizes(self, unit: str) -> Tensor:
        """Tokens or bytes of each held-out document: (n,)."""
        return torch.tensor(self.details[SIZES[unit]], dtype=torch.float64)


def fraction(kappa_bits: float) -> str:
    """κ as people write it: 1/64, 1/2, 8."""
    short = Fraction(kappa_bits).limit_denominator(1024)
    return str(short) if float(short) == kappa_bits else f"{kappa_bits:g}"


def read_curve(path: Path) -> Curve:
    with open(path, newline="") as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def training_bits(row: dict[str, float]) -> float:
    """The training bound of a curve's row: CE for a baseline, CE + KL for a Free Transformer."""
    return row["ce_nats"] / LN2 + row.get("kl_bits", 0.0)


def training_seconds(curve: Curve) -> float:
    """What the steps of a training took, without what stood still between two of its processes."""
    tokens = [0.0, *(row["tokens"] for row in curve)]
    return sum(
        (after - before) / row["tokens_per_second"]
        for (before, after), row in zip(pairwise(tokens), curve, strict=True)
    )


def read_runs(experiment: Experiment) -> list[Measured]:
    """The runs of params.yaml, in its order; raises UserError if a result is missing."""
    return [read_run(experiment, name) for name in experiment.runs]


def read_run(experiment: Experiment, name: str) -> Measured:
    run = experiment.runs[name]
    folder = Path("results") / experiment.name / name
    scored = name in experiment.suite_runs  # files of a suite may be left of an earlier one
    for file, stage in FILES.items():
        if (stage != "suite" or scored) and not (folder / file).exists():
            raise UserError(f"{folder / file} is missing: `dvc repro {stage}@{name}` makes it")
    return Measured(
        name=name,
        run=run,
        latent_bits=experiment.model_config(run).latent_bits,
        source=experiment.data[run.data].source,
        metrics=json.loads((folder / "evaluation.json").read_text()),
        details=json.loads((folder / "details.json").read_text()),
        curve=read_curve(folder / "curve.csv"),
        suite=json.loads((folder / "suite.json").read_text()) if scored else None,
        suite_scores=json.loads((folder / "suite_scores.json").read_text()) if scored else {},
    )


def at_budget(
    experiment: Experiment, run: Run, budget: Budget, measured: dict[str, Any]
) -> dict[str, Any]:
    """What was ``measured`` of a model, with the training behind it."""
    return {
        "tokens": budget.steps * experiment.batch_tokens(run),
        "listed": budget.listed,
        "annealed": budget.annealed,
        **measured,
    }


def in_last_third(series: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the last third of the training."""
    return [one for one in series if 3 * one["tokens"] >= 2 * series[-1]["tokens"]]
