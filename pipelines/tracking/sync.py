"""Brings MLflow up to date with what is on disk about a run: sends what it lacks, nothing twice.

It asks what MLflow has, and forgets it whenever a call fails. So a sync may be cut short anywhere,
by the end of a process or of a server, and the next one completes it. Exported models, and the best
arm's in MLflow's registry of models, belong to what a sync has made.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

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
from pipelines.host.console import say
from pipelines.host.errors import UserError
from pipelines.host.files import published_journal, resume_folder
from pipelines.tracking.journal import (
    Point,
    Tracked,
    experiment_note,
    journals,
    model_name,
)
from pipelines.tracking.measured import read_tracked
from pipelines.tracking.store import AWAY, KEY_TAG, Store

ONE_VALUE_A_STEP = ("curve/", "curve_by_tokens/", "system/")  # the first that was sent
METRICS_PER_CALL = 500  # the server's limit is 1000
LATER = "kept for MLflow; the run's next stage sends it, or `ftlab tracking`"


@dataclass
class Known:
    """A run in MLflow, as far as a sync compares it with what lies on disk."""

    id: str
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
        known = cls(info.run_id, info.artifact_uri, (info.status, info.end_time))
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
        self.client = store.client
        self.known: dict[str, Known] = {}  # by the run's key

    def __call__(self, run: Tracked, note: str = "", revive: bool = True) -> Known | None:
        """Send what the store lacks; returns what it has then. ``note`` describes the run's
        experiment. A run that was deleted in MLflow is made anew if ``revive``, else it is left
        alone. Raises one of AWAY.
        """
        lock = resume_folder(run.experiment, f"{run.run_name}.tracking.lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock):
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
            # Models before the points that name them, and the end last: a run that MLflow shows as
            # finished has everything
            self.send_words(run, known, experiment_id)
            self.send_models(run, known, experiment_id)
            self.send_points(run, known)
            self.send_files(run, known)
            self.send_end(run, known)
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
                for file in files:
                    self.client.log_artifact(known.id, str(file))
            self.client.set_tag(known.id, tag, value)
            known.tags[tag] = value

    def send_end(self, run: Tracked, known: Known) -> None:
        """Send the run's status, and when it ended unless it goes on."""
        if (run.status, run.ended) == known.end:
            return
        if run.status == "RUNNING":
            self.client.update_run(known.id, run.status)
        else:
            self.client.set_terminated(known.id, run.status, run.ended)
        known.end = (run.status, run.ended)


def sync_all(store: Store, experiment: str = "*") -> int:
    """Sync all runs of this project, or of an experiment, and return their number. Runs deleted in
    MLflow stay deleted. Raises one of AWAY.
    """
    runs: dict[str, Tracked] = {}  # by key; of a run with two journals, the live one
    notes: dict[str, str] = {}  # by experiment
    sync = Sync(store)
    with suppress(UserError):  # no params.yaml, or one of an earlier version
        current = load_experiment()
        notes[current.name] = experiment_note(current)
    for path in journals(experiment):
        try:
            run = read_tracked(path)
            runs.setdefault(run.key, run)
        except UserError as error:
            say(f"passed over: {error}")
    for run in sorted(runs.values(), key=lambda run: bool(run.parent)):  # parents first
        sync(run, "" if run.parent else notes.get(run.experiment, ""), revive=False)
    return len(runs)


def sync_stage(spec: RunSpec) -> None:
    """Sync a trained run after a stage, or say that a later one must."""
    store = Store()
    try:
        run = read_tracked(published_journal(spec.experiment.name, spec.name))
        Sync(store)(run, note="" if run.parent else experiment_note(spec.experiment))
    except UserError as error:
        say(f"not in MLflow: {error}")
    except AWAY as error:
        say(f"MLflow at {store.uri} does not answer ({reason(error)})\n{LATER}")


def reason(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]


class ModelEntry:
    """MLflow's logged model of a checkpoint."""

    def __init__(self, manifest: Manifest, listed: int | None = None) -> None:
        """``listed`` is the model's smaller budget, if it has one. Raises UserError if the store is
        away or has no such model: evaluation makes it.
        """
        self.store = Store()
        self.client = self.store.client
        name = model_name(manifest.run_name, listed)
        run = read_tracked(published_journal(manifest.experiment, manifest.run_name))
        with self.store.answering():
            known = Sync(self.store)(run)
        if not known or name not in known.models:
            raise UserError(
                f"MLflow at {self.store.uri} has no model {name}: "
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
        except AWAY as error:
            raise UserError(
                f"{path} is written; MLflow at {self.store.uri} did not take it: {error}"
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
