"""Brings MLflow up to date with what is on disk about a run: sends what it lacks, nothing twice.

It asks what MLflow has, and forgets it whenever a call fails. So a sync may be cut short anywhere,
by the end of a process or of a server, and the next one completes it. Exported models, and the best
arm's in MLflow's registry of models, belong to what a sync has made.
"""

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import mlflow
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    LoggedModel,
    LoggedModelOutput,
    LoggedModelStatus,
    Metric,
    Param,
    Run,
    RunTag,
    ViewType,
)
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_PARENT_RUN_ID
from mlflow.utils.uri import is_local_uri

from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.load import load_experiment
from pipelines.config.schema import Experiment
from pipelines.host.console import say
from pipelines.host.errors import UserError
from pipelines.host.files import (
    lock_file,
    lock_of,
    published_journal,
    resume_folder,
    write_file,
)
from pipelines.tracking.journal import (
    STATEMENT,
    WHAT_IS_COMPARED,
    Journal,
    Point,
    Tracked,
    experiment_note,
    group_words,
    journals,
    model_name,
    source_tags,
)
from pipelines.tracking.measured import add_arms, read_tracked
from pipelines.tracking.store import KEY_TAG, Store, database, reason

ONE_VALUE_A_STEP = ("curve/", "curve_by_tokens/", "system/")  # the first that was sent
METRICS_PER_CALL = 500  # the server's limit is 1000
UNFINISHED = ("KILLED", "FAILED")  # a run's name says so
REPLACED = "(replaced)"  # in the name of a run whose training was done anew


class FilesNotTaken(Exception):
    """The store has everything about a run but its files, which are kept elsewhere."""


@dataclass
class Known:
    """A run in MLflow, as far as a sync compares it with what lies on disk."""

    id: str
    name: str
    artifacts: str  # where they are
    end: tuple[str, int | None]  # status and time
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    inputs: set[tuple[str, str]] = field(default_factory=set)  # name and digest
    outputs: set[str] = field(default_factory=set)  # ids of logged models
    models: dict[str, LoggedModel] = field(default_factory=dict)  # by name
    points: dict[tuple[str, int], float] = field(default_factory=dict)  # the newest of each step

    @classmethod
    def of(cls, run: Run, client: MlflowClient) -> "Known":
        info, data = run.info, run.data
        known = cls(info.run_id, info.run_name, info.artifact_uri, (info.status, info.end_time))
        known.params |= data.params
        known.tags |= data.tags
        own = f"source_run_id = '{info.run_id}'"
        models = client.search_logged_models([info.experiment_id], own)
        known.models = {model.name: model for model in models}
        if run.inputs:
            datasets = [each.dataset for each in run.inputs.dataset_inputs]
            known.inputs = {(each.name, each.digest) for each in datasets}
        if run.outputs:
            known.outputs = {each.model_id for each in run.outputs.model_outputs}
        for key in data.metrics:
            history = client.get_metric_history(info.run_id, key)
            for point in sorted(history, key=lambda point: point.timestamp):
                known.points[key, point.step] = point.value
        return known

    def lacks(self, point: Point) -> bool:
        """Whether a point must be sent: it is not there, or has another value."""
        value = self.points.get((point.key, point.step))
        if value is None:
            return True
        if value != point.value and not point.key.startswith(ONE_VALUE_A_STEP):
            return True
        if point.origin is None:
            return False
        # MLflow keeps such a point twice, for the run and for its logged model. A server that was
        # killed may have written the run's alone
        wanted = (point.key, point.step, point.value, point.origin.dataset)
        metrics = self.models[point.origin.model].metrics or []
        return wanted not in {(m.key, m.step, m.value, m.dataset_name) for m in metrics}

    def metric(self, point: Point) -> Metric:
        """A point as MLflow's type, with its logged model and dataset if it has them."""
        origin = point.origin
        if origin is None:
            return Metric(point.key, point.value, point.time, point.step)
        return Metric(
            point.key,
            point.value,
            point.time,
            point.step,
            model_id=self.models[origin.model].model_id,
            dataset_name=origin.dataset,
            dataset_digest=origin.digest,
            run_id=self.id,
        )


