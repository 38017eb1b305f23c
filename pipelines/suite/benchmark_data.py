"""Datasets of benchmark tasks: downloaded from a hub once, to a folder that can be copied anywhere.

pipelines.fetch may fill the folder from files that lie elsewhere, too.

data/benchmarks/<dataset>/<configuration>/ holds the splits as Arrow files, and their origin.
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from pathlib import Path
from typing import Any

from pipelines.artifacts.paths import BENCHMARKS
from pipelines.common.atomic_files import ROOT, alone, replace_folder
from pipelines.common.file_listing import BUILDERS, one_line
from pipelines.common.hub import NoCommit, dataset_commit

FOLDER = BENCHMARKS
FETCHED = FOLDER / "fetched.json"  # what pipelines.fetch has brought, by task
ORIGIN = "origin.json"
WAIT = 10.0  # seconds for a hub's answer; a name that is not known takes none
NO_HUB: list[str] = []  # why the hub is out of reach, once a request has failed in this process
Source = tuple[str, str | None, dict[str, Any]]  # dataset, configuration, arguments of load_dataset
Fill = Callable[[str, str | None, dict[str, Any], Path], None]  # and the folder to be filled
OTHER_THAN_THE_HUB: ContextVar[Fill | None] = ContextVar("other than the hub", default=None)


class NotHere(Exception):
    """The dataset is not on this machine and cannot be downloaded; the message says why."""


def source(config: Any) -> Source:
    """The dataset of a task's configuration; the code that old datasets bring is not run."""
    kwargs = dict(config.dataset_kwargs or {})
    kwargs.pop("trust_remote_code", None)
    return config.dataset_path, config.dataset_name, kwargs


def folder_of(dataset: str, name: str | None, kwargs: dict[str, Any]) -> Path:
    """The folder of a dataset; each choice of files or revision (``kwargs``) has one of its own."""
    part = name or "default"
    if kwargs:
        part += "-" + sha256(json.dumps(kwargs, sort_keys=True).encode()).hexdigest()[:8]
    return FOLDER / dataset.replace("/", "--") / part


def is_local(dataset: str) -> bool:
    """Whether a task names files of its own rather than a dataset of a hub."""
    return dataset in BUILDERS or Path(dataset).is_dir() or (ROOT / dataset).is_dir()


@contextmanager
def filled_by(fill: Fill) -> Iterator[None]:
    """Until the block ends, ``fill`` is asked for every dataset, and the hub for none."""
    token = OTHER_THAN_THE_HUB.set(fill)
    try:
        yield
    finally:
        OTHER_THAN_THE_HUB.reset(token)


def load(dataset: str, name: str | None, kwargs: dict[str, Any]) -> Any:
    """All splits, as `datasets.DatasetDict`: from the folder if they are there, else from the hub,
    which then fills the folder. Raises NotHere.
    """
    import datasets  # takes a second to import

    datasets.disable_progress_bars()
    datasets.disable_caching()  # of what tasks derive from their documents
    if is_local(dataset):
        return load_local(dataset, name, kwargs)
    folder = folder_of(dataset, name, kwargs)
    fill = OTHER_THAN_THE_HUB.get()
    if fill or not folder.exists():
        with alone(FOLDER / "fetching"):
            if fill:
                fill(dataset, name, kwargs, folder)
            elif not folder.exists():  # another process may have filled it meanwhile
                fetch(dataset, name, kwargs, folder)
    return datasets.load_from_disk(str(folder))


def load_local(dataset: str, name: str | None, kwargs: dict[str, Any]) -> Any:
    """Files that a task brings along; those of ours are named from the project's folder."""
    import datasets

    if not Path(dataset).is_dir() and (ROOT / dataset).is_dir():
        dataset = str(ROOT / dataset)
    if isinstance(files := kwargs.get("data_files"), dict):
        files = {split: from_root(paths) for split, paths in files.items()}
        kwargs = {**kwargs, "data_files": files}
    with tempfile.TemporaryDirectory() as cache:
        return datasets.load_dataset(dataset, name, cache_dir=cache, keep_in_memory=True, **kwargs)


