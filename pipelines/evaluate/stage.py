"""Stage `evaluate`: measure a trained run on held-out data."""

import os
from dataclasses import asdict
from functools import partial
from math import isnan
from pathlib import Path

import torch

from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import collapsed, kl_of_use
from ftmodel.synthetic import PROCESSES
from pipelines.artifacts import results
from pipelines.artifacts.checkpoint import Manifest, load_trained, remove_finished
from pipelines.artifacts.curve import Curve, read_curve
from pipelines.artifacts.result_files import read_json, unfinished, write_json
from pipelines.artifacts.results import BudgetFigures, Details, EvaluationResult
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.cluster.dispatch import here_or_on_a_worker
from pipelines.config.data import Data, TextData
from pipelines.config.load import Frozen, freeze
from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate import codes, generations, hidden_causes, target
from pipelines.evaluate.bounds import DocumentScores, own_text_gap, results_of, score
from pipelines.evaluate.measurement import Allowance, Context
from pipelines.evaluate.work import allowance, settled
from pipelines.host.files import write_file
from pipelines.host.pytorch import full_memory, keep_freed_memory
from pipelines.host.source_code import code_version
from pipelines.tracking.sync import sync_stage

FILES = ("evaluation.json", "details.json", "metrics.json")  # in the order of writing


def evaluate(
    model: FreeTransformer,
    shards: Shards,
    data: Data,
    settings: EvaluationConfig,
    device: torch.device,
    allowance: Allowance | None = None,
) -> tuple[EvaluationResult, Details]:
    """Measure all that can be measured of a model on ``data``, whatever its training. Every model
    has bounds. Each measurement draws its random numbers from a stream of its own.
    """
    scores = score(model, shards, data, settings, device, allowance)
    evaluation, details = results_of(scores, settings)
    context = Context(model, shards, data, settings, device)
    has_z = model.latent is not None
    evaluation.own_text_gap = own_text_gap(model, shards, settings, scores.calibration, device)
    if isinstance(data, TextData):
        details.generations = generations.measure_generations(context)
        if has_z and settings.bit_tokens:
            evaluation.persistence, details.persistence, details.bits = codes.measure_bits(context)
        if has_z and settings.swap_tokens:
            evaluation.swap = codes.measure_swap(context)
            if model.config.latent.one_code:
                evaluation.sequence_z = codes.measure_sequence_z(context)
        if settings.steering_prompts:  # of a baseline: how far token draws alone lead
            evaluation.steering = generations.measure_steering(context)
        return evaluation, details
    if data.source == "target":
        details.generations = generations.measure_generations(context)
        evaluation.fresh, evaluation.pinned, details.groups = target.measure_groups(context)
        if has_z:
            evaluation.latent, details.latent = target.measure_latent(context, scores)
    if data.source == "coin" and model.prefix is None:
        details.coin = hidden_causes.measure_coin(context)
    process = PROCESSES[data.source]
    if process.answer:
        evaluation.answers_right = hidden_causes.measure_answers(context)
    if has_z and process.sample_labelled is not None:
        evaluation.label = hidden_causes.measure_label(context)
    return evaluation, details


def figures_by_budget(
    spec: RunSpec, final: EvaluationResult, device: torch.device
) -> list[BudgetFigures]:
    """Bounds of the run's models at all its budgets; ``final`` has the last."""
    measured: list[DocumentScores | EvaluationResult] = []
    settings = settled(spec)
    allowed = allowance(spec, settings)
    for budget in spec.budgets[:-1]:
        model, _, shards = load_trained(spec, budget.listed)
        measured.append(score(model.to(device), shards, spec.data, settings, device, allowed))
    measured.append(final)
    return [
        BudgetFigures.of(spec, budget, **{unit: getattr(each, unit) for unit in results.UNITS})
        for budget, each in zip(spec.budgets, measured, strict=True)
    ]


