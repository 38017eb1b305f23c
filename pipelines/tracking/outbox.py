"""The outbox: everything that is logged to MLflow, kept on disk until the store has it.

A record is a folder ``tracking/<experiment>/<run>-<key>/`` with record.json and the artifacts. It
outlives the process, so that nothing is lost while the server is away.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

from pipelines.common.atomic_files import replace_file
from pipelines.common.errors import UserError
from pipelines.tracking import location

RECORDS = Path("tracking")
NOTHING: dict[str, Any] = {  # what has been sent of these if ``sent`` does not say
    **dict.fromkeys(("metrics", "artifacts", "inputs", "models"), 0),
    **dict.fromkeys(("parent", "experiment_note"), ""),
}
SAVING = Lock()  # the stage and its sending thread save the same record


@dataclass
class Record:
    """One MLflow run; ``sent`` counts what the server has of it, ``saved`` what the disk has.

    Two threads read it: lists only grow, and dictionaries are replaced, never changed. What is not
    on disk is not sent: a run resumed after a crash would send it again, with another time.
    """

    uri: str  # of its store, as in location.py
    experiment: str
    run_name: str
    spec_hash: str
    started: int  # ms since 1970, as all times here
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)  # only ever added to
    # key, value, time, step; of a kept checkpoint also the name of its model and of the dataset
    metrics: list[tuple[Any, ...]] = field(default_factory=list)
    artifacts: list[str] = field(default_factory=list)  # file names in the record's folder
    inputs: list[dict[str, str]] = field(default_factory=list)  # see datasets.py
    models: list[dict[str, Any]] = field(default_factory=list)  # see models.py
    model_ids: dict[str, str] = field(default_factory=dict)  # MLflow's, by the model's name
    experiment_note: str = ""  # the description of its experiment
    status: str = "RUNNING"
    ended: int | None = None
    trained_steps: int = -1  # the last step among the training metrics
    run_id: str = ""  # MLflow's, once the server has given one
    key: str = field(default_factory=lambda: uuid4().hex[:12])
    parent: str = ""  # key of the record of its parent run
    sent: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.saved = self.all_sent()

    @property
    def folder(self) -> Path:
        return RECORDS / self.experiment / f"{self.run_name}-{self.key}"

    def pending(self) -> bool:
        """Whether the server lacks something."""
        return NOTHING | self.sent != self.saved

    def note(self, **sent: Any) -> None:
        """Record on disk what the server has now."""
        self.sent = {**self.sent, **sent}
        self.save()

    def all_sent(self) -> dict[str, Any]:
        """The value of ``sent`` once the server has everything."""
        return {
            "params": len(self.params),
            "tags": self.tags,
            "metrics": len(self.metrics),
            "artifacts": len(self.artifacts),
            "inputs": len(self.inputs),
            "models": len(self.models),
            "experiment_note": self.experiment_note,
            "parent": self.parent,
            "status": self.status,
        }

    def save(self) -> None:
        """Raises UserError if the disk is full or read-only."""
        with SAVING:
            saved = self.all_sent()
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                with replace_file(self.folder / "record.json") as file:
                    file.write(json.dumps(asdict(self)).encode())
            except OSError as error:
                raise UserError(f"{self.folder}: {error.strerror}") from None
            self.saved = saved


def read_record(path: Path) -> Record:
    """Raises OSError, ValueError or TypeError if it is not readable."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if "inputs" not in content:
        content["uri"] = location.of_earlier_version(content["uri"])
    return Record(**content)


def records(experiment: str = "*", run_name: str = "*") -> Iterator[Record]:
    """Records on disk, oldest first; one cut short by a full disk is skipped."""
    readable = []
    for path in RECORDS.glob(f"{experiment}/{run_name}-*/record.json"):
        try:
            readable.append(read_record(path))
        except (OSError, ValueError, TypeError) as error:
            print(f"{path}: passed over, not readable ({error})")
    return iter(sorted(readable, key=lambda record: record.started))
