"""A run's journal: what MLflow shows about a run and no result file has, as JSON lines.

The first line says what the run is. Each row of the training curve is a line, with its time and
the load of the machine, as soon as it is there; tags and the run's status are lines, too. The
journal lies in resume/ while the run is trained, and then beside its checkpoint, in the same output
of DVC.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from time import time
from typing import Any
from uuid import uuid4

from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.paths import JOURNAL
from pipelines.common.errors import UserError
from pipelines.config.schema import Experiment
from pipelines.tracking.datasets import of_data
from pipelines.tracking.describe import run_params, run_tags, statement_tags
from pipelines.tracking.tracked import Tracked


def read_journal(path: Path) -> Tracked:
    """Read a journal; raises UserError if there is none here."""
    run = Tracked()
    try:
        for line in path.read_bytes().splitlines():
            try:
                content = json.loads(line)
            except ValueError:  # empty, or cut short by a kill
                continue
            run.read_line(content)
    except (OSError, LookupError, TypeError):
        run.key = ""
    if not run.key:
        raise UserError(f"{path}: no journal of a run here, or a damaged one")
    return run


class Journal:
    """A journal that is being written, and what it says so far."""

    def __init__(self, path: Path, **identity: Any) -> None:
        """Continue the journal, or begin it anew with fields of Tracked; raises UserError."""
        self.path = path
        self.run = Tracked() if identity else read_journal(path)
        if identity:
            path.unlink(missing_ok=True)
            self.append(run={"key": uuid4().hex[:12], **identity})

    def append(self, **line: Any) -> None:
        """Add a line; raises UserError if the disk is full or read-only."""
        line = {"time": int(time() * 1000), **line}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "ab") as file:  # what a kill has cut short ends before this line
                file.write(b"\n" + json.dumps(line).encode())
        except OSError as error:
            raise UserError(f"{self.path.parent}: {error.strerror}") from None
        self.run.read_line(line)

    def add_row(
        self, row: dict[str, float], machine: Callable[[], dict[str, float]] = dict
    ) -> None:
        """Add a row of the curve, unless it is there, with what ``machine`` measures."""
        if row["step"] > self.run.step:
            self.append(row=row, system=machine())

    def set_status(self, status: str) -> None:
        """Set RUNNING, FAILED, KILLED or FINISHED; a finished run stays finished."""
        if self.run.status not in ("FINISHED", status):
            self.append(status=status)


def open_journal(
    manifest: Manifest, experiment: Experiment, go_on: bool, command: str = ""
) -> Journal:
    """Continue this very run's journal if it was cut short or if ``go_on`` (it has been trained, or
    goes on from a checkpoint); else begin one. Fills in the manifest's key.

    ``command`` makes the run; by default it is DVC's.
    """
    path = manifest.resume / JOURNAL
    known = Journal(path) if path.exists() else None
    same = known and manifest.tracking_key in ("", known.run.key)
    if known and same and (go_on or known.run.status != "FINISHED"):
        manifest.tracking_key = known.run.key
        return known
    manifest.tracking_key = manifest.tracking_key or uuid4().hex[:12]
    return Journal(
        path,
        key=manifest.tracking_key,
        experiment=manifest.experiment,
        run_name=manifest.run_name,
        params=run_params(manifest, experiment),
        tags=run_tags(manifest, command) | statement_tags(experiment),
        inputs=of_data(manifest.run["data"], manifest.data_hash),
    )


def journals(experiment: str = "*") -> Iterator[Path]:
    """The journals of all runs, or of an experiment's runs; a run's live one comes first."""
    for place in (f"resume/{experiment}/*/*", f"checkpoints/{experiment}/*"):
        yield from sorted(Path().glob(f"{place}/{JOURNAL}"))
    if experiment == "*":
        yield from sorted(Path().glob(f"sweeps/*/{JOURNAL}"))
