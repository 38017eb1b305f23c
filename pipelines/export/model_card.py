"""The README.md of an exported model, from the records of its run."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ftmodel.designs.design import LatentDesign, Prior
from pipelines.artifacts import results
from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.paths import results_folder
from pipelines.artifacts.results import BudgetFigures, EvaluationResult, Figures
from pipelines.artifacts.run_results import fraction
from pipelines.config.schema import Experiment

BOUNDS = {  # of Figures, and how a row of the table begins
    "nll": "",
    "filtering": "filtering bound on the ",
    "elbo": "ELBO bound on the ",
    "iwae": "IWAE bound on the ",
    "prior": "prior-sample bound on the ",
}
TESTED = ("4.57.6", "5.23.0")  # of transformers, by the tests
PRIORS = {
    Prior.uniform: "which is uniform over the 2^{} codes",
    Prior.learned: "in which each bit has a probability that depends on the tokens so far",
    Prior.recurrent: "in which each bit has a probability that depends on tokens and z so far",
}
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    undefined=StrictUndefined,
    trim_blocks=True,
)


def of_run(experiment: Experiment, manifest: Manifest, tokens: int) -> str:
    """The card of a run trained on so many ``tokens``."""
    run, architecture, parent = manifest.run, manifest.architecture, manifest.parent
    shape = {k: v for k, v in architecture.items() if k[:2] in ("n_", "d_", "ff", "co")}
    for name in ("head_width", "latent_block"):
        if (value := architecture.get(name)) is not None:
            shape[name] = value
    started = "random weights"
    if parent:
        started = f"{parent.get('hf') or 'run ' + parent['run']}, sha256 {parent['sha256']}"
    bits, design = architecture["latent_bits"], LatentDesign(**architecture.get("latent", {}))
    return TEMPLATES.get_template("card.md.jinja").render(
        manifest=manifest,
        run=run,
        tokens=tokens,
        bits=bits,
        kappa=fraction(run["kappa_bits"]) if bits else "",
        started=started,
        architecture=", ".join(f"{k} {v}" for k, v in shape.items()),
        tested=" and ".join(TESTED),
        bounds=bound_lines(experiment, manifest, tokens),
        prior=PRIORS[design.prior].format(bits),
    )


def bound_lines(experiment: Experiment, manifest: Manifest, tokens: int) -> str:
    """Rows of a card's table, named as in docs/measurement.md; none without an evaluation."""
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
