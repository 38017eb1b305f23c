"""A run's journal: what MLflow shows about a run and no result file has, as JSON lines.

The first line says what the run is: its parameters, tags, note and data. Each row of the training
curve is a line, with its time and the load of the machine, as soon as it is there; further tags and
the run's status are lines, too. The journal lies in resume/ while the run is trained, and then
beside its checkpoint, in the same output of DVC.
"""

import getpass
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from time import time
from typing import Any, NamedTuple
from uuid import uuid4

from mlflow.utils.mlflow_tags import (
    MLFLOW_GIT_COMMIT,
    MLFLOW_RUN_NOTE,
    MLFLOW_SOURCE_NAME,
    MLFLOW_SOURCE_TYPE,
    MLFLOW_USER,
)
from mlflow.utils.validation import MAX_TAG_VAL_LENGTH as MAX_TAG

from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.run_results import fraction
from pipelines.config import derived
from pipelines.config.arms import arm_of_each, group_by_seed, kind_of
from pipelines.config.schema import Experiment
from pipelines.host.errors import UserError, name_user
from pipelines.host.files import JOURNAL, SPLITS, checkpoint_path, tokens_folder

MODEL_PARAMS = ("arm", "kappa_bits", "seed", "data", "model", "config_hash")  # of logged models
GROUPS = ("data", "model", "kappa_bits", "tokens", "seed")  # parameters that are tags, too
STATEMENT = ("question", "expectation")  # tags
NESTED_SETTINGS = ("init_from", "latent")  # settings of a run that have a form of their own
WHAT_IS_COMPARED = (
    "Arms are compared by `bound/bits_per_token` and `bound/bits_per_byte` alone (the exact NLL of "
    "a baseline, the filtering bound of a Free Transformer), and only with arms of the same data, "
    "model and token budget, over all seeds, by the rule in docs/measurement/differences.md. "
    "Training losses, and the cross-entropy of a Free Transformer, are not comparable between arms."
)


class Origin(NamedTuple):
    """What a value was measured of and on."""

    model: str  # name of the logged model
    dataset: str
    digest: str  # of the dataset


class Point(NamedTuple):
    """A value of a metric."""

    key: str
    value: float
    time: int  # ms since 1970, as all times here
    step: int
    origin: Origin | None = None


@dataclass
class Tracked:
    """A run as its journal and its results describe it."""

    experiment: str = ""
    run_name: str = ""
    key: str = ""  # of this very training; a tag by which the run is found in MLflow
    started: int = 0
    ended: int | None = None
    status: str = "RUNNING"
    parent: str = ""  # key of the run in which it is nested
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    inputs: list[dict[str, str]] = field(default_factory=list)  # see dataset
    models: list[dict[str, Any]] = field(default_factory=list)  # kept checkpoints
    files: list[Path] = field(default_factory=list)  # or folders of files
    step: int = -1  # of the last row of the curve

    def read_line(self, line: dict[str, Any]) -> None:
        """Add a line of the journal. A step that a resumed run repeats counts as first logged."""
        at = line["time"]
        if "run" in line:
            vars(self).update(line["run"], started=at)
        self.parent = line.get("parent", self.parent)
        self.tags = self.tags | line.get("tags", {})
        self.add(line.get("prefix", ""), line.get("figures", {}), line.get("step", 0), at)
        if status := line.get("status"):
            self.status = status
            self.ended = None if status == "RUNNING" else at
        row = line.get("row")
        if row and row["step"] > self.step:
            self.step = int(row["step"])
            figures = {key: row[key] for key in row if key not in ("step", "tokens")}
            self.add("curve", figures, self.step, at)
            self.add("curve_by_tokens", figures, int(row["tokens"]), at)
            self.add("system", line.get("system", {}), self.step, at)

    def add(
        self,
        prefix: str,
        figures: dict[str, float],
        step: int,
        at: int,
        origin: Origin | None = None,
    ) -> None:
        """Add figures at a step, without NaN and infinite ones."""
        self.points += [
            Point(f"{prefix}/{key}", value, at, step, origin)
            for key, value in figures.items()
            if isfinite(value)
        ]

    def add_model(self, tokens: int, listed: int | None = None) -> str:
        """Add the checkpoint after so many tokens; ``listed`` is its smaller budget, if it has one.

        Its weights stay where DVC has them: a tag names the file. Returns its name.
        """
        name = model_name(self.run_name, listed)
        path = checkpoint_path(self.experiment, self.run_name, listed)
        params = {key: self.params[key] for key in MODEL_PARAMS if key in self.params}
        tags = {"checkpoint": str(path), "run": self.run_name}
        if all(model["name"] != name for model in self.models):
            params |= {"tokens": str(tokens)}
            self.models.append({"name": name, "params": params, "tags": tags})
        return name


