"""What stages log, written into a run's record; run.py sends it."""

import shutil
from math import isnan
from pathlib import Path
from time import time
from typing import Any

from pipelines.tracking.outbox import Record


def now() -> int:
    return int(time() * 1000)


class RunLog:
    """Adds to a record. What it has already is not added again."""

    record: Record

    def log_rows(self, rows: list[dict[str, float]], times: list[int] | None = None) -> None:
        """Training rows, each metric once against steps and once against tokens.

        Rows up to a step that the record has already are skipped: a run that was killed repeats
        those after its last checkpoint. ``times``, ms since 1970, are by default now.
        """
        record = self.record
        for row, at in zip(rows, times or [now()] * len(rows), strict=True):
            if row["step"] <= record.trained_steps:
                continue
            record.metrics += [
                (f"{axis}/{key}", value, at, int(row[x]))
                for axis, x in (("train", "step"), ("train_by_tokens", "tokens"))
                for key, value in row.items()
                if key not in ("step", "tokens")
            ]
            record.trained_steps = int(row["step"])
        self.commit()

    def log_figures(
        self,
        prefix: str,
        figures: dict[str, float],
        step: int,
        of: tuple[str, ...] = (),
        at: int | None = None,
    ) -> None:
        """Figures at a step, those that are numbers.

        ``of``: the logged model, and name and digest of the dataset, that they were measured on;
        ``at``: ms since 1970, by default now.
        """
        known = {(key, value, where) for key, value, _, where, *_ in self.record.metrics}
        self.record.metrics += [
            (f"{prefix}/{key}", value, at or now(), step, *of)
            for key, value in figures.items()
            if not isnan(value) and (f"{prefix}/{key}", value, step) not in known
        ]
        self.commit()

    def log_system(self, figures: dict[str, float], step: int) -> None:
        """Figures of the machine at a training step, saved with the next rows; up to a step that
        the record has already they are skipped, as rows are.
        """
        steps = [point[3] for point in self.record.metrics if point[0].startswith("system/")]
        if step > max(self.record.trained_steps, *steps, -1):
            at = now()
            self.record.metrics += [(f"system/{key}", v, at, step) for key, v in figures.items()]

    def log_artifact(self, path: Path) -> None:
        copy = self.record.folder / path.name
        if path.name in self.record.artifacts and copy.read_bytes() == path.read_bytes():
            return
        shutil.copy(path, copy)
        self.record.artifacts.append(path.name)
        self.commit()

    def log_input(self, dataset: dict[str, str]) -> None:
        """A dataset as in datasets.py."""
        if dataset not in self.record.inputs:
            self.record.inputs.append(dataset)
            self.commit()

    def log_model(self, model: dict[str, Any]) -> None:
        """A kept checkpoint as in models.py."""
        if all(known["name"] != model["name"] for known in self.record.models):
            self.record.models.append(model)
            self.commit()

    def log_params(self, params: dict[str, str]) -> None:
        """Parameters; one that is there keeps its value, as MLflow refuses another."""
        self.record.params = params_with(self.record.params, params)
        self.commit()

    def tag(self, key: str, value: str) -> None:
        self.tags({key: value})

    def tags(self, tags: dict[str, str]) -> None:
        self.record.tags = {**self.record.tags, **tags}
        self.commit()

    def commit(self) -> None:
        self.record.save()


def params_with(known: dict[str, str], params: dict[str, str]) -> dict[str, str]:
    """``known`` and, behind it, what is new: what has been sent of them is counted."""
    return known | {key: value for key, value in params.items() if key not in known}
