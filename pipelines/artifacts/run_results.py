"""A run of the experiment with all that its training, evaluation and suite left behind."""

from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ftmodel.config import ModelConfig
from pipelines.artifacts.checkpoint import Manifest, check_manifest
from pipelines.artifacts.curve import Curve, read_curve
from pipelines.artifacts.result_files import plain_data, read_json
from pipelines.artifacts.results import Details, Estimate, EvaluationResult, Figures
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.suite_results import SuiteResults
from pipelines.artifacts.tokens.shards import read_metadata
from pipelines.config.arms import arm_of_each, family_of
from pipelines.config.load import first_difference
from pipelines.config.schema import Experiment, Run
from pipelines.host.errors import UserError
from pipelines.host.files import tokens_folder


@dataclass
class RunResults:
    """A run's settings, and all that it left behind."""

    name: str
    run: Run
    latent_bits: int  # H; 0 for a baseline
    source: str  # of the data: target, coin, reviews or text
    evaluation: EvaluationResult
    details: Details
    curve: Curve
    suite: SuiteResults | None = None  # its benchmarks, if it was scored on any
    suite_scores: dict[str, list[float]] = field(default_factory=dict)  # by task and document
    config: ModelConfig | None = None
    design_changes: dict[str, Any] = field(default_factory=dict)  # from its preset's latent
    arm: str = ""  # the name of its arm among all runs of the experiment
    family: tuple[Any, ...] = ()  # equal for runs whose arms may be compared

    @property
    def baseline(self) -> bool:
        return self.run.kappa_bits is None

    @property
    def on_target(self) -> bool:
        """Whether its data are the paper's synthetic target task."""
        return self.source == "target"

    @property
    def kappa(self) -> str:
        return "–" if self.run.kappa_bits is None else fraction(self.run.kappa_bits)

    @property
    def unit(self) -> str:
        """The unit to compare in: bytes do not depend on the tokenizer; a process has none."""
        return "bits_per_byte" if self.evaluation.bits_per_byte else "bits_per_token"

    def figures(self, unit: str) -> Figures:
        """Held-out figures in ``unit``; empty if there are none."""
        return self.evaluation.figures(unit)

    def bound(self, unit: str) -> Estimate:
        """The figure to compare: the exact NLL of a baseline, else the filtering bound."""
        return self.figures(unit).bound

    @property
    def manifest(self) -> Manifest:
        """The manifest of the measured checkpoint."""
        assert self.details.manifest, "results without it are not read"
        return self.details.manifest

    def document_bits(self) -> Tensor:
        """Bound of each held-out document, summed over its tokens: (n,)."""
        return torch.tensor(self.details.bound_bits, dtype=torch.float64)


def fraction(kappa_bits: float) -> str:
    """κ as people write it: 1/64, 1/2, 8."""
    short = Fraction(kappa_bits).limit_denominator(1024)
    return str(short) if float(short) == kappa_bits else f"{kappa_bits:g}"


def read_runs(experiment: Experiment) -> list[RunResults]:
    """The runs of params.yaml, in its order; raises UserError if a result is missing."""
    return [read_run(RunSpec(experiment, name)) for name in experiment.runs]


def read_finished(experiment: Experiment) -> list[RunResults]:
    """The runs whose results are complete and match params.yaml."""
    finished = []
    for name in experiment.runs:
        with suppress(UserError):
            finished.append(read_run(RunSpec(experiment, name)))
    return finished


def read_run(spec: RunSpec) -> RunResults:
    """A run's results; raises UserError if one is missing or does not match params.yaml."""
    folder = spec.results
    arms = arm_of_each(spec.experiment.runs)
    result = RunResults(
        name=spec.name,
        run=spec.run,
        latent_bits=spec.config.latent_bits,
        source=spec.data.source,
        evaluation=read_json(folder / "evaluation.json", EvaluationResult, "evaluate"),
        details=read_json(folder / "details.json", Details, "evaluate"),
        curve=read_curve(folder / "curve.csv"),
        config=spec.config,
        design_changes=spec.design_changes,
        arm=arms[spec.name],
        family=family_of(spec.run, arms),
    )
    check_made(folder / "details.json", result.details, spec, "evaluate")
    if spec.name in spec.experiment.suite_runs:  # files of a suite may be left of an earlier one
        result.suite = read_json(folder / "suite.json", SuiteResults, "suite")
        check_made(folder / "suite.json", result.suite, spec, "suite")
        scores = dict[str, list[float]]
        result.suite_scores = read_json(folder / "suite_scores.json", scores, "suite")
    return result


def check_made(path: Path, made: Details | SuiteResults, spec: RunSpec, stage: str) -> None:
    """Raise UserError if results name no model, or were made from another model, other settings or
    other data than params.yaml and data/tokens hold now.
    """
    again = f"`dvc repro --force --single-item {stage}@{spec.name}` measures it again"
    if made.manifest is None:
        raise UserError(f"{path}: not said which model was measured; {again}")
    check_manifest(path, made.manifest, spec)
    tokens = tokens_folder(spec.run.data)
    has_tokens = (tokens / "metadata.json").exists()
    if has_tokens and read_metadata(tokens).hash != made.manifest.data_hash:
        raise UserError(f"{path}: of other data than {tokens} holds now; run `dvc repro`")
    group = "suite" if stage == "suite" else "evaluation"
    settings = plain_data(asdict(getattr(spec.experiment, group)))
    if words := first_difference({group: made.settings}, {group: settings}):
        raise UserError(f"{path}: not measured as params.yaml says: {words}; {again}")
