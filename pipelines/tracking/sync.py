"""Brings MLflow up to date with what is on disk about a run: sends what it lacks, nothing twice.

It asks what MLflow has, and forgets it whenever a call fails. So a sync may be cut short anywhere,
by the end of a process or of a server, and the next one completes it.
"""

from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from filelock import FileLock
from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Param, RunTag, ViewType
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID
from mlflow.utils.uri import is_local_uri

from pipelines.artifacts.paths import published_journal, resume_folder
from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.console import say
from pipelines.common.errors import UserError
from pipelines.config.load import load_experiment
from pipelines.tracking.datasets import dataset_input
from pipelines.tracking.describe import experiment_note
from pipelines.tracking.journal import journals
from pipelines.tracking.known import Known
from pipelines.tracking.measured import read_tracked
from pipelines.tracking.store import AWAY, KEY_TAG, Store
from pipelines.tracking.tracked import Tracked

METRICS_PER_CALL = 500  # the server's limit is 1000
LATER = "kept for MLflow; the run's next stage sends it, or `python -m pipelines.tracking`"


class Sync:
    """Syncs runs with a store, and asks what that has about a run once, while all goes well."""

    def __init__(self, store: Store) -> None:
        self.store, self.client = store, store.client
        self.known: dict[str, Known] = {}  # by the run's key

    def __call__(self, run: Tracked, note: str = "", revive: bool = True) -> Known | None:
        """Send what the store lacks; returns what it has then. ``note`` describes the run's
        experiment. A run that was deleted in MLflow is made anew if ``revive``, else it is left
        alone. Raises one of AWAY.
        """
        lock = resume_folder(run.experiment, f"{run.run_name}.tracking.lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock):
            known = self.known.pop(run.key, None)
            experiment_id = self.store.experiment_id(run.experiment)
            if note:
                self.store.describe_experiment(experiment_id, note)
            if known is None:
                found = self.store.find(experiment_id, run.key)
                deleted = ViewType.DELETED_ONLY
                if not (found or revive) and self.store.find(experiment_id, run.key, deleted):
                    return None
                tags = {**run.tags, KEY_TAG: run.key}
                known = Known.of(
                    found or self.client.create_run(experiment_id, run.started, tags, run.run_name),
                    self.client,
                )
            self.send_words(run, known, experiment_id)
            self.send_models(run, known, experiment_id)
            self.send_points(run, known)
            self.send_files(run, known)
            self.send_end(run, known)
            if not run.models:  # whose metrics are asked for
                self.known[run.key] = known
        return known

    def send_words(self, run: Tracked, known: Known, experiment_id: str) -> None:
        """Send parameters, tags, parent and inputs. A parameter keeps its value, because MLflow
        refuses another; MLflow's own tags, such as the description, may have been edited and stay.
        """
        params = {key: value for key, value in run.params.items() if key not in known.params}
        own = {key for key in known.tags if key.startswith("mlflow.")}
        tags = {key: value for key, value in run.tags.items() if key not in own}
        if run.parent and (parent := self.store.find(experiment_id, run.parent)):
            tags[MLFLOW_PARENT_RUN_ID] = parent.info.run_id
        tags = dict(tags.items() - known.tags.items())
        if params:
            self.client.log_batch(known.id, params=[Param(*each) for each in params.items()])
        if tags:
            self.client.log_batch(known.id, tags=[RunTag(*each) for each in tags.items()])
        known.params, known.tags = known.params | params, known.tags | tags
        inputs = {(each["name"], each["digest"]): each for each in run.inputs}
        if new := [inputs[key] for key in inputs if key not in known.inputs]:
            self.client.log_inputs(known.id, [dataset_input(content) for content in new])
            known.inputs |= inputs.keys()

    def send_models(self, run: Tracked, known: Known, experiment_id: str) -> None:
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
            tag, value = f"file.{path.name}", f"{path} {files_digest(path)}"
            if known.tags.get(tag) == value:
                continue
            if not is_local_uri(known.artifacts):
                for file in files_at(path):
                    self.client.log_artifact(known.id, str(file))
            self.client.set_tag(known.id, tag, value)
            known.tags[tag] = value

    def send_end(self, run: Tracked, known: Known) -> None:
        end = (run.status, run.ended)
        if end != known.end and run.status == "RUNNING":
            self.client.update_run(known.id, run.status)
        elif end != known.end:
            self.client.set_terminated(known.id, *end)
        known.end = end


def files_at(path: Path) -> list[Path]:
    """The file itself, or the files in a folder."""
    return sorted(path.iterdir()) if path.is_dir() else [path]


def files_digest(path: Path) -> str:
    content = b"".join(file.name.encode() + file.read_bytes() for file in files_at(path))
    return sha256(content).hexdigest()[:16]


def sync_all(store: Store, experiment: str = "*") -> int:
    """Sync all runs of this project, or of an experiment, and return their number. Runs deleted in
    MLflow stay deleted. Raises one of AWAY.
    """
    runs, notes, sync = dict[str, Tracked](), dict[str, str](), Sync(store)
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
    store, path = Store(), published_journal(spec.experiment.name, spec.name)
    try:
        run = read_tracked(path)
        Sync(store)(run, note="" if run.parent else experiment_note(spec.experiment))
    except UserError as error:
        say(f"not in MLflow: {error}")
    except AWAY as error:
        say(f"MLflow at {store.uri} does not answer ({reason(error)})\n{LATER}")


def reason(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