class Sync:
    """Syncs runs with a store, and asks what that has about a run once, while all goes well."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known: dict[str, Known] = {}  # by the run's key

    @property
    def client(self) -> MlflowClient:
        return self.store.client

    def __call__(self, run: Tracked, note: str = "", revive: bool = True) -> Known | None:
        """Send what the store lacks; returns what it has then. ``note`` describes the run's
        experiment. A run that was deleted in MLflow is made anew if ``revive``, else it is left
        alone. Raises whatever MLflow raises, and FilesNotTaken after all else was sent.
        """
        lock = resume_folder(run.experiment, f"{run.run_name}.tracking.lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock_file(lock)):
            # Taken out, and put back only at the end: what MLflow has is asked anew after a failure
            known = self.known.pop(run.key, None)
            experiment_id = self.store.experiment_id(run.experiment)
            if note:
                self.store.describe_experiment(experiment_id, note)
            if known is None:
                # The key finds a run whose creation was not acknowledged
                found = self.store.find(experiment_id, run.key)
                deleted = ViewType.DELETED_ONLY
                if not (found or revive) and self.store.find(experiment_id, run.key, deleted):
                    return None
                if found is None:
                    tags = {**run.tags, KEY_TAG: run.key}
                    found = self.client.create_run(experiment_id, run.started, tags, run.run_name)
                known = Known.of(found, self.client)
            # Models before the points that name them, and the end after these: a run that MLflow
            # shows as finished has its figures. Files may need another service than the server
            self.send_words(run, known, experiment_id)
            self.send_models(run, known, experiment_id)
            self.send_points(run, known)
            self.send_end(run, known)
            self.send_files(run, known)
            # A logged model came with its metrics, which have changed now: ask again next time
            if not run.models:
                self.known[run.key] = known
        return known

    def send_words(self, run: Tracked, known: Known, experiment_id: str) -> None:
        """Send parameters, tags, parent and inputs. A parameter keeps its value, because MLflow
        refuses another; MLflow's own tags, such as the description, may have been edited and stay.
        """
        params = {key: value for key, value in run.params.items() if key not in known.params}
        mlflow_tags = {key for key in known.tags if key.startswith("mlflow.")}
        tags = {key: value for key, value in run.tags.items() if key not in mlflow_tags}
        if run.parent and (parent := self.store.find(experiment_id, run.parent)):
            tags[MLFLOW_PARENT_RUN_ID] = parent.info.run_id
        tags = dict(tags.items() - known.tags.items())
        if params:
            self.client.log_batch(known.id, params=[Param(k, v) for k, v in params.items()])
        if tags:
            self.client.log_batch(known.id, tags=[RunTag(k, v) for k, v in tags.items()])
        known.params |= params
        known.tags |= tags
        inputs = {(each["name"], each["digest"]): dict(each) for each in run.inputs}
        new = []
        for key, fields in inputs.items():
            context = InputTag(MLFLOW_DATASET_CONTEXT, fields.pop("context"))
            if key not in known.inputs:
                new.append(DatasetInput(Dataset(**fields), [context]))
        if new:
            self.client.log_inputs(known.id, new)
            known.inputs |= inputs.keys()

    def send_models(self, run: Tracked, known: Known, experiment_id: str) -> None:
        """Make a logged model of each kept checkpoint, finalize it, and link it to the run: three
        calls, each of which may be the first that is missing.
        """
        for content in run.models:
            model = known.models.get(content["name"]) or self.client.create_logged_model(
                experiment_id, source_run_id=known.id, model_type="checkpoint", **content
            )
            known.models[content["name"]] = model
            if model.status != LoggedModelStatus.READY:
                self.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
            if model.model_id not in known.outputs:
                output = LoggedModelOutput(model.model_id, int(content["params"]["tokens"]))
                self.client.log_outputs(known.id, [output])

    def send_points(self, run: Tracked, known: Known) -> None:
        points = [point for point in run.points if known.lacks(point)]
        for start in range(0, len(points), METRICS_PER_CALL):
            batch = points[start : start + METRICS_PER_CALL]
            self.client.log_batch(known.id, [known.metric(point) for point in batch])
            known.points |= {(point.key, point.step): point.value for point in batch}

    def send_files(self, run: Tracked, known: Known) -> None:
        """Name the files in tags. A store whose artifacts have an absolute place on this machine
        gets no copy: a copied project would write it into the original's.
        """
        for path in filter(Path.exists, run.files):
            files = sorted(path.iterdir()) if path.is_dir() else [path]
            content = b"".join(file.name.encode() + file.read_bytes() for file in files)
            tag, value = f"file.{path.name}", f"{path} {sha256(content).hexdigest()[:16]}"
            if known.tags.get(tag) == value:
                continue
            if not is_local_uri(known.artifacts):
                try:
                    for file in files:
                        self.client.log_artifact(known.id, str(file))
                except Exception as error:
                    words = f"{reason(error)}, for files in {known.artifacts}"
                    raise FilesNotTaken(words) from error
            self.client.set_tag(known.id, tag, value)
            known.tags[tag] = value

    def send_end(self, run: Tracked, known: Known) -> None:
        """Send the run's status, and when it ended unless it goes on. A name that the user has
        given stays.
        """
        name = f"{run.run_name} {run.status}" if run.status in UNFINISHED else run.run_name
        ours = {run.run_name, *(f"{run.run_name} {word}" for word in (*UNFINISHED, REPLACED))}
        if known.name != name and known.name in ours:
            self.client.update_run(known.id, name=name)
            known.name = name
        if (run.status, run.ended) == known.end:
            return
        if run.status == "RUNNING":
            self.client.update_run(known.id, run.status)
        else:
            self.client.set_terminated(known.id, run.status, run.ended)
        known.end = (run.status, run.ended)


def nest(sync: Sync, runs: list[Tracked], others: set[str]) -> None:
    """Nest the trained runs of an experiment in one that has each arm's mean over seeds and spread.

    That run is found by those that are nested in it already, or by its key in resume/, because
    other projects may have runs of the same names on the same server. A run that is nested there
    and has been trained anew loses its arm, so that no mean counts a seed twice; ``others`` are the
    keys of further runs that are on disk.
    """
    name = runs[0].experiment
    with FileLock(lock_file(resume_folder(name, "tracking.lock"))):
        experiment_id = sync.store.experiment_id(name)
        found = sync.client.search_runs([experiment_id])
        ids = {run.info.run_id: run for run in found}
        keys = {run.key for run in runs}
        nested = [run for run in found if run.data.tags.get(KEY_TAG) in keys]
        parents = [ids.get(run.data.tags.get(MLFLOW_PARENT_RUN_ID)) for run in nested]
        kept = resume_folder(name, "tracking.key")
        # The key of the run to nest in: that of MLflow's, or else the one that was kept or is new
        key = next((run.data.tags[KEY_TAG] for run in parents if run), None)
        key = key or (kept.read_text(encoding="utf-8") if kept.exists() else uuid4().hex[:12])
        write_file(kept, key)
        ends = [run.ended for run in runs if run.ended]
        note = f"Experiment `{name}`: each arm's mean over seeds and spread.\n\n{WHAT_IS_COMPARED}"
        tags = source_tags(note, f"make repro EXPERIMENT={name}")
        parent = Tracked(
            experiment=name,
            run_name=name,
            key=key,
            started=min(run.started for run in runs),
            ended=max(ends, default=None),
            status="FINISHED",
            tags=tags | {tag: runs[0].tags[tag] for tag in STATEMENT if tag in runs[0].tags},
        )
        add_arms(parent, runs)
        known = sync(parent)
        assert known
        for run in nested:
            if run.data.tags.get(MLFLOW_PARENT_RUN_ID) != known.id:
                sync.client.set_tag(run.info.run_id, MLFLOW_PARENT_RUN_ID, known.id)
        # What was nested earlier and has been trained anew since no longer counts
        names = {run.run_name for run in runs}
        for run in found:
            before, old = run.data.tags, run.info.run_name
            ours = before.get(MLFLOW_PARENT_RUN_ID) == known.id and old in names
            if ours and "arm" in before and before.get(KEY_TAG) not in keys | others:
                sync.client.update_run(run.info.run_id, name=f"{old} {REPLACED}")
                sync.client.delete_tag(run.info.run_id, "arm")


def label(run: Tracked, experiment: Experiment) -> None:
    """Give a run its arm as the experiment has it now; a trial of a sweep keeps the sweep's."""
    if run.run_name in experiment.runs and not run.parent:
        words = group_words(experiment, run.run_name, run.params)
        run.params = words | run.params
        run.tags = run.tags | words