def from_root(paths: Any) -> Any:
    if isinstance(paths, str):
        return str(ROOT / paths) if (ROOT / paths).exists() else paths
    return [from_root(path) for path in paths]


def fetch(dataset: str, name: str | None, kwargs: dict[str, Any], folder: Path) -> None:
    """Download a dataset to its folder; raises NotHere."""
    import datasets

    revision = current_commit(dataset, kwargs.get("revision"))
    kwargs = {**kwargs, "revision": revision}
    with tempfile.TemporaryDirectory(dir=FOLDER) as cache:
        try:
            splits = datasets.load_dataset(dataset, name, cache_dir=cache, **kwargs)
        except Exception as error:  # of the hub, its files, or what reads them
            raise NotHere(f"{dataset}: {one_line(error)}") from error
        with replace_folder(folder) as partial:
            splits.save_to_disk(str(partial))
            origin = {"dataset": dataset, "name": name, "revision": revision}
            (partial / ORIGIN).write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")


def current_commit(dataset: str, revision: str | None) -> str:
    """The commit of the hub's dataset. Raises NotHere: at once after a first failure to connect,
    where the library itself tries each dataset for half a minute.
    """
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if NO_HUB:
        raise NotHere(NO_HUB[0])
    try:
        return dataset_commit(dataset, revision, timeout=WAIT)
    except (HfHubHTTPError, NoCommit) as error:  # the hub says no to this one
        raise NotHere(f"{dataset}: {one_line(error)}") from error
    except Exception as error:  # no connection, no such host, no answer, or asked to stay offline
        offline = isinstance(error, OfflineModeIsEnabled)
        why = "HF_HUB_OFFLINE is set" if offline else one_line(error)
        NO_HUB.append(f"no hub in reach: {why}")
        raise NotHere(NO_HUB[0]) from error


def origin(dataset: str, name: str | None, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Dataset, configuration and revision that a folder was filled from; files and notes of one
    that was not filled from the hub.
    """
    content: dict[str, Any] = json.loads(
        (folder_of(dataset, name, kwargs) / ORIGIN).read_text(encoding="utf-8")
    )
    return content


def origins(configs: Iterable[Any]) -> list[dict[str, Any]]:
    """Of the datasets in data/benchmarks/ that tasks of these configurations read, each once."""
    by_folder = {}
    for config in configs:
        dataset, name, kwargs = source(config)
        if dataset and not is_local(dataset):
            folder = folder_of(dataset, name, kwargs)
            if (folder / ORIGIN).exists():
                by_folder[folder] = origin(dataset, name, kwargs)
    return [by_folder[folder] for folder in sorted(by_folder)]


def sources(origins: Iterable[dict[str, Any]]) -> list[str]:
    """Where data are from, in words: dataset and commit of the hub, or the files elsewhere."""
    words = []
    for each in origins:
        if "files" not in each:
            words.append(f"{each['dataset']} at {each['revision']}")
        for file in each.get("files", []):
            place = file["file"]
            if "commit" in file:
                place = f"{file['repository']} at {file['commit']}, {file['path']}"
            words.append(f"{each['dataset']} from {place}, sha256 {file['sha256']}")
    return list(dict.fromkeys(words))


def notes(origins: Iterable[dict[str, Any]]) -> list[str]:
    """What data that are not from the hub have otherwise than the hub's."""
    return list(dict.fromkeys(note for each in origins for note in each.get("notes", [])))


def fetched(tasks: Iterable[str]) -> dict[str, Any]:
    """What pipelines.fetch has brought for ``tasks``."""
    listing = json.loads(FETCHED.read_bytes()) if FETCHED.exists() else {}
    return {task: listing[task] for task in sorted(tasks) if task in listing}
