"""Stage `evaluate`: measure a trained run on held-out data.    python -m pipelines.evaluate <run>

Writes results/<experiment>/<run>/evaluation.json (all figures), details.json (samples, KL of each
bit, the bound of each document) and metrics.json (the few that `dvc metrics show` lists), and adds
them to the MLflow run of the training.
"""

import json
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from ftmodel.analysis.statistics import mean_and_error
from ftmodel.inference.generate import generate
from ftmodel.model.objective import LN2, collapsed
from ftmodel.model.transformer import FreeTransformer
from ftmodel.synthetic.registry import PROCESSES
from ftmodel.synthetic.target_scores import score_groups
from pipelines.artifacts.checkpoint import (
    check_vocabulary,
    checkpoint_path,
    load_model,
    remove_finished,
)
from pipelines.artifacts.packing import held_out
from pipelines.artifacts.results import at_budget, in_last_third, read_curve
from pipelines.artifacts.tokens.shards import Shards
from pipelines.cluster.dispatch import here_or_on_a_worker
from pipelines.common.console import argument
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.data import Data, ProcessData
from pipelines.config.load import load_stage
from pipelines.config.schema import Evaluation, Experiment
from pipelines.evaluate.bounds import score
from pipelines.evaluate.process_figures import coin_figures, label_figures, target_groups
from pipelines.evaluate.target_latent import latent_figures
from pipelines.tracking.run import Tracking

UNITS = ("bits_per_token", "bits_per_byte")
TEXT_PROMPT, TEXT_NEW, TEXT_SAMPLES = 32, 96, 3  # tokens of prompt, of continuation; how many


