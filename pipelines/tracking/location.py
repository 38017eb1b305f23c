"""Where the store and its files are, also after the project was copied or moved.

MLflow writes absolute places of artifacts into its database. A local store has them beside it, in
mlartifacts/: whenever it is opened, places that are left from another folder are set right.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

from filelock import FileLock

SQLITE = "sqlite:///"
DEFAULT_STORE = Path("mlflow.db")  # a local SQLite file, beside params.yaml
ARTIFACTS = "mlartifacts"
PLACES = {  # columns of the database that name places
    "runs": ("artifact_uri",),
    "logged_models": ("artifact_location",),
    "model_versions": ("source", "storage_location"),
}


def store_uri() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{DEFAULT_STORE.resolve()}"


def in_project(uri: str) -> str:
    """The URI as records keep it: that of the project's own store does not name its folder."""
    own = f"{SQLITE}{DEFAULT_STORE.resolve()}"
    return f"{SQLITE}{DEFAULT_STORE}" if uri == own else uri


def of_earlier_version(uri: str) -> str:
    """The same for a record that names the folder in which the project's store was then."""
    named = uri == os.environ.get("MLFLOW_TRACKING_URI")
    own = uri.startswith(SQLITE) and Path(uri).name == DEFAULT_STORE.name
    return f"{SQLITE}{DEFAULT_STORE}" if own and not named else uri


def local_file(uri: str) -> Path | None:
    """The database of a local store; None of a server."""
    if not uri.startswith(SQLITE):
        return None
    return Path(uri.removeprefix(SQLITE).partition("?")[0]).resolve()


@contextmanager
def one_at_a_time(uri: str) -> Iterator[None]:
    """Let one process at a time open a local store: two that create it at once break it."""
    database = local_file(uri)
    if not database:
        yield
        return
    with FileLock(f"{database}.lock"):
        yield


def artifacts_of(database: Path, experiment: str) -> str:
    """Where the artifacts of an experiment in a local store are."""
    return (database.parent / ARTIFACTS / experiment).as_uri()


def bring_places_up_to_date(database: Path) -> None:
    """Let every experiment that has its artifacts beside the store have them beside *this* store.

    A store that MLFLOW_TRACKING_URI names in a folder of its own may be shared by projects, in
    which earlier versions put the artifacts: only what is there beside the store is then its own.
    """
    with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        for key, name, before in connection.execute(
            "SELECT experiment_id, name, artifact_location FROM experiments"
        ).fetchall():
            now = place_here(database, key, name, before or "")
            if now in (before, None):
                continue
            connection.execute(
                "UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?", (now, key)
            )
            for table, columns in PLACES.items():
                for column in columns:
                    connection.execute(
                        f"UPDATE {table} SET {column} = ? || substr({column}, ?)"
                        f" WHERE substr({column}, 1, ?) = ?",
                        (now, len(before) + 1, len(before) + 1, f"{before}/"),
                    )


def place_here(database: Path, key: int, name: str, before: str) -> str | None:
    """Where an experiment of this store has its artifacts; None if ``before`` is to stay."""
    path = Path(unquote(urlparse(before).path) if before.startswith("file:") else before)
    for inner in (Path(ARTIFACTS, name), Path("mlruns", str(key))):
        here = database.parent / inner
        own = database.parent == Path.cwd() or here.exists()
        if own and path.is_absolute() and path.parts[-len(inner.parts) :] == inner.parts:
            return here.as_uri() if before.startswith("file:") else str(here)
    return None
