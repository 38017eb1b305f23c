"""Stage `evaluate`: measure a trained run on held-out data.    python -m pipelines.evaluate <run>

Writes results/<experiment>/<run>/evaluation.json (all figures), details.json (samples, KL of each
bit, the bound of each document) and metrics.json (the few that `dvc metrics show` lists), and adds
them to the MLflow run of the training.
"""

from functools import partial
from statistics import fmean

import torch

from ftmodel.model.objective import collapsed
from ftmodel.model.transformer import FreeTransformer
from pipelines.artifacts import preregistration, results
from pipelines.artifacts.budget_results import in_last_third
from pipelines.artifacts.checkpoint import Manifest, check_vocabulary, load_model, remove_finished
from pipelines.artifacts.curve import read_curve
from pipelines.artifacts.paths import (
    checkpoint_path,
    results_folder,
    tokens_folder,
)
from pipelines.artifacts.results import (
    BudgetFigures,
    Details,
    Evaluation,
    Headline,
    LastThird,
    Training,
)
from pipelines.artifacts.tokens.shards import Shards
from pipelines.cluster.dispatch import here_or_on_a_worker
from pipelines.common.console import argument
from pipelines.config.data import Data
from pipelines.config.derived import Budget
from pipelines.config.load import load_stage
from pipelines.config.schema import Evaluation as Settings
from pipelines.config.schema import Experiment, Run
from pipelines.evaluate import coin, label, target_generations, target_latent, text_samples
from pipelines.evaluate.bounds import DocumentScores, results_of, score, with_proposal
from pipelines.evaluate.measurement import Context, Measurement
from pipelines.tracking.figures import log_evaluation
from pipelines.tracking.run import Tracking

# besides the bounds, which every model has on any data
MEASUREMENTS: list[Measurement] = [text_samples, target_generations, target_latent, label, coin]


def evaluate(
    model: FreeTransformer, shards: Shards, data: Data, settings: Settings, device: torch.device
) -> tuple[Evaluation, Details]:
    """All that can be measured of a model on ``data``, whatever the training behind it."""
    scores = score(model, shards, data, settings, device)
    evaluation, details = results_of(scores, settings)
    context = Context(model, shards, data, settings, device, scores, evaluation, details)
    for measurement in MEASUREMENTS:
        if measurement.applies(context):
            measurement.measure(context)
    return evaluation, details


def at_budget(
    experiment: Experiment, run: Run, budget: Budget, measured: DocumentScores | Evaluation
) -> BudgetFigures:
    per_token, per_byte = measured.bits_per_token, measured.bits_per_byte
    return BudgetFigures.of(
        experiment, run, budget, bits_per_token=per_token, bits_per_byte=per_byte
    )


def smaller_budgets(
    experiment: Experiment, name: str, shards: Shards, device: torch.device
) -> list[BudgetFigures]:
    """The bounds of the run's models at its smaller budgets."""
    run = experiment.runs[name]
    measured = []
    for budget in experiment.budgets(run)[:-1]:
        path = checkpoint_path(experiment.name, name, budget.listed)
        model, manifest = load_model(path)
        check_vocabulary(path, manifest, shards)
        settings = with_proposal(experiment.evaluation, run)
        scores = score(model.to(device), shards, experiment.data[run.data], settings, device)
        measured.append(at_budget(experiment, run, budget, scores))
    return measured


def last_third(budgets: list[BudgetFigures]) -> LastThird:
    late = in_last_third(budgets)
    per_byte = [entry.bits_per_byte.bound.mean for entry in late if entry.bits_per_byte]
    return LastThird(
        n=len(late),
        bits_per_token=fmean(entry.bits_per_token.bound.mean for entry in late),
        bits_per_byte=fmean(per_byte) if per_byte else None,
    )


def headline(evaluation: Evaluation) -> Headline:
    """The figures to compare runs by."""
    per_token, per_byte = evaluation.bits_per_token, evaluation.bits_per_byte
    gap, fresh, pinned = evaluation.gap_nats_per_token, evaluation.fresh, evaluation.pinned
    return Headline(
        bound_bits_per_token=per_token.bound.mean,
        bound_bits_per_byte=per_byte.bound.mean if per_byte else None,
        kl_bits_per_token=per_token.kl.mean if per_token.kl else None,
        use_bits_per_token=per_token.use.mean if per_token.use else None,
        gap_nats_per_token=gap.mean if gap else None,
        valid=fresh.valid if fresh else None,
        spread_fresh=fresh.spread if fresh and pinned else None,
        spread_pinned=pinned.spread if pinned else None,
        noise_pinned=pinned.noise if pinned else None,
        label_bits=evaluation.label.bits if evaluation.label else None,
    )


def measure(experiment: Experiment, name: str) -> None:
    """Evaluate a trained run: its files in results/ and its MLflow run. Raises UserError."""
    run = experiment.runs[name]
    path = checkpoint_path(experiment.name, name)
    model, manifest = load_model(path)
    shards = Shards(tokens_folder(run.data))
    check_vocabulary(path, manifest, shards)
    folder = results_folder(experiment.name, name)
    curve = read_curve(folder / "curve.csv")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    data = experiment.data[run.data]
    settings = with_proposal(experiment.evaluation, run)
    evaluation, details = evaluate(model.to(device), shards, data, settings, device)
    if run.budgets:
        final = at_budget(experiment, run, experiment.budgets(run)[-1], evaluation)
        evaluation.budgets = [*smaller_budgets(experiment, name, shards, device), final]
        evaluation.last_third = last_third(evaluation.budgets)
    stated = preregistration.read(experiment.name, name)
    details.training = Training(manifest.git_revision, manifest.device, stated)
    evaluation.trained_tokens = curve[-1].tokens
    evaluation.parameters = sum(p.numel() for p in model.parameters())
    if run.kappa_bits is not None:
        kl = [row.kl_bits for row in curve if row.kl_bits is not None]
        evaluation.collapsed = collapsed(kl, run.kappa_bits, of=len(kl))

    # DVC has the finished checkpoint by now: the one to resume from is not needed any more
    preregistration.remove_waiting(experiment.name, name, manifest.spec_hash)
    remove_finished(experiment.name, name, manifest.spec_hash)
    results.write(folder / "evaluation.json", evaluation)
    results.write(folder / "details.json", details)
    results.write(folder / "metrics.json", headline(evaluation))
    track(experiment, name, manifest, evaluation)
    bounds = vars(evaluation.bits_per_token).items()
    print(f"{name}: bits per token: " + ", ".join(f"{k} {v.mean:.4f}" for k, v in bounds if v))


def track(experiment: Experiment, name: str, manifest: Manifest, evaluation: Evaluation) -> None:
    """Add the figures to the MLflow run of the training."""
    tracking = Tracking(experiment.name)
    tracking.start(manifest, experiment, go_on=True)
    log_evaluation(tracking, manifest, evaluation)
    tracking.log_artifact(results_folder(experiment.name, name) / "details.json")
    tracking.finish()


def main() -> None:
    name = argument("run")
    experiment = load_stage("runs", name)
    here_or_on_a_worker(experiment, partial(measure, experiment, name))
