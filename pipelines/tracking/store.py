"""The MLflow store, MLFLOW_TRACKING_URI or mlflow.db beside params.yaml, and the views of runs that
every experiment there has.
"""

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Experiment, Run, ViewType
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE
from sqlalchemy import Engine, event
from sqlalchemy.engine import make_url

from pipelines.host.console import say
from pipelines.host.errors import UserError
from pipelines.host.files import lock_file

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # of the wrong pages
# a server that hangs holds up the end of a stage by this long, at most twice
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

# prints the traceback of what it then raises: of a database that is full or locked
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
LOCAL = "http://127.0.0.1:5000"  # of `make ui`
LOOPBACK = ("127.0.0.1", "localhost", "::1")
KEY_TAG = "record"  # tag with a run's key: finds a run whose creation was not acknowledged
NOTE_TAG = "note"  # tag of an experiment: the description that we gave it
# packages whose module has another name
PACKAGES = {
    "MySQLdb": "mysqlclient",
    "azure": "azure-storage-blob",
    "google": "google-cloud-storage",
}
RUNS = "workflowType=machine_learning"  # else MLflow shows traces of language-model applications
# an experiment's tag with a view of its runs, in the form in which MLflow 3.17 saves one
VIEW_TAG = "mlflow.sharedViewState."
BOUND_SECTION = "bound"
BOUND_METRICS = ("bound/bits_per_token", "bound/bits_per_byte")
MLFLOW_SECTIONS = ("Model metrics", "System metrics")  # which a view has to have
ARM_COLUMNS = {  # with their widths in pixels
    "params.`arm`": 95,
    "params.`kappa_bits`": 80,
    "params.`tokens`": 90,
    "params.`seed`": 55,
    "metrics.`bound/bits_per_token`": 150,
    "metrics.`bound/bits_per_byte`": 150,
    "metrics.`eval/bound_error_bits_per_token`": 130,
    "metrics.`eval/use_bits_per_token`": 130,
}


def store_uri() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path('mlflow.db').resolve()}"


def reason(error: BaseException) -> str:
    """What went wrong, as a short line."""
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        return f"the package {PACKAGES.get(module, module)} is missing here"
    return str(error).partition("\n")[0][:200] or type(error).__name__


def create(path: Path) -> None:
    """Create a local store: first under another name, because a partial one cannot be repaired, and
    without waiting for the disk at each of MLflow's many steps.
    """

    def hasten(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    event.listen(Engine, "connect", hasten)
    try:
        MlflowClient(f"sqlite:///{partial}")
    finally:
        event.remove(Engine, "connect", hasten)
    with open(partial, "rb+") as file:
        os.fsync(file.fileno())
    partial.rename(path)


def database(uri: str) -> Path | None:
    """The file of a local store; None for others. Raises UserError where none can be."""
    if not uri.startswith("sqlite"):
        return None
    name = make_url(uri).database
    if name in (None, "", ":memory:"):
        raise UserError(f"MLflow store {uri}: it names no file, so it would keep nothing")
    path = Path(str(name)).resolve()
    if not path.parent.is_dir():
        raise UserError(f"MLflow store {uri}: there is no folder {path.parent}")
    if path.is_dir():
        raise UserError(f"MLflow store {path}: this is a folder, not a database")
    return path


class Store:
    """An MLflow store, opened at its first use; whatever MLflow raises may come from any use."""

    def __init__(self) -> None:
        self.uri = store_uri()
        self.name = re.sub("//[^/@]*@", "//", self.uri)  # without a password

    @cached_property
    def client(self) -> MlflowClient:
        path = database(self.uri)
        if (host := urlsplit(self.uri).hostname) in LOOPBACK:  # no proxy leads to this machine
            others = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
            os.environ["no_proxy"] = f"{others},{host}"
        with self.one_at_a_time():
            if path and not path.exists():
                create(path)
            return MlflowClient(self.uri)

    def one_at_a_time(self) -> Any:
        """Let one process at a time into a local store where two would break it."""
        path = database(self.uri)
        return FileLock(lock_file(Path(f"{path}.lock"))) if path else nullcontext()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Raise UserError, one line, for whatever MLflow raises."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"MLflow at {self.name}: {reason(error)}") from None

    def experiment_id(self, name: str) -> str:
        """The experiment's id; it is made or restored if it is not there."""
        client = self.client  # opened before the lock, which opening takes, too
        with self.one_at_a_time():
            if experiment := client.get_experiment_by_name(name):
                if experiment.lifecycle_stage != "active":
                    client.restore_experiment(experiment.experiment_id)
                    say(f"MLflow experiment {name} was deleted; restored, with the runs it had")
                self.save_views(experiment)
                return str(experiment.experiment_id)
            place = None  # the server's own
            if path := database(self.uri):
                place = (path.parent / "mlartifacts" / name).as_uri()
            key = client.create_experiment(name, place)
            self.save_views(client.get_experiment(key))
            return key

    def save_views(self, experiment: Experiment) -> None:
        """Save our views of an experiment under MLflow's *Views*, unless they are there."""
        for tag, value in saved_views().items():
            if experiment.tags.get(tag) != value:
                self.client.set_experiment_tag(experiment.experiment_id, tag, value)

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
    store = Store()
    with suppress(Exception):
        if (path := database(store.uri)) and not path.exists():
            return {}  # which would be made
        if found := store.client.get_experiment_by_name(experiment):
            base = store.name.rstrip("/") if store.uri.startswith("http") else LOCAL
            place = f"{base}/#/experiments/{found.experiment_id}/runs"
            runs = store.client.search_runs([found.experiment_id])
            return {
                run.data.tags.get(KEY_TAG, ""): f"{place}/{run.info.run_id}?{RUNS}" for run in runs
            }
    return {}


def saved_views() -> dict[str, str]:
    """Tags of an experiment that MLflow lists under *Views*: Arms, a table that begins with the arm
    of the lowest bound, and Curves. Both have a row, or a line, for each arm: its mean over seeds.
    """
    arms: dict[str, Any] = {
        "searchFilter": "tags.arm != ''",  # neither parents nor what was trained anew since
        "orderByKey": f"metrics.`{BOUND_METRICS[0]}`",
        "orderByAsc": True,
        "selectedColumns": [*ARM_COLUMNS],
        "columnOrder": [*ARM_COLUMNS],
        "columnWidths": ARM_COLUMNS,
        "runsHiddenMode": "SHOW_ALL",
        "groupBy": {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": "tag", "groupByData": "arm"}],
        },
    }
    views = {"Curves": arms | charts(), "Arms": arms}  # MLflow lists the newest first
    return {
        VIEW_TAG + name.lower(): json.dumps(
            {"name": name, "createdAt": at, "state": json.dumps(state)}
        )
        for at, (name, state) in enumerate(views.items())
    }


def charts() -> dict[str, Any]:
    """Charts of the bound against κ, which MLflow does not draw unasked.

    MLflow adds a chart against the step for each metric, in the section of its name: bounds against
    tokens beside bounds against κ.
    """
    sections: list[dict[str, Any]] = [
        {"uuid": name, "name": name, "display": True, "isReordered": False, "isGenerated": True}
        for name in (BOUND_SECTION, *MLFLOW_SECTIONS)
    ]
    sections[0]["columns"] = 2
    drawn = [
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
    return {"compareRunSections": sections, "compareRunCharts": drawn}
