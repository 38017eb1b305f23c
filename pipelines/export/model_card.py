"""The README.md of an exported model, from the records of its run."""

from pathlib import Path

from pipelines.artifacts import llama_files, results
from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.paths import results_folder
from pipelines.artifacts.results import BudgetFigures, EvaluationResult, Figures
from pipelines.config.schema import Experiment

BOUNDS = {  # of Figures, and how a row of the table begins
    "nll": "",
    "filtering": "filtering bound on the ",
    "elbo": "ELBO bound on the ",
    "iwae": "IWAE bound on the ",
    "prior": "prior-sample bound on the ",
}
TESTED = ("4.57.6", "5.23.0")  # of transformers, by the tests
FACTS = """\
| data | {data}, hash {data_hash} |
| trained on | {tokens:,} tokens, seed {seed} |
| started from | {started} |
| architecture | {architecture} |
| revision of the code | {revision} |
| trained on a | {device} |
| tested with | transformers {tested} |
"""
CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
tags: [free-transformer-lab]{base_model}
---
# {run} of experiment {experiment}

A decoder language model without a latent. It is the baseline for Free Transformers (Fleuret 2025,
arXiv 2510.17558). As a Llama it computes the logits of the program that trained it.

| | |
|---|---|
| arm | baseline{blocks} |
{facts}{bounds}
`generation_config.json` samples from the whole distribution at temperature 1; top_k or top_p would
change that distribution.

{bounds_meaning}Do not compare it with the training losses of
a Free Transformer, nor with its cross-entropy given z from the encoder, which has read the text.
"""


def of_run(experiment: Experiment, manifest: Manifest, tokens: int) -> str:
    run = manifest.run
    lines = bound_lines(experiment, manifest, tokens)
    return CARD.format(
        **facts(experiment, manifest, tokens),
        blocks=f" + {run['extra_blocks']} block(s)" if run.get("extra_blocks") else "",
        bounds=lines or "| held-out NLL | not evaluated |\n",
        bounds_meaning="The NLL is exact, in bits, of held-out documents. " if lines else "",
    )


def facts(experiment: Experiment, manifest: Manifest, tokens: int) -> dict[str, str]:
    """What the cards of both arms have in common, for a run trained on so many ``tokens``."""
    run, architecture = manifest.run, manifest.architecture
    shape = {k: v for k, v in architecture.items() if k[:2] in ("n_", "d_", "ff", "co")}
    for name in ("head_width", "latent_block"):
        if (value := architecture.get(name)) is not None:
            shape[name] = value
    parent = manifest.parent
    started = "random weights"
    if parent:
        started = f"{parent.get('hf') or 'run ' + parent['run']}, sha256 {parent['sha256']}"
    rows = FACTS.format(
        data=run["data"],
        data_hash=manifest.data_hash,
        tokens=tokens,
        seed=run["seed"],
        started=started,
        architecture=", ".join(f"{k} {v}" for k, v in shape.items()),
        revision=manifest.git_revision or "not recorded",
        device=manifest.device or "not recorded",
        tested=" and ".join(TESTED),
    )
    return {
        "run": manifest.run_name,
        "experiment": manifest.experiment,
        "base_model": base_model(experiment, manifest.run_name),
        "facts": rows,
    }


def base_model(experiment: Experiment, name: str) -> str:
    """Front matter: the hub's name of what the run or its parent began with; empty if unknown."""
    start = experiment.runs[name].init_from
    if start.run is not None:
        return base_model(experiment, start.run)
    known = llama_files.hub_name(Path(start.hf)) if start.hf is not None else None
    return f"\nbase_model: {known}" if known else ""


def bound_lines(experiment: Experiment, manifest: Manifest, tokens: int) -> str:
    """Rows of a card's table, by the names of docs/measurement.md; none without an evaluation."""
    return "".join(
        f"| {name}held-out NLL, bits per {unit} | {bound} |\n"
        for unit, figures in measured(experiment, manifest, tokens).items()
        for attribute, name in BOUNDS.items()
        if (bound := getattr(figures, attribute))
    )


def measured(experiment: Experiment, manifest: Manifest, tokens: int) -> dict[str, Figures]:
    """Held-out figures at so many tokens by unit, token or byte; {} if not evaluated."""
    path = results_folder(experiment.name, manifest.run_name) / "evaluation.json"
    if not path.exists():
        return {}
    evaluation = results.read(path, EvaluationResult, "evaluate")
    at_tokens: list[EvaluationResult | BudgetFigures] = [
        *(budget for budget in evaluation.budgets if budget.listed == tokens)
    ] or [evaluation]
    units = {"token": at_tokens[0].bits_per_token, "byte": at_tokens[0].bits_per_byte}
    return {unit: figures for unit, figures in units.items() if figures}
