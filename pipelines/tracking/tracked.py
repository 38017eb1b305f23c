"""Everything that MLflow should have about a run."""

from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.artifacts.paths import checkpoint_path

# parameters of a run that its logged models have
KEPT = ("kappa_bits", "seed", "data", "model", "config_hash")


class Point(NamedTuple):
    """A value of a metric; ``of``: the logged model, and the name and digest of the dataset."""

    key: str
    value: float
    time: int  # ms since 1970, as all times here
    step: int
    of: tuple[str, ...] = ()


@dataclass
class Tracked:
    """A run as its journal and its results describe it."""

    experiment: str = ""
    run_name: str = ""
    key: str = ""  # of this very training; a tag by which the run is found in MLflow
    started: int = 0
    ended: int | None = None
    status: str = "RUNNING"
    parent: str = ""  # key of the run in which it is nested
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    inputs: list[dict[str, str]] = field(default_factory=list)  # see datasets.py
    models: list[dict[str, Any]] = field(default_factory=list)  # kept checkpoints
    files: list[Path] = field(default_factory=list)  # or folders of files
    step: int = -1  # of the last row of the curve

    def read_line(self, line: dict[str, Any]) -> None:
        """Add a line of the journal. A step that a resumed run repeats counts as first logged."""
        at, row = line["time"], line.get("row")
        if "run" in line:
            vars(self).update(line["run"], started=at)
        self.parent = line.get("parent", self.parent)
        self.tags = self.tags | line.get("tags", {})
        self.add(line.get("prefix", ""), line.get("figures", {}), line.get("step", 0), at)
        if status := line.get("status"):
            self.status, self.ended = status, None if status == "RUNNING" else at
        if row and row["step"] > self.step:
            self.step = int(row["step"])
            for axis, x in (("curve", "step"), ("curve_by_tokens", "tokens")):
                figures = {key: row[key] for key in row if key not in ("step", "tokens")}
                self.add(axis, figures, int(row[x]), at)
            self.add("system", line.get("system", {}), self.step, at)

    def add(
        self, prefix: str, figures: dict[str, float], step: int, at: int, of: tuple[str, ...] = ()
    ) -> None:
        """Add figures at a step, without NaN and infinite ones."""
        self.points += [
            Point(f"{prefix}/{key}", value, at, step, of)
            for key, value in figures.items()
            if isfinite(value)
        ]

    def add_model(self, tokens: int, listed: int | None = None) -> str:
        """Add the checkpoint after so many tokens; ``listed`` is its smaller budget, if it has one.

        Its weights stay where DVC has them: a tag names the file. Returns its name.
        """
        name = model_name(self.run_name, listed)
        path = checkpoint_path(self.experiment, self.run_name, listed)
        params = {key: self.params[key] for key in KEPT if key in self.params}
        tags = {"checkpoint": str(path), "run": self.run_name}
        if all(model["name"] != name for model in self.models):
            params |= {"tokens": str(tokens)}
            self.models.append({"name": name, "params": params, "tags": tags})
        return name


def model_name(run: str, tokens: int | None = None) -> str:
    """The name of a run's last checkpoint, or of its checkpoint at a smaller budget, as listed."""
    return f"{run}_at_{tokens}" if tokens else run
