"""Datasets of benchmark tasks, downloaded from the hub once, at a commit that is then kept.

data/benchmarks/ is a cache of `datasets`. Its pins.json has each dataset's commit, and its folder
in the cache. All of it can be copied anywhere: what is there is read without a hub, and never at
another commit.
"""

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipelines.common.file_listing import BUILDERS, words_of
from pipelines.host.files import BENCHMARKS, alone, write_file

FOLDER = BENCHMARKS
FETCHED = FOLDER / "fetched.json"  # what `ftlab fetch` has brought, by task
WAIT = 10.0  # seconds for a hub's answer; a name that is not known takes none
NO_HUB: list[str] = []  # why the hub is out of reach, once a request has failed in this process
Source = tuple[str, str | None, dict[str, Any]]  # dataset, configuration, arguments of load_dataset
# of a dataset: its revision, and its folder: <dataset>/<configuration>/<version>/<revision>
Pin = dict[str, str]


class NotHere(Exception):
    """The dataset is not on this machine and cannot be downloaded; the message says why."""


def source(config: Any) -> Source:
    """The dataset of a task's configuration; the code that old datasets bring is not run."""
    kwargs = dict(config.dataset_kwargs or {})
    kwargs.pop("trust_remote_code", None)
    return config.dataset_path, config.dataset_name, kwargs


def pins() -> dict[str, Pin]:
    """All pins, by key_of."""
    path = FOLDER / "pins.json"
    return json.loads(path.read_bytes()) if path.exists() else {}


def key_of(dataset: str, name: str | None, kwargs: dict[str, Any]) -> str:
    """A pin's key; each choice of files or revision (``kwargs``) has a pin of its own."""
    return json.dumps([dataset, name, kwargs], sort_keys=True)


def load(dataset: str, name: str | None, kwargs: dict[str, Any]) -> Any:
    """All splits, cached or from the hub at the pinned commit, if one is; raises NotHere."""
    import datasets  # takes a second to import

    datasets.disable_progress_bars()
    datasets.disable_caching()  # of what tasks derive from their documents
    if dataset in BUILDERS or Path(dataset).is_dir():  # files that a task brings along
        with tempfile.TemporaryDirectory() as cache:
            kwargs = {"cache_dir": cache, "keep_in_memory": True, **kwargs}
            return datasets.load_dataset(dataset, name, **kwargs)
    key = key_of(dataset, name, kwargs)
    if not (pin := pins().get(key)) or not (FOLDER / pin["folder"]).exists():
        with alone(FOLDER / "fetching"):
            pin = pins().get(key)  # another process may have fetched it meanwhile
            if not pin or not (FOLDER / pin["folder"]).exists():
                pin = fetch(dataset, name, kwargs, pin)
                write_file(FOLDER / "pins.json", json.dumps(pins() | {key: pin}, indent=1) + "\n")
    return cached_dataset(dataset, pin)


def cached_dataset(dataset: str, pin: Pin) -> Any:
    from datasets.packaged_modules.cache.cache import Cache

    _, configuration, version, revision = Path(pin["folder"]).parts
    return Cache(
        cache_dir=str(FOLDER),
        repo_id=dataset,
        dataset_name=dataset.rpartition("/")[2],
        config_name=configuration,
        version=version,
        hash=revision,
    ).as_dataset()


def fetch(dataset: str, name: str | None, kwargs: dict[str, Any], pin: Pin | None) -> Pin:
    """Download a dataset to the cache; raises NotHere."""
    import datasets

    wanted = pin["revision"] if pin else kwargs.get("revision")
    revision = current_commit(dataset, wanted)
    try:
        kwargs = {**kwargs, "revision": revision}
        splits = datasets.load_dataset(dataset, name, cache_dir=str(FOLDER), **kwargs)
    except Exception as error:  # of the hub, its files, or what reads them
        words = words_of(error).rstrip(".")
        login = "; HF_TOKEN may hold a token that has access" if "gated" in words else ""
        raise NotHere(f"{dataset}: {words}{login}") from error
    (file, *_), *_ = splits.cache_files.values()
    folder = Path(file["filename"]).absolute().parent.relative_to(FOLDER.absolute())
    if folder.name != revision:  # the library took what is in the cache for a hub that broke off
        raise NotHere(f"{dataset}: {revision} could not be downloaded")
    return {"revision": revision, "folder": folder.as_posix()}


def current_commit(dataset: str, revision: str | None) -> str:
    """The commit of a dataset on the hub. Raises NotHere, and at once after a first failure to
    connect: the library itself would try each dataset for half a minute.
    """
    from datasets.config import HF_HUB_OFFLINE  # HF_DATASETS_OFFLINE is one, too
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if HF_HUB_OFFLINE:
        raise NotHere("no hub in reach: HF_HUB_OFFLINE or HF_DATASETS_OFFLINE is set")
    if NO_HUB:
        raise NotHere(NO_HUB[0])
    try:
        return str(HfApi().dataset_info(dataset, revision=revision, timeout=WAIT).sha)
    except HfHubHTTPError as error:  # the hub says no to this one
        raise NotHere(f"{dataset}: {words_of(error)}") from error
    except Exception as error:  # no connection, no such host, no answer
        NO_HUB.append(f"no hub in reach: {words_of(error)}")
        raise NotHere(NO_HUB[0]) from error


def origins(configs: Iterable[Any]) -> list[dict[str, Any]]:
    """Dataset, configuration and revision of all hub data that these tasks read, each once."""
    known, found = pins(), {}
    for dataset, name, kwargs in map(source, configs):
        if (key := key_of(dataset, name, kwargs)) in known:
            revision = known[key]["revision"]
            found[key] = {"dataset": dataset, "name": name, "revision": revision}
    return [found[key] for key in sorted(found)]


def fetched(tasks: Iterable[str]) -> dict[str, Any]:
    """What `ftlab fetch` has brought for ``tasks``."""
    listing = json.loads(FETCHED.read_bytes()) if FETCHED.exists() else {}
    return {task: listing[task] for task in sorted(tasks) if task in listing}
