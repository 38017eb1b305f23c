"""The MLflow store, MLFLOW_TRACKING_URI or mlflow.db beside params.yaml, and the charts that its
pages open with.
"""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Run, ViewType
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE
from requests import RequestException

from pipelines.host.console import say
from pipelines.host.errors import UserError

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# a server that hangs holds up the end of a stage by this long, at most twice
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

# prints the traceback of what it then raises: of a database that is full or locked
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
SQLITE = "sqlite:///"
LOCAL = "http://127.0.0.1:5000"  # of `make ui`
KEY_TAG = "record"  # tag with a run's key: finds a run whose creation was not acknowledged
NOTE_TAG = "note"  # tag of an experiment: the description that we gave it
AWAY = (MlflowException, RequestException, OSError)
VIEW_KEY = "charts"
# an experiment's tag with a view of its charts, in the form in which MLflow 3.17 shares one
VIEW_TAG = f"mlflow.sharedViewState.{VIEW_KEY}"
BOUND_SECTION = "bound"
BOUND_METRICS = ("bound/bits_per_token", "bound/bits_per_byte")
MLFLOW_SECTIONS = ("Model metrics", "System metrics")  # which a view has to have


def store_uri() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{Path('mlflow.db').resolve()}"


def create(path: Path) -> None:
    """Create a local store: first under another name, because a partial one cannot be repaired, and
    without waiting for the disk at each of MLflow's many steps.
    """
    from sqlalchemy import Engine, event

    def hasten(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    event.listen(Engine, "connect", hasten)
    try:
        MlflowClient(f"{SQLITE}{partial}")
    finally:
        event.remove(Engine, "connect", hasten)
    with open(partial, "rb+") as file:
        os.fsync(file.fileno())
    partial.rename(path)


def database(uri: str) -> Path | None:
    """The file of a local store; None for others."""
    if not uri.startswith(SQLITE):
        return None
    return Path(uri.removeprefix(SQLITE).partition("?")[0]).resolve()


class Store:
    """An MLflow store; a local one lets in one process at a time, because two break it."""

    def __init__(self) -> None:
        """Raises UserError for an unknown kind of store, or a local one that cannot be opened."""
        self.uri = store_uri()
        self.database = database(self.uri)
        if self.database and not self.database.parent.is_dir():  # which would be made
            raise UserError(f"MLflow store {self.uri}: there is no folder {self.database.parent}")
        try:
            with self.one_at_a_time():
                if self.database and not self.database.exists():
                    create(self.database)
                self.client = MlflowClient(self.uri)
        except MlflowException as error:
            raise UserError(f"MLflow store {self.uri}: {str(error).splitlines()[0]}") from None

    def one_at_a_time(self) -> Any:
        return FileLock(f"{self.database}.lock") if self.database else nullcontext()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Raise UserError if the store does not answer."""
        try:
            yield
        except AWAY as error:
            raise UserError(f"MLflow at {self.uri} does not answer: {error}") from None

    def experiment_id(self, name: str) -> str:
        """The experiment's id; it is made or restored if it is not there."""
        with self.one_at_a_time():
            if experiment := self.client.get_experiment_by_name(name):
                if experiment.lifecycle_stage != "active":
                    self.client.restore_experiment(experiment.experiment_id)
                    say(f"MLflow experiment {name} was deleted; restored, with the runs it had")
                return str(experiment.experiment_id)
            place = None  # the server's own
            if self.database:
                place = (self.database.parent / "mlartifacts" / name).as_uri()
            return self.client.create_experiment(name, place)

    def describe_experiment(self, experiment_id: str, note: str) -> None:
        """Set the description of an experiment, unless somebody has written another."""
        tags = self.client.get_experiment(experiment_id).tags
        ours = (tags.get(NOTE_TAG, ""), note)  # the second after a kill between the two calls below
        if note != tags.get(NOTE_TAG) and tags.get(MLFLOW_RUN_NOTE, "") in ours:
            self.client.set_experiment_tag(experiment_id, MLFLOW_RUN_NOTE, note)
            self.client.set_experiment_tag(experiment_id, NOTE_TAG, note)

    def find(self, experiment_id: str, key: str, stage: int = ViewType.ACTIVE_ONLY) -> Run | None:
        """The run with this key, by default one that nobody has deleted."""
        found = self.client.search_runs([experiment_id], f"tags.{KEY_TAG} = '{key}'", stage)
        return found[0] if found else None


def run_pages(experiment: str) -> dict[str, str]:
    """Addresses of an experiment's runs in MLflow, by the run's key: on its own server, or else on
    `make ui`'s. Empty if there is no store or it does not answer.
    """
    uri = store_uri()
    if (path := database(uri)) and not path.exists():
        return {}  # which would be made
    base = uri.rstrip("/") if uri.startswith("http") else LOCAL
    with suppress(UserError, *AWAY):
        client = Store().client
        if found := client.get_experiment_by_name(experiment):
            place = f"{base}/#/experiments/{found.experiment_id}/runs"
            runs = client.search_runs([found.experiment_id])
            return {run.data.tags.get(KEY_TAG, ""): f"{place}/{run.info.run_id}" for run in runs}
    return {}


def chart_view() -> str:
    """The charts that `make ui` opens with: bound against κ, which MLflow does not draw unasked.

    MLflow adds a chart against the step for each metric, in the section of its name: bounds against
    tokens beside bounds against κ.
    """
    sections: list[dict[str, Any]] = [
        {"uuid": name, "name": name, "display": True, "isReordered": False, "isGenerated": True}
        for name in (BOUND_SECTION, *MLFLOW_SECTIONS)
    ]
    sections[0]["columns"] = 2
    charts = [
        {
            "type": "SCATTER",
            "uuid": f"SCATTER {metric}",
            "metricSectionId": BOUND_SECTION,
            "deleted": False,
            "isGenerated": False,
            "runsCountToCompare": 100,
            "xaxis": {"key": "kappa_axis", "type": "PARAM"},
            "yaxis": {"key": metric, "type": "METRIC"},
        }
        for metric in BOUND_METRICS
    ]
    return json.dumps({"compareRunSections": sections, "compareRunCharts": charts})