def end_if_dead(path: Path, run: Tracked) -> None:
    """Note the end of a training that was killed outright: nobody holds the lock of its folder."""
    lock = lock_of(resume_folder(run.experiment, run.run_name))
    with suppress(OSError, NotImplementedError), lock.acquire(timeout=0):  # Timeout is an OSError
        at = max((point.time for point in run.points), default=run.started)
        Journal(path).append(status="KILLED", time=at)


def sync_all(store: Store, experiment: str = "*", finished: bool = True) -> int:
    """Sync all runs of this project, or of an experiment, and return their number. Runs deleted in
    MLflow stay deleted. Without ``finished``, runs that MLflow was told of at their end are only
    nested. Raises whatever MLflow raises.
    """
    runs: dict[str, Tracked] = {}  # by key; of a run with two journals, the live one
    trained: dict[str, list[Tracked]] = defaultdict(list)  # by experiment
    notes: dict[str, str] = {}  # by experiment
    sync = Sync(store)
    current: Experiment | None = None
    with suppress(UserError):  # no params.yaml, or one of an earlier version
        current = load_experiment()
        notes[current.name] = experiment_note(current)
    for path in journals(experiment):
        try:
            run = read_tracked(path)
            if run.status == "RUNNING" and path.is_relative_to("resume"):
                end_if_dead(path, run)
                run = read_tracked(path)
        except UserError as error:
            say(f"passed over: {error}")
            continue
        if current and run.experiment == current.name:
            label(run, current)
        runs.setdefault(run.key, run)
        if path == published_journal(run.experiment, run.run_name) and not run.parent:
            trained[run.experiment].append(run)
    lacking = None
    for run in sorted(runs.values(), key=lambda run: bool(run.parent)):  # parents first
        if children := [each for each in runs.values() if each.parent == run.key]:
            add_arms(run, children)
        if finished or run.status != "FINISHED":
            try:
                sync(run, "" if run.parent else notes.get(run.experiment, ""), revive=False)
            except FilesNotTaken as error:  # all else is there, so the other runs are sent, too
                lacking = error
    for group in trained.values():
        nest(sync, group, runs.keys() - {run.key for run in group})
    if lacking:
        raise lacking
    return len(runs)


