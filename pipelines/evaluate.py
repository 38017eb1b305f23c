"""Stage `evaluate`: measure a trained run on held-out data.    python -m pipelines.evaluate <run>

Writes results/<experiment>/<run>/evaluation.json (all figures), details.json (samples, KL of each
bit, the bound of each sequence) and metrics.json (the few that `dvc metrics show` lists), and adds
them to the MLflow run of the training.
"""

import json
import os
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from ftmodel.bounds import exact_nll, latent_bounds, mean_and_error
from ftmodel.generate import generate
from ftmodel.objective import LN2, collapsed
from ftmodel.target_scores import score_groups
from ftmodel.target_task import ARROW, LENGTH, LETTERS, decode, exact_log_probability
from ftmodel.transformer import FreeTransformer
from pipelines import errors, plots
from pipelines.arms import read_curve
from pipelines.checkpoint import check_vocabulary, checkpoint_path, load_model, resume_folder
from pipelines.schema import Evaluation, Experiment
from pipelines.shards import Shards
from pipelines.stage import argument, load_stage
from pipelines.tracking import Tracking

TEXT_PROMPT, TEXT_NEW, TEXT_SAMPLES = 32, 96, 3  # tokens of prompt, of continuation; how many


def held_out(shards: Shards, context: int, tokens: int) -> Tensor:
    """Windows (n, context + 1), evenly spaced over the validation part, of at most ``tokens``."""
    windows = shards.windows("validation", context)
    n = min(len(windows), max(1, tokens // context))
    return windows.batch(torch.arange(n) * len(windows) // n)


def score(
    model: FreeTransformer, sequences: Tensor, settings: Evaluation, device: torch.device
) -> dict[str, Tensor]:
    """Per-sequence figures in nats, each (n,), and kl_bits (n, H) for a Free Transformer."""
    generator = torch.Generator().manual_seed(settings.seed)
    rows = max(1, settings.batch_tokens // (sequences.shape[1] - 1))
    parts: list[dict[str, Tensor]] = []
    for batch in tqdm(sequences.to(device).split(rows), desc="bounds", leave=False):
        inputs, targets = batch[:, :-1], batch[:, 1:]
        if model.latent is None:
            parts.append({"nll": exact_nll(model, inputs, targets)})
        else:
            parts.append(
                vars(latent_bounds(model, inputs, targets, settings.iwae_samples, generator))
            )
    return {name: torch.cat([p[name] for p in parts]).cpu() for name in parts[0]}


def target_groups(
    model: FreeTransformer, settings: Evaluation, device: torch.device
) -> dict[str, list[list[str]]]:
    """Groups of generated sequences by kind: fresh z, and, where there is a z, pinned z."""
    generator = torch.Generator().manual_seed(settings.seed)
    letters = torch.randint(len(LETTERS), (settings.groups, 1), generator=generator)
    letters = letters.repeat_interleave(settings.group_size, dim=0)
    prompt = torch.cat((letters, torch.full_like(letters, ARROW)), dim=1).to(device)
    kinds = {"fresh": 1} if model.latent is None else {"fresh": 1, "pinned": settings.group_size}
    groups = {}
    for kind, share in kinds.items():
        made = generate(model, prompt, LENGTH, generator=generator, share_z=share).cpu()
        groups[kind] = [[decode(s) for s in g] for g in made.split(settings.group_size)]
    return groups


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
