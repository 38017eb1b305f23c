"""The arms of an experiment: what was run and what was measured.

Figures are bits per token unless a name says otherwise. Arms are compared by `Arm.bound` alone: the
cross-entropy of a Free Transformer under its own posterior is no language-model loss.
"""

import csv
import json
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from math import isnan
from pathlib import Path
from typing import Any

from ftmodel.objective import LN2
from pipelines.errors import UserError
from pipelines.schema import Experiment, Run

Curve = list[dict[str, float]]  # rows of a curve.csv
FILES = ("evaluation.json", "details.json", "curve.csv")


@dataclass(frozen=True)
class Estimate:
    """A mean over held-out sequences with its standard error (NaN for a single sequence)."""

    mean: float
    se: float

    def __str__(self) -> str:
        error = "" if isnan(self.se) else f" ± {self.se:.4f}"
        return f"{self.mean:.4f}{error}".replace("-", "−")


@dataclass
class Arm:
    """A run of the experiment with what its training and evaluation left behind."""

    name: str
    run: Run
    latent_bits: int  # H; 0 for a baseline
    on_target: bool  # whether its data are the synthetic target task
    metrics: dict[str, Any]
    details: dict[str, Any]
    curve: Curve

    @property
    def baseline(self) -> bool:
        return self.run.kappa_bits is None

    @property
    def kappa(self) -> str:
        return "–" if self.run.kappa_bits is None else fraction(self.run.kappa_bits)

    @property
    def title(self) -> str:
        """Name and κ, in words."""
        if self.run.kappa_bits is None:
            return f"{self.name}: no latent"
        unit = "bit" if self.run.kappa_bits <= 1 else "bits"
        return f"{self.name}: κ = {self.kappa} {unit} per token"

    @property
    def collapsed(self) -> bool:
        return bool(self.metrics.get("collapsed"))

    def figure(self, key: str, unit: str = "bits_per_token") -> Estimate | None:
        """A measured figure in ``unit``, or None if this arm has no such figure."""
        found = self.metrics.get(unit, {}).get(key)
        return Estimate(**found) if found else None

    @property
    def bound_key(self) -> str:
        return "nll" if self.baseline else "iwae"

    @property
    def bound(self) -> Estimate:
        """The figure to compare: the exact NLL of a baseline, else its IWAE upper bound."""
        return Estimate(**self.metrics["bits_per_token"][self.bound_key])

    @property
    def gap(self) -> Estimate | None:
        """Bound minus the exact entropy, nats per token, where the process is known."""
        found = self.metrics.get("gap_nats_per_token")
        return Estimate(**found) if found else None


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


def read_arms(experiment: Experiment) -> list[Arm]:
    """The arms of params.yaml, in its order; raises UserError if a result is missing."""
    return [read_arm(experiment, name) for name in experiment.runs]


def read_arm(experiment: Experiment, name: str) -> Arm:
    run = experiment.runs[name]
    folder = Path("results") / experiment.name / name
    for file in FILES:
        if not (folder / file).exists():
            raise UserError(f"{folder / file} is missing: `dvc repro evaluate@{name}` makes it")
    return Arm(
        name=name,
        run=run,
        latent_bits=experiment.model_config(run).latent_bits,
        on_target=experiment.data[run.data].source == "target",
        metrics=json.loads((folder / "evaluation.json").read_text()),
        details=json.loads((folder / "details.json").read_text()),
        curve=read_curve(folder / "curve.csv"),
    )


def by_data(arms: list[Arm]) -> dict[str, list[Arm]]:
    groups: dict[str, list[Arm]] = defaultdict(list)
    for arm in arms:
        groups[arm.run.data].append(arm)
    return dict(groups)
