"""The arms of an experiment: what was run, with which seeds, and what was measured.

An arm is all runs that differ only in their seed. Arms are compared by their bound alone: the
cross-entropy of a Free Transformer under its own posterior is no language-model loss.
"""

import csv
import json
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import isnan, nan
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from ftmodel.objective import LN2
from pipelines.errors import UserError
from pipelines.schema import Experiment, Run

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


def over_seeds(found: list[Estimate]) -> Estimate:
    """The mean of the seeds. They are scored on the same documents, so that their errors do not
    average out: the error of the mean is at most the mean of theirs.
    """
    means = [one.mean for one in found]
    spread = stdev(means) if len(means) > 1 else nan
    return Estimate(fmean(means), fmean(one.se for one in found), spread)


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


@dataclass(frozen=True)
class Arm:
    """Runs that differ only in their seed, one for each seed."""

    name: str
    runs: list[Measured]

    @property
    def first(self) -> Measured:
        """Any of the runs, for what they have in common."""
        return self.runs[0]

    @property
    def run(self) -> Run:
        """The specification of the first; all but its seed is that of the arm."""
        return self.first.run

    @property
    def seeds(self) -> list[int]:
        return [one.run.seed for one in self.runs]

    @property
    def baseline(self) -> bool:
        return self.first.baseline

    @property
    def kind(self) -> str:
        if not self.baseline:
            return "Free Transformer"
        extra = self.run.extra_blocks
        return f"baseline + {extra} block{'s' * (extra > 1)}" if extra else "baseline"

    @property
    def warmup(self) -> str:
        """How many steps it took κ to rise from 0, in words; empty if it did not."""
        steps = 0 if self.baseline else self.run.kappa_warmup_steps
        return f"κ rose from 0 over {steps:,} steps" if steps else ""

    @property
    def title(self) -> str:
        """Name and κ, in words."""
        if self.baseline:
            return f"{self.name}: no latent"
        unit = "bit" if (self.run.kappa_bits or 0) <= 1 else "bits"
        return f"{self.name}: κ = {self.first.kappa} {unit} per token"

    @property
    def unit(self) -> str:
        return self.first.unit

    @property
    def parameters(self) -> int:
        return int(self.first.metrics["parameters"])

    @property
    def trained_tokens(self) -> int:
        return int(self.first.metrics["trained_tokens"])

    @property
    def collapsed(self) -> list[int]:
        """The seeds whose latent collapsed."""
        return [one.run.seed for one in self.runs if one.collapsed]

    @property
    def collapse(self) -> str:
        """`collapsed`, or of how many seeds, or nothing."""
        if not self.collapsed or len(self.collapsed) == len(self.runs):
            return "collapsed" if self.collapsed else ""
        return f"{len(self.collapsed)} of {len(self.runs)} collapsed"

    def figure(self, key: str, unit: str | None = None) -> Estimate | None:
        """A measured figure over the seeds, or None if some seed has no such figure."""
        found = [one.figure(key, unit or self.unit) for one in self.runs]
        present = [one for one in found if one]
        return over_seeds(present) if len(present) == len(found) else None

    def bound(self, unit: str | None = None) -> Estimate:
        return over_seeds([one.bound(unit or self.unit) for one in self.runs])

    def estimate(self, key: str) -> Estimate | None:
        """A figure in a unit of its own over the seeds that have it, or None if none has."""
        found = [estimate for one in self.runs if (estimate := one.estimate(key))]
        return over_seeds(found) if found else None

    @cached_property
    def gap(self) -> Estimate | None:
        """Bound minus the exact entropy, nats per token, where the process is known."""
        return self.estimate("gap_nats_per_token")

    @cached_property
    def elbo_gap(self) -> Estimate | None:
        """The same of the ELBO bound, of a Free Transformer."""
        return self.estimate("elbo_gap_nats_per_token")

    @property
    def tokens_per_second(self) -> float:
        """At which it was scored, mean over seeds."""
        return fmean(one.metrics["tokens_per_second"] for one in self.runs)

    @property
    def last_third(self) -> list[Estimate]:
        """Of each seed that lists budgets, the bound averaged over those in the last third of
        training; its error over documents is not known.
        """
        found = [one.metrics["last_third"] for one in self.runs if "last_third" in one.metrics]
        return [Estimate(one[self.unit], nan) for one in found]


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


def recipe(run: Run) -> dict[str, Any]:
    """What the runs of an arm have in common; smaller budgets are measured on the way to one."""
    return {key: value for key, value in vars(run).items() if key not in ("seed", "budgets")}


def group_by_seed(runs: list[Measured]) -> list[Arm]:
    """The arms, in order. A run that repeats a seed tells nothing new: an arm of its own."""
    groups: dict[Any, list[list[Measured]]] = defaultdict(list)
    ordered: list[list[Measured]] = []
    for one in runs:
        run = one.run
        same = groups[tuple(recipe(run).items())]
        for group in same:
            if all(other.run.seed != run.seed for other in group):
                group.append(one)
                break
        else:
            same.append([one])
            ordered.append(same[-1])
    names = [arm_name(group) for group in ordered]
    unique = len(set(names)) == len(names)
    return [
        Arm(name if unique else group[0].name, group)
        for name, group in zip(names, ordered, strict=True)
    ]


def arm_name(runs: list[Measured]) -> str:
    """What is left of the names <arm>_s<seed>, else the name of the first run."""
    names = {one.name.removesuffix(f"_s{one.run.seed}") for one in runs}
    return names.pop() if len(names) == 1 else runs[0].name


def by_data(arms: list[Arm]) -> dict[str, list[Arm]]:
    groups: dict[str, list[Arm]] = defaultdict(list)
    for arm in arms:
        groups[arm.run.data].append(arm)
    return dict(groups)


def families(arms: list[Arm]) -> list[list[Arm]]:
    """Arms of the same data, model and token budget, which may be compared."""
    groups: dict[Any, list[Arm]] = defaultdict(list)
    for arm in arms:
        groups[arm.run.data, arm.run.model, arm.run.tokens].append(arm)
    return list(groups.values())


def baselines(family: list[Arm]) -> list[Arm]:
    """The plain one first; of several alike, the first."""
    found: dict[int, Arm] = {}
    for arm in family:
        if arm.baseline:
            found.setdefault(arm.run.extra_blocks, arm)
    return [found[blocks] for blocks in sorted(found)]