def text_samples(
    model: FreeTransformer, shards: Shards, settings: Evaluation, device: torch.device
) -> list[dict[str, str]]:
    """Continuations of the first tokens of a few held-out pieces."""
    context = model.config.context
    rng = generator(settings.seed, Purpose.TEXT)
    decode = shards.tokenizer().decode
    samples = []
    for piece in islice(held_out(shards, context, TEXT_SAMPLES * context), TEXT_SAMPLES):
        prompt = torch.from_numpy(piece.tokens[:-1][: min(TEXT_PROMPT, context // 2)])
        new = min(TEXT_NEW, context - len(prompt))
        made = generate(model, prompt[None].to(device), new, generator=rng, temperature=0.8)[
            0
        ].tolist()
        samples.append({"prompt": decode(made[: len(prompt)]), "text": decode(made[len(prompt) :])})
    return samples


def flatten(figures: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested figures as {"a/b": number}; lists, and what could not be measured, are left out."""
    flat: dict[str, float] = {}
    for key, value in figures.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}/")
        elif value is not None and not isinstance(value, list):
            flat[prefix + key] = float(value)
    return flat


def bound_key(bits: dict[str, Any]) -> str:
    """What runs are compared by: a baseline's NLL, or a latent model's IWAE."""
    return "nll" if "nll" in bits else "iwae"


def headline(metrics: dict[str, Any]) -> dict[str, float]:
    """The figures to compare runs by; the bound is a baseline's NLL or a latent model's IWAE."""
    bits = metrics["bits_per_token"]
    key = bound_key(bits)
    shown = {"bound_bits_per_token": bits[key]["mean"]}
    if "bits_per_byte" in metrics:
        shown["bound_bits_per_byte"] = metrics["bits_per_byte"][key]["mean"]
    if "kl" in bits:
        shown["kl_bits_per_token"] = bits["kl"]["mean"]
    if "gap_nats_per_token" in metrics:
        shown["gap_nats_per_token"] = metrics["gap_nats_per_token"]["mean"]
    if "fresh" in metrics:
        shown["valid"] = metrics["fresh"]["valid"]
    if "pinned" in metrics:
        shown["spread_fresh"] = metrics["fresh"]["spread"]
        shown["spread_pinned"] = metrics["pinned"]["spread"]
        shown["noise_pinned"] = metrics["pinned"]["noise"]
    if "label" in metrics:
        shown["label_bits"] = metrics["label"]["bits"]
    return shown


def evaluate(
    model: FreeTransformer,
    shards: Shards,
    data: Data,
    settings: Evaluation,
    device: torch.device,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What goes into evaluation.json, but for what training tells, and details.json."""
    process = PROCESSES[data.source] if isinstance(data, ProcessData) else None
    scores = score(model, shards, process, settings, device)
    tokens = scores.tokens.sum().item()
    metrics: dict[str, Any] = {
        "documents": len(scores.tokens),
        "tokens": int(tokens),
        "tokens_per_second": scores.tokens_per_second,
        **scores.bits(),
    }
    details: dict[str, Any] = {
        "kl_per_bit": (scores.kl_bits.sum(0) / tokens / LN2).tolist(),
        "bound_bits": [round(bits, 6) for bits in (scores.bound / LN2).tolist()],
        "document_tokens": scores.tokens.long().tolist(),
    }
    if scores.bytes is not None:
        metrics["bytes"] = int(scores.bytes.sum())
        details["document_bytes"] = scores.bytes.long().tolist()
        details["samples"] = text_samples(model, shards, settings, device)
    if model.latent is not None:
        metrics["iwae_by_samples"] = {
            str(k): mean_and_error(nats / LN2, scores.tokens) for k, nats in scores.iwae.items()
        }
    if isinstance(data, ProcessData) and process:
        gap = scores.bound - scores.nats["exact"]
        metrics["gap_nats_per_token"] = mean_and_error(gap, scores.tokens)
        if data.source == "target":
            groups = target_groups(model, settings, device)
            metrics |= {kind: asdict(score_groups(made)) for kind, made in groups.items()}
            details["groups"] = {kind: made[:2] for kind, made in groups.items()}
        if model.latent is not None:
            loose = scores.nats["elbo"] - scores.nats["exact"]
            metrics["elbo_gap_nats_per_token"] = mean_and_error(loose, scores.tokens)
            if data.source == "target":
                metrics["latent"], details["latent"] = latent_figures(model, settings, device)
                at_most = loose.mean().item() / LN2
                metrics["latent"]["aggregate_bits"]["at_most"] = at_most
        if process.sample_labelled and model.latent is not None:
            metrics["label"] = label_figures(model, shards, data, settings, device)
        if data.source == "coin":
            details["coin"] = coin_figures(model, shards, data, settings, device)
    return metrics, details


def smaller_budgets(
    experiment: Experiment, name: str, shards: Shards, device: torch.device
) -> list[dict[str, Any]]:
    """The bounds of the run's models at its smaller budgets."""
    run = experiment.runs[name]
    data = experiment.data[run.data]
    process = PROCESSES[data.source] if isinstance(data, ProcessData) else None
    measured = []
    for budget in experiment.budgets(run)[:-1]:
        path = checkpoint_path(experiment.name, name, budget.listed)
        model, card = load_model(path)
        check_vocabulary(path, card, shards)
        scores = score(model.to(device), shards, process, experiment.evaluation, device)
        measured.append(at_budget(experiment, run, budget, scores.bits()))
    return measured


def last_third(budgets: list[dict[str, Any]]) -> dict[str, float]:
    """The mean bound of the budgets that lie in the last third of the training."""
    late = in_last_third(budgets)
    units = [unit for unit in UNITS if unit in budgets[-1]]
    return {"n": len(late)} | {
        unit: fmean(b[unit][bound_key(b[unit])]["mean"] for b in late) for unit in units
    }


def measure(experiment: Experiment, name: str) -> None:
    """Evaluate a trained run: its files in results/ and its MLflow run. Raises UserError."""
    run = experiment.runs[name]
    path = checkpoint_path(experiment.name, name)
    model, card = load_model(path)
    shards = Shards(Path("data/tokens") / run.data)
    check_vocabulary(path, card, shards)
    folder = Path("results") / experiment.name / name
    curve = read_curve(folder / "curve.csv")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    data = experiment.data[run.data]
    metrics, details = evaluate(model.to(device), shards, data, experiment.evaluation, device)
    if run.budgets:
        smaller = smaller_budgets(experiment, name, shards, device)
        bits = {unit: metrics[unit] for unit in UNITS if unit in metrics}
        final = at_budget(experiment, run, experiment.budgets(run)[-1], bits)
        metrics["budgets"] = [*smaller, final]
        metrics["last_third"] = last_third(metrics["budgets"])
    details["training"] = {"git_revision": card.git_revision, "device": card.device}
    metrics["trained_tokens"] = int(curve[-1]["tokens"])
    metrics["parameters"] = sum(p.numel() for p in model.parameters())
    if run.kappa_bits is not None:
        kl = [row["kl_bits"] for row in curve]
        metrics["collapsed"] = int(collapsed(kl, run.kappa_bits, of=len(kl)))

    # DVC has the finished checkpoint by now: the one to resume from is not needed any more
    remove_finished(experiment.name, name, card.spec_hash)
    for file, content in (
        ("evaluation.json", metrics),
        ("details.json", details),
        ("metrics.json", headline(metrics)),
    ):
        (folder / file).write_text(json.dumps(content, indent=2) + "\n")

    tracking = Tracking(experiment.name)
    tracking.start(card, experiment, go_on=True)
    for entry in metrics.get("budgets", [])[:-1]:
        figures = flatten({unit: entry[unit] for unit in UNITS if unit in entry})
        tracking.log_figures("eval", figures, step=entry["tokens"] // experiment.batch_tokens(run))
    tracking.log_figures("eval", flatten(metrics), step=int(curve[-1]["step"]))
    if "collapsed" in metrics:
        tracking.tag("collapsed", "yes" if metrics["collapsed"] else "no")
    tracking.log_artifact(folder / "details.json")
    tracking.finish()
    bounds = metrics["bits_per_token"]
    shown = ", ".join(f"{key} {value['mean']:.4f}" for key, value in bounds.items())
    print(f"{name}: bits per token: {shown}")


def main() -> None:
    name = argument("run")
    experiment = load_stage("runs", name)
    here_or_on_a_worker(experiment, partial(measure, experiment, name))
