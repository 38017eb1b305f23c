"""The README.md of an exported model, from the records of its run."""

from pipelines.artifacts import results
from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.paths import results_folder
from pipelines.artifacts.results import BudgetFigures, Evaluation, Figures
from pipelines.config.schema import Experiment

CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
tags: [free-transformer-lab]
---
# {run} of experiment {experiment}

A decoder language model without a latent: the baseline that Free Transformers are compared with
(Fleuret 2025, arXiv 2510.17558). As a Llama it computes the logits of the program that trained it.

| | |
|---|---|
| arm | baseline{blocks} |
| data | {data}, hash {data_hash} |
| trained on | {tokens:,} tokens, seed {seed} |
| architecture | {architecture} |
| revision of the code | {revision} |
| trained on a | {device} |
{bounds}
`generation_config.json` samples from the whole distribution at temperature 1; top_k or top_p would
make it another one.

{bounds_meaning}What must not be compared with it: training losses
of a Free Transformer, and its cross-entropy given z from the encoder, which has read the text.
"""


def of_run(experiment: Experiment, manifest: Manifest, tokens: int, to: str) -> str:
    run = manifest.run
    shape = {k: v for k, v in manifest.architecture.items() if k[:2] in ("n_", "d_", "ff", "co")}
    lines = bound_lines(experiment, manifest, tokens)
    return CARD.format(
        run=manifest.run_name,
        experiment=manifest.experiment,
        blocks=f" + {run['extra_blocks']} block(s)" if run.get("extra_blocks") else "",
        data=run["data"],
        data_hash=manifest.data_hash,
        tokens=tokens,
        seed=run["seed"],
        architecture=", ".join(f"{k} {v}" for k, v in shape.items()),
        revision=manifest.git_revision or "not recorded",
        device=manifest.device or "not recorded",
        bounds=lines,
        bounds_meaning="The NLL is exact, in bits, of held-out documents. " if lines else "",
    )


def bound_lines(experiment: Experiment, manifest: Manifest, tokens: int) -> str:
    """Rows of the card's table, if the run has been evaluated at so many tokens."""
    path = results_folder(experiment.name, manifest.run_name) / "evaluation.json"
    if not path.exists():
        return "| held-out NLL | not evaluated |\n"
    evaluation = results.read(path, Evaluation, "evaluate")
    measured: list[Evaluation | BudgetFigures] = [
        *(budget for budget in evaluation.budgets if budget.listed == tokens)
    ] or [evaluation]
    units: list[tuple[str, Figures | None]] = [
        ("token", measured[0].bits_per_token),
        ("byte", measured[0].bits_per_byte),
    ]
    return "".join(
        f"| held-out NLL, bits per {unit} | {figures.bound.mean:.4f} ± {figures.bound.se:.4f} |\n"
        for unit, figures in units
        if figures
    )