def headline(evaluation: EvaluationResult) -> dict[str, float]:
    """The figures to compare runs by, without NaN, which DVC takes for a change every time."""
    per_token, per_byte = evaluation.bits_per_token, evaluation.bits_per_byte
    gap, fresh, pinned = evaluation.gap_nats_per_token, evaluation.fresh, evaluation.pinned
    figures: dict[str, float | None] = {
        "bound_bits_per_token": per_token.bound.mean,
        "bound_bits_per_byte": per_byte.bound.mean if per_byte else None,
        "converged": per_token.bound.converged,  # of a calibrated bound
        "kl_bits_per_token": per_token.kl.mean if per_token.kl else None,
        "use_bits_per_token": per_token.use.mean if per_token.use else None,  # of z
        "gap_nats_per_token": gap.mean if gap else None,
        "valid": fresh.valid if fresh else None,
        "spread_fresh": fresh.spread if fresh and pinned else None,
        "spread_pinned": pinned.spread if pinned else None,
        "noise_pinned": pinned.noise if pinned else None,
        "label_bits": evaluation.label.value if evaluation.label else None,
        "answers_right": evaluation.answers_right.mean if evaluation.answers_right else None,
    }
    return {name: x for name, x in figures.items() if x is not None and not isnan(x)}


def measure_all(
    spec: RunSpec, model: FreeTransformer, shards: Shards, curve: Curve
) -> tuple[EvaluationResult, Details]:
    """All figures of a trained run."""
    run = spec.run
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings = settled(spec)
    allowed = allowance(spec, settings)
    evaluation, details = evaluate(model.to(device), shards, spec.data, settings, device, allowed)
    if run.budgets:
        evaluation.budgets = figures_by_budget(spec, evaluation, device)
    details.settings = asdict(spec.experiment.evaluation)
    evaluation.trained_tokens = curve[-1].tokens
    evaluation.parameters = sum(p.numel() for p in model.parameters())
    if run.kappa_bits is not None:
        kl = {row.step: row.kl_bits for row in curve if row.kl_bits is not None}
        kappa = kl_of_use(model.config, run.kappa_bits)
        evaluation.collapsed = collapsed(kl, kappa, curve[-1].step)
    return evaluation, details


def decisive(spec: RunSpec, manifest: Manifest) -> str:
    """All that a checkpoint's figures depend on."""
    model = manifest.spec_hash, manifest.tracking_key, manifest.data_hash
    code = code_version("evaluate"), str(torch.__version__)
    return f"{model} {asdict(spec.experiment.evaluation)} {code}"


def measure(spec: RunSpec, frozen: Frozen | None = None, clean_up: bool = True) -> None:
    """Evaluate a trained run: write its files in results/ and its MLflow run. Raises UserError,
    also if its stage was ``frozen`` and params.yaml says something else in the end.

    ``clean_up`` deletes what the training could be resumed from.
    """
    keep_freed_memory()
    name = spec.name
    model, manifest, shards = load_trained(spec)
    curve = read_curve(spec.results / "curve.csv")
    with unfinished(spec, "evaluate", frozen) as waiting:
        version = decisive(spec, manifest)
        kept = {file: waiting.path(Path(file).stem, version) for file in FILES}
        if kept[FILES[-1]].exists():
            print(f"taken from {waiting.folder}, where they were kept", flush=True)
        else:
            with full_memory(name, "evaluation.batch_tokens or evaluation.particles"):
                evaluation, details = measure_all(spec, model, shards, curve)
            details.manifest = manifest
            contents = evaluation, details, headline(evaluation)
            for path, content in zip(kept.values(), contents, strict=True):
                write_json(path, content)
        waiting.check_settings("figures")
        for file, path in kept.items():
            write_file(spec.results / file, path.read_bytes())
        if clean_up:
            remove_finished(manifest)
        sync_stage(spec)
    evaluation = read_json(spec.results / FILES[0], EvaluationResult, "evaluate")
    if evaluation.calibration:
        print(f"{name}: {evaluation.calibration}")
    bounds = vars(evaluation.bits_per_token).items()
    print(f"{name}: bits per token: " + ", ".join(f"{k} {v.mean:.4f}" for k, v in bounds if v))


def main(name: str) -> None:
    frozen = freeze("evaluate", name)
    spec = RunSpec(frozen.experiment, name)
    # a run trained outside DVC keeps its resume files, because DVC will train it again
    by_dvc = "DVC_STAGE" in os.environ
    here_or_on_a_worker(frozen.experiment, partial(measure, spec, frozen, clean_up=by_dvc))
