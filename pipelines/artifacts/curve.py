"""curve.csv: the training curve of a run, one row per interval."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ftmodel.designs.hinge import LN2
from pipelines.host.errors import UserError


@dataclass
class CurveRow:
    """Means over the steps of an interval, and over all workers."""

    step: int  # the interval's last, from 1
    tokens: int  # seen by then
    loss_nats: float
    ce_nats: float  # per token; for a Free Transformer not a language-model loss
    learning_rate: float
    tokens_per_second: float
    kl_bits: float | None = None  # per token; None for a baseline
    hinge_nats: float | None = None
    others: dict[str, float] = field(default_factory=dict)  # what else the module has logged

    @property
    def bound_bits(self) -> float:
        """The training bound, bits per token: CE for a baseline, CE + KL for a Free Transformer."""
        return self.ce_nats / LN2 + (self.kl_bits or 0.0)

    @property
    def held_out(self) -> float | None:
        """Bound on the held-out windows scored at this row, bits per token; None if none were."""
        return self.others.get("held_out_bound_bits")

    def figures(self) -> dict[str, float]:
        """All figures by name, in the order of the file, without those that are None."""
        row = {"step": self.step, "tokens": self.tokens, "loss_nats": self.loss_nats}
        row["ce_nats"] = self.ce_nats
        latent = {"kl_bits": self.kl_bits, "hinge_nats": self.hinge_nats}
        row |= {name: value for name, value in latent.items() if value is not None}
        row |= {"learning_rate": self.learning_rate, "tokens_per_second": self.tokens_per_second}
        return row | self.others


Curve = list[CurveRow]


def row_of(figures: dict[str, float]) -> CurveRow:
    """The inverse of CurveRow.figures."""
    known = {name: figures.get(name) for name in CurveRow.__dataclass_fields__ if name != "others"}
    others = {name: value for name, value in figures.items() if name not in known}
    known |= {"step": int(figures["step"]), "tokens": int(figures["tokens"])}
    return CurveRow(**known, others=others)  # type: ignore[arg-type]


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV with the union of the rows' columns, in order of first appearance."""
    names = dict.fromkeys(name for row in rows for name in row)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*names])
        writer.writeheader()
        writer.writerows(rows)


def read_curve(path: Path) -> Curve:
    """Read a curve; raises UserError if the file is missing or is not a curve."""
    run = path.parent.name
    if not path.exists():
        raise UserError(f"{path} is missing: `dvc repro train@{run}` makes it")
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = [*csv.DictReader(file)]
        curve = [row_of({name: float(v) for name, v in row.items() if v}) for row in rows]
    except (KeyError, TypeError, ValueError):
        curve = []
    if not curve:
        raise UserError(f"{path}: damaged; `dvc repro --force train@{run}` makes it again")
    return curve


def training_seconds(curve: Curve) -> float:
    """Seconds that the training steps took, without pauses between two of its processes."""
    tokens = [0, *(row.tokens for row in curve)]
    return sum(
        (after - before) / row.tokens_per_second
        for (before, after), row in zip(pairwise(tokens), curve, strict=True)
    )