def model_name(run: str, tokens: int | None = None) -> str:
    """The name of a run's last checkpoint, or of its checkpoint at a smaller budget, as listed."""
    return f"{run}_at_{tokens}" if tokens else run


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


def open_journal(
    manifest: Manifest, experiment: Experiment, go_on: bool, command: str = "", arm: str = ""
) -> Journal:
    """Continue this very run's journal if it was cut short or if ``go_on`` (it has been trained, or
    goes on from a checkpoint); else begin one. Fills in the manifest's key.

    ``command`` makes the run; by default it is DVC's. A sweep, whose trials are experiments of one
    run each, says the ``arm``.
    """
    path = manifest.resume / JOURNAL
    known = Journal(path) if path.exists() else None
    same = known and manifest.tracking_key in ("", known.run.key)
    if known and same and (go_on or known.run.status != "FINISHED"):
        manifest.tracking_key = known.run.key
        return known
    manifest.tracking_key = manifest.tracking_key or uuid4().hex[:12]
    data = manifest.run["data"]
    params = run_params(manifest, experiment)
    groups = group_words(experiment, manifest.run_name, params)
    groups["arm"] = arm or groups["arm"]
    return Journal(
        path,
        key=manifest.tracking_key,
        experiment=manifest.experiment,
        run_name=manifest.run_name,
        params=params | groups,
        tags=groups | run_tags(manifest, command) | statement_tags(experiment),
        inputs=[
            dataset(split_name(data, split), manifest.data_hash, str(tokens_folder(data)), context)
            for split, context in zip(SPLITS, ("train", "eval"), strict=True)
        ],
    )


def journals(experiment: str = "*") -> Iterator[Path]:
    """The journals of all runs, or of an experiment's runs; a run's live one comes first."""
    for place in (f"resume/{experiment}/*/*", f"checkpoints/{experiment}/*"):
        yield from sorted(Path().glob(f"{place}/{JOURNAL}"))
    if experiment == "*":
        yield from sorted(Path().glob(f"sweeps/*/{JOURNAL}"))


def split_name(data: str, split: str) -> str:
    """The name of a dataset: MLflow tells a run's inputs apart by name and digest alone."""
    return f"{data}_{split}"


def dataset(name: str, digest: str, source: str, context: str) -> dict[str, str]:
    """MLflow's dataset input as plain data. ``source`` is relative to the project, so it is right
    wherever that lies.
    """
    return {
        "name": name,
        "digest": digest,
        "source_type": "local",
        "source": json.dumps({"uri": source}),
        "context": context,
    }


def group_words(experiment: Experiment, name: str, params: dict[str, str]) -> dict[str, str]:
    """What MLflow can group a run by, as its parameters and as its tags; a baseline's κ is none."""
    words = {"arm": arm_of_each(experiment.runs)[name], "kind": kind_of(experiment.runs[name])}
    return words | {key: params.get(key, "none") for key in GROUPS}


