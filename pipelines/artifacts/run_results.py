"""A run of the experiment with all that its training, evaluation and suite left behind."""

from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ftmodel.model.config import ModelConfig
from pipelines.artifacts import results
from pipelines.artifacts.card import check_card
from pipelines.artifacts.curve import Curve, read_curve
from pipelines.artifacts.paths import results_folder
from pipelines.artifacts.results import Details, Estimate, Evaluation, Figures, SuiteResults
from pipelines.common.errors import UserError
from pipelines.config.derived import design_changes
from pipelines.config.frozen import first_difference
from pipelines.config.schema import Experiment, Run


@dataclass
class RunResults:
    name: str
    run: Run
    latent_bits: int  # H; 0 for a baseline
    source: str  # of its data: target, coin, reviews or text
    evaluation: Evaluation
    details: Details
    curve: Curve
    suite: SuiteResults | None = None  # its benchmarks, if it was scored on any
    suite_scores: dict[str, list[float]] = field(default_factory=dict)  # by task and document
    config: ModelConfig | None = None
    design_changes: dict[str, Any] = field(default_factory=dict)  # of its latent, from its preset's

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        name: str,
        evaluation: Evaluation,
        details: Details,
        curve: Curve,
    ) -> "RunResults":
        """Of the run ``name`` of an experiment, no suite."""
        run = experiment.runs[name]
        config = experiment.model_config(run)
        return cls(
            name=name,
            run=run,
            latent_bits=config.latent_bits,
            source=experiment.data[run.data].source,
            evaluation=evaluation,
            details=details,
            curve=curve,
            config=config,
            design_changes=design_changes(experiment, run),
        )

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
        """Held-out figures in ``unit``; empty where there are none in it."""
        per_byte = unit == "bits_per_byte"
        figures = self.evaluation.bits_per_byte if per_byte else self.evaluation.bits_per_token
        return figures or Figures()

    def bound(self, unit: str) -> Estimate:
        """The figure to compare: the exact NLL of a baseline, else the filtering bound."""
        return self.figures(unit).bound

    def document_bits(self) -> Tensor:
        """Bound of each held-out document, summed over its tokens: (n,)."""
        return torch.tensor(self.details.bound_bits, dtype=torch.float64)


def fraction(kappa_bits: float) -> str:
    """κ as people write it: 1/64, 1/2, 8."""
    short = Fraction(kappa_bits).limit_denominator(1024)
    return str(short) if float(short) == kappa_bits else f"{kappa_bits:g}"


def read_runs(experiment: Experiment) -> list[RunResults]:
    """The runs of params.yaml, in its order; raises UserError if a result is missing."""
    return [read_run(experiment, name) for name in experiment.runs]


def read_run(experiment: Experiment, name: str) -> RunResults:
    folder = results_folder(experiment.name, name)
    evaluation = results.read(folder / "evaluation.json", Evaluation, "evaluate")
    details = results.read(folder / "details.json", Details, "evaluate")
    curve = read_curve(folder / "curve.csv")
    result = RunResults.of(experiment, name, evaluation, details, curve)
    check_made(folder / "details.json", result.details, experiment, name, "evaluate")
    if name in experiment.suite_runs:  # files of a suite may be left of an earlier one
        result.suite = results.read(folder / "suite.json", SuiteResults, "suite")
        check_made(folder / "suite.json", result.suite, experiment, name, "suite")
        scores = dict[str, list[float]]
        result.suite_scores = results.read(folder / "suite_scores.json", scores, "suite")
    return result


def check_made(
    path: Path, made: Details | SuiteResults, experiment: Experiment, name: str, stage: str
) -> None:
    """Raise UserError if results are of another model, or were measured with other settings, than
    params.yaml says; of files of earlier versions that is not known.
    """
    if made.manifest:
        check_card(path, made.manifest, experiment, name)
    group = "suite" if stage == "suite" else "evaluation"
    wanted = results.plain(asdict(getattr(experiment, group)))
    if made.settings and (words := first_difference({group: made.settings}, {group: wanted})):
        raise UserError(
            f"{path}: not measured as params.yaml says: {words}; "
            f"`dvc repro --force --single-item {stage}@{name}` measures it"
        )
