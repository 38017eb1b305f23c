"""Stage `evaluate`: measure a trained run on held-out data.    python -m pipelines.evaluate <run>

Writes results/<experiment>/<run>/evaluation.json (all figures), details.json (samples, KL of each
bit, the bound of each document) and metrics.json (the few that `dvc metrics show` lists), and adds
them to the MLflow run of the training.
"""

import json
import os
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from ftmodel.bounds import mean_and_error
from ftmodel.generate import generate
from ftmodel.objective import LN2, collapsed
from ftmodel.processes import PROCESSES
from ftmodel.target_scores import score_groups
from ftmodel.transformer import FreeTransformer
from pipelines import errors, plots
from pipelines.arms import read_curve
from pipelines.checkpoint import check_vocabulary, checkpoint_path, load_model, resume_folder
from pipelines.data_schema import Data, ProcessData
from pipelines.held_out import Piece, held_out
from pipelines.process_figures import coin_figures, label_figures, target_groups
from pipelines.schema import Evaluation, Experiment
from pipelines.scoring import Scores, score
from pipelines.shards import Shards
from pipelines.stage import argument, load_stage
from pipelines.tracking import Tracking

TEXT_PROMPT, TEXT_NEW, TEXT_SAMPLES = 32, 96, 3  # tokens of prompt, of continuation; how many


def text_samples(
    model: FreeTransformer, shards: Shards, settings: Evaluation, device: torch.device
) -> list[dict[str, str]]:
    """Continuations of held-out prompts."""
    context = model.config.context
    prompt_length = min(TEXT_PROMPT, context // 2)
    windows = held_out(shards, context, TEXT_SAMPLES * context)[:, :prompt_length]
    made = generate(
        model,
        windows.to(device),
        min(TEXT_NEW, context - prompt_length),
        generator=torch.Generator().manual_seed(settings.seed),
        temperature=0.8,
    ).cpu()
    decode = shards.tokenizer().decode
    return [
        {
            "prompt": decode(row[:prompt_length].tolist()),
            "text": decode(row[prompt_length:].tolist()),
        }
        for row in made
    ]


def flatten(figures: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested figures as {"a/b": number}."""
    flat: dict[str, float] = {}
    for key, value in figures.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}/")
        else:
            flat[prefix + key] = float(value)
    return flat


def headline(metrics: dict[str, Any]) -> dict[str, float]:
    """The figures to compare runs by; the bound is a baseline's NLL or a latent model's IWAE."""
    bits = metrics["bits_per_token"]
    key = "nll" if "nll" in bits else "iwae"
    shown = {"bound_bits_per_token": bits[key]["mean"]}
    if "bits_per_byte" in metrics:
        shown["bound_bits_per_byte"] = metrics["bits_per_byte"][key]["mean"]
    if "kl" in bits:
        shown["kl_bits_per_token"] = bits["kl"]["mean"]
    if "fresh" in metrics:
        shown["gap_nats_per_token"] = metrics["gap_nats_per_token"]["mean"]
        shown["valid"] = metrics["fresh"]["valid"]
    if "pinned" in metrics:
        shown["spread_fresh"] = metrics["fresh"]["spread"]
        shown["spread_pinned"] = metrics["pinned"]["spread"]
        shown["noise_pinned"] = metrics["pinned"]["noise"]
    return shown


def evaluate(
    model: FreeTransformer, shards: Shards, settings: Evaluation, device: torch.device
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What goes into evaluation.json, but for what the training curve tells, and details.json."""
    sequences = held_out(shards, model.config.context, settings.tokens)
    n, tokens = sequences.shape[0], sequences.shape[1] - 1
    scores = score(model, sequences, settings, device)
    kl_bits = scores.pop("kl_bits", None)
    metrics: dict[str, Any] = {
        "sequences": n,
        "tokens": n * tokens,
        "bits_per_token": {k: mean_and_error(v / tokens / LN2) for k, v in scores.items()},
    }
    bound = scores["nll"] if model.latent is None else scores["iwae"]
    details: dict[str, Any] = {
        "kl_per_bit": [] if kl_bits is None else (kl_bits.mean(0) / tokens / LN2).tolist(),
        "bound_bits": [round(bits, 6) for bits in (bound / tokens / LN2).tolist()],
    }
    if shards.metadata.row_length is not None:
        exact = -exact_log_probability(sequences)
        metrics["bits_per_token"]["exact"] = mean_and_error(exact / tokens / LN2)
        metrics["gap_nats_per_token"] = mean_and_error((bound - exact) / tokens)
        details["groups"] = target_groups(model, settings, device)
        for kind, groups in details["groups"].items():
            metrics[kind] = asdict(score_groups(groups))
        details["groups"] = {kind: groups[:2] for kind, groups in details["groups"].items()}
    else:
        sizes = shards.token_bytes()[sequences[:, 1:]].sum(1)
        per_sequence = sizes.double().mean() * LN2
        metrics["bits_per_byte"] = {k: mean_and_error(v / per_sequence) for k, v in scores.items()}
        details["samples"] = text_samples(model, shards, settings, device)
    return metrics, details


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

    metrics, details = evaluate(model.to(device), shards, experiment.evaluation, device)
    metrics["trained_tokens"] = int(curve[-1]["tokens"])
    metrics["parameters"] = sum(p.numel() for p in model.parameters())
    if run.kappa_bits is not None:
        kl = [row["kl_bits"] for row in curve]
        metrics["collapsed"] = int(collapsed(kl, run.kappa_bits, of=len(kl)))

    # DVC has the finished checkpoint by now: the one to resume from is not needed any more
    shutil.rmtree(resume_folder(experiment.name, name), ignore_errors=True)
    for file, content in (
        ("evaluation.json", metrics),
        ("details.json", details),
        ("metrics.json", headline(metrics)),
    ):
        (folder / file).write_text(json.dumps(content, indent=2) + "\n")

    tracking = Tracking(experiment.name)
    tracking.start(card, experiment, go_on=True)
    tracking.log_figures("eval", flatten(metrics), step=int(curve[-1]["step"]))
    if "collapsed" in metrics:
        tracking.tag("collapsed", "yes" if metrics["collapsed"] else "no")
    tracking.log_artifact(folder / "details.json")
    tracking.log_plot(plots.curves({name: curve}), "curve.png")
    if details["kl_per_bit"]:
        tracking.log_plot(plots.kl_per_bit({name: details["kl_per_bit"]}), "kl_per_bit.png")
    tracking.finish()
    bounds = metrics["bits_per_token"]
    shown = ", ".join(f"{key} {value['mean']:.4f}" for key, value in bounds.items())
    print(f"{name}: bits per token: {shown}")


def main() -> None:
    name = argument("run")
    experiment = load_stage("runs", name)
    if os.environ.get("RAY_ADDRESS"):
        from pipelines.cluster import on_a_worker  # one process needs no Ray

        on_a_worker(experiment, partial(measure, experiment, name))
    else:
        measure(experiment, name)


if __name__ == "__main__":
    errors.run(main)