def run_params(manifest: Manifest, experiment: Experiment) -> dict[str, str]:
    """Every setting of a run; one that is not set is left out."""
    architecture = dict(manifest.architecture)
    design = architecture.pop("latent", {})
    if architecture["latent_bits"]:
        architecture |= {f"latent.{key}": str(value) for key, value in design.items()}
    groups = {
        "init_from": manifest.run["init_from"] if manifest.parent else {},
        "parent": manifest.parent,
        "architecture": architecture,
        "optim": asdict(experiment.models[manifest.run["model"]].optim),
    }
    settings = {key: value for key, value in manifest.run.items() if key not in NESTED_SETTINGS}
    for prefix, group in groups.items():
        settings |= {f"{prefix}.{key}": value for key, value in group.items()}
    kappa = manifest.run["kappa_bits"]
    settings |= {
        "device": manifest.device,
        "vocab_size": manifest.vocab_size,
        "steps": derived.budgets(experiment, experiment.runs[manifest.run_name])[-1].steps,
        "precision": experiment.compute.precision.value,
        "git_revision": manifest.git_revision,
        "data_hash": manifest.data_hash,
        "config_hash": manifest.spec_hash,
        "kappa_axis": -1 if kappa is None else kappa,  # a chart leaves out runs without one
    }
    return {key: str(value) for key, value in settings.items() if value not in (None, "")}


def run_tags(manifest: Manifest, command: str = "") -> dict[str, str]:
    """The tags of a run; ``command`` has made it, by default DVC's command."""
    command = command or f"dvc repro train@{manifest.run_name}"
    tags = {
        MLFLOW_GIT_COMMIT: manifest.git_revision,
        **source_tags(run_note(manifest, command), command),
    }
    return {key: value for key, value in tags.items() if value}


def source_tags(note: str, command: str) -> dict[str, str]:
    """Tags that MLflow shows: the description, and who ran what."""
    name_user()
    return {
        MLFLOW_RUN_NOTE: note[:MAX_TAG],
        MLFLOW_SOURCE_NAME: command,
        MLFLOW_SOURCE_TYPE: "LOCAL",
        MLFLOW_USER: getpass.getuser(),
    }


def run_note(manifest: Manifest, command: str) -> str:
    """The description of a run, in Markdown."""
    run = manifest.run
    kappa = run["kappa_bits"]
    if kappa is None:
        arm = "Baseline"
        if blocks := run.get("extra_blocks"):
            arm += f", with {blocks} more {'block' if blocks == 1 else 'blocks'}"
        if prefix := run.get("random_prefix"):
            arm += f", with a random prefix of {prefix}"
    else:
        unit = "bits" if kappa > 1 else "bit"
        arm = f"Free Transformer with κ = {fraction(kappa)} {unit} per token"
    lines = (
        f"**{arm}** on `{run['data']}`, model `{run['model']}`, {run['tokens']:,} tokens, "
        f"seed {run['seed']}.",
        WHAT_IS_COMPARED,
        f"Made by `{command}` in experiment `{manifest.experiment}`, with the settings "
        f"under Parameters; the weights are in `checkpoints/{manifest.experiment}/"
        f"{manifest.run_name}/`.",
    )
    return "\n\n".join(lines)


def experiment_note(experiment: Experiment) -> str:
    """Arms, what is asked and expected of them, and what may be compared."""
    rows = []
    for arm, names in group_by_seed(experiment.runs).items():
        run = experiment.runs[names[0]]
        kappa = "no latent" if run.kappa_bits is None else fraction(run.kappa_bits)
        seeds = ", ".join(str(experiment.runs[name].seed) for name in names)
        rows.append(f"| {arm} | {kappa} | {run.data} | {run.model} | {run.tokens:,} | {seeds} |")
    parts = [
        experiment.question or "",
        "\n".join(f"- Expected: {each}" for each in experiment.expectation),
        "| arm | κ, bits per token | data | model | tokens | seeds |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows),
        WHAT_IS_COMPARED,
        f"Made by `make repro EXPERIMENT={experiment.name}`.",
    ]
    return "\n\n".join(part for part in parts if part)[:MAX_TAG]


def statement_tags(experiment: Experiment) -> dict[str, str]:
    """What the experiment asks and expects, as tags."""
    expected = "\n".join(map(str, experiment.expectation))
    tags = dict(zip(STATEMENT, (experiment.question or "", expected), strict=True))
    return {key: text[:MAX_TAG] for key, text in tags.items() if text}