def sync_stage(spec: RunSpec) -> None:
    """Sync a trained run after a stage, or say that a later one must."""
    store = Store()
    try:
        run = read_tracked(published_journal(spec.experiment.name, spec.name))
        label(run, spec.experiment)
        Sync(store)(run, note="" if run.parent else experiment_note(spec.experiment))
    except Exception as error:  # whatever MLflow raises, what was measured counts
        say(behind(store, error))


def sync_report(experiment: str) -> None:
    """Nest an experiment's runs and compare its arms, where there is a store already."""
    store = Store()
    try:
        if (path := database(store.uri)) is None or path.exists():
            sync_all(store, experiment, finished=False)
    except Exception as error:
        say(behind(store, error))


def behind(store: Store, error: Exception) -> str:
    """One line for whatever kept MLflow from being up to date."""
    return (
        f"MLflow at {store.name} is not up to date ({reason(error)}); going on. The run's next "
        "stage sends the rest, or `ftlab tracking`"
    )


class ModelEntry:
    """MLflow's logged model of a checkpoint."""

    def __init__(self, manifest: Manifest, listed: int | None = None) -> None:
        """``listed`` is the model's smaller budget, if it has one. Raises UserError if the store is
        away or has no such model: evaluation makes it.
        """
        self.store = Store()
        name = model_name(manifest.run_name, listed)
        run = read_tracked(published_journal(manifest.experiment, manifest.run_name))
        with self.store.answering():
            self.client = self.store.client
            known = Sync(self.store)(run)
        if not known or name not in known.models:
            raise UserError(
                f"MLflow at {self.store.name} has no model {name}: "
                f"`dvc repro evaluate@{manifest.run_name}` makes it"
            )
        model = known.models[name]
        self.id = model.model_id
        self.place = model.artifact_location

    def hold(self, path: Path) -> str:
        """Add a file, or what a folder holds, in place of files of the same names; returns in words
        where they are then.

        In a store on this machine a tag names the path instead. The store's own place is absolute:
        a moved or copied project would not find it, or would write into another's.
        """
        try:
            if is_local_uri(self.place):
                self.client.set_logged_model_tags(self.id, {"exported": str(path)})
                return f"models:/{self.id}: in MLflow, the tag `exported` names it"
            if path.is_dir():
                self.client.log_model_artifacts(self.id, str(path))
            else:
                self.client.log_model_artifact(self.id, str(path))
        except Exception as error:
            raise UserError(
                f"{path} is written; MLflow at {self.store.name} did not take it: {reason(error)}"
            ) from None
        return f"models:/{self.id}: the same, in MLflow"


def register_model(manifest: Manifest, alias: str, description: str) -> str:
    """Make a run's last checkpoint a version of the registered model with the experiment's name,
    and give it an alias. Returns the version's number, which is the same if it is done again.
    Raises UserError if the store is away or has no logged model of the run.
    """
    entry = ModelEntry(manifest)
    mlflow.set_tracking_uri(entry.store.uri)  # where MLflow looks the model up
    with entry.store.answering():
        source = f"models:/{entry.id}"
        versions = entry.client.search_model_versions(f"name = '{manifest.experiment}'")
        version = next((each for each in versions if each.source == source), None)
        if version is None:
            version = mlflow.register_model(source, manifest.experiment)
        entry.client.update_model_version(manifest.experiment, version.version, description)
        entry.client.set_registered_model_alias(manifest.experiment, alias, version.version)
    return str(version.version)
