"""Writes a trained run for other programs, with a model card, the README.md of an exported model,
from the records of the run.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from torch import Tensor

from ftmodel.config import LatentDesign, Prior
from ftmodel.conversion.llama import llama_config
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.checkpoint import Manifest, load_trained, read_padding
from pipelines.artifacts.llama_files import chat_settings
from pipelines.artifacts.result_files import read_json
from pipelines.artifacts.results import BudgetFigures, EvaluationResult
from pipelines.artifacts.run_results import fraction
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.config.load import load_stage
from pipelines.config.schema import Experiment
from pipelines.export import hugging_face, llama_cpp
from pipelines.host.errors import UserError
from pipelines.host.files import check_writable, results_folder
from pipelines.tracking.sync import ModelEntry

READER = {"hf": "`AutoModelForCausalLM.from_pretrained`", "gguf": "llama.cpp"}
BOUNDS = {  # of Figures, and how a row of the card's table begins
    "nll": "",
    "filtering": "filtering bound on the ",
    "elbo": "ELBO bound on the ",
    "iwae": "IWAE bound on the ",
    "prior": "prior-sample bound on the ",
}
SHAPE = (  # of an architecture, on the card
    "n_layers",
    "d_model",
    "n_heads",
    "n_kv_heads",
    "ffn_width",
    "context",
    "head_width",
    "latent_block",
)
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


def main(
    run: str, to: str, tokens: int | None = None, out: str | None = None, mlflow: bool = False
) -> None:
    spec = RunSpec(load_stage("runs", run), run)
    experiment, whole = spec.experiment, spec.run.tokens
    listed = [budget.listed for budget in spec.budgets]
    if tokens is not None and tokens not in listed:
        known = ", ".join(f"{each:,}" for each in listed)
        raise UserError(f"--tokens: {run} has no checkpoint at {tokens:,} tokens, only at {known}")
    smaller = None if tokens in (None, whole) else tokens
    name = run if smaller is None else f"{run}-{smaller}"
    suffix = ".gguf" if to == "gguf" else ""
    target = Path(out) if out else Path("exports") / experiment.name / f"{name}{suffix}"
    if target.exists():
        raise UserError(f"--out: {target} already exists")
    model, manifest, shards = load_trained(spec, smaller)
    entry = ModelEntry(manifest, smaller) if mlflow else None
    try:
        padding = read_padding(spec.checkpoint(smaller))
        ends, note = of_parent(spec, shards)
        write = writer(
            to, experiment, manifest, smaller or whole, model, shards, padding, ends, note
        )
    except ValueError as error:
        raise UserError(f"{run}: {error}") from None
    check_writable(target.parent)
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as partly:
        unfinished = Path(partly) / target.name
        write(unfinished)
        unfinished.rename(target)
    code = "" if model.latent is None else ", with trust_remote_code"
    print(f"{target}: {run}, for {READER[to]}{code}")
    if note:
        print(note)
    if entry:
        print(entry.hold(target))


def of_parent(spec: RunSpec, shards: Shards) -> tuple[list[int], str]:
    """The ids that end a text of the model that a run goes back to, besides the end of text; and a
    sentence on its chat template, which is not exported: the tokenizer reads special tokens in a
    text as text. ([], "") for a run without such a model.
    """
    start = spec.run.init_from
    while start.run is not None:
        start = spec.experiment.runs[start.run].init_from
    if start.hf is None:
        return [], ""
    try:
        template, ids = chat_settings(Path(start.hf))
    except UserError as error:
        return [], f"What ends a text of the parent, and its chat template, are left out: {error}"
    vocabulary = shards.metadata
    ends = [i for i in ids if i != vocabulary.end_of_text and 0 <= i < vocabulary.vocab_size]
    note = f"The chat template of {start.hf} is left out: special tokens in a text are read as text"
    return ends, note if template else ""


def writer(
    to: str,
    experiment: Experiment,
    manifest: Manifest,
    tokens: int,
    model: FreeTransformer,
    shards: Shards,
    padding: Mapping[str, Tensor],
    ends: Sequence[int] = (),
    note: str = "",
) -> Callable[[Path], None]:
    """A function that writes a model in a format; raises ValueError if that cannot hold it. The
    parent's ``ends`` end a text, too, and ``note`` is on the card; in a GGUF file only the first
    end has a place.
    """
    if model.latent is not None and model.config.latent.shared_codes:
        raise ValueError(
            f"latent.per: {model.config.latent.per} cannot be exported, only one latent code "
            "per token can"
        )
    no_gguf = model.config.qkv_bias or model.config.qk_norm or model.config.rope_factor != 1
    if to == "gguf" and no_gguf:
        raise ValueError("qkv_bias, qk_norm and rope_factor are exported only by --to hf")
    rows = shards.metadata.vocab_size + max(map(len, padding.values()), default=0)
    if to == "gguf":
        config = llama_config(model.config, rows)
        words = llama_cpp.vocabulary(shards, rows)
        about = llama_cpp.provenance(manifest, tokens)
        return lambda path: llama_cpp.write(path, model, config, words, about, padding, ends)
    card = model_card(experiment, manifest, tokens, ends, note)
    if model.latent is not None:
        return lambda path: hugging_face.write_free_transformer(path, model, shards, card, ends)
    settings = hugging_face.configuration(model, shards, rows)
    return lambda path: hugging_face.write(path, settings, model, shards, card, padding, ends)


def model_card(
    experiment: Experiment,
    manifest: Manifest,
    tokens: int,
    ends: Sequence[int] = (),
    note: str = "",
) -> str:
    """The card of a run trained on so many ``tokens``; ``ends`` and ``note`` as ``of_parent``."""
    run, architecture, parent = manifest.run, manifest.architecture, manifest.parent
    shape = {name: architecture.get(name) for name in SHAPE}
    started = "random weights"
    if parent:
        name = parent.get("hf") or f"run {parent['run']}"
        started = f"{name}, sha256 {parent['sha256']}"
    bits = architecture["latent_bits"]
    design = LatentDesign(**architecture.get("latent", {}))
    return TEMPLATES.get_template("card.md.jinja").render(
        manifest=manifest,
        run=run,
        tokens=tokens,
        bits=bits,
        kappa=fraction(run["kappa_bits"]) if bits else "",
        started=started,
        ends=", ".join(map(str, ends)),
        note=note,
        architecture=", ".join(f"{k} {v}" for k, v in shape.items() if v is not None),
        tested=" and ".join(TESTED),
        bounds=bound_lines(experiment, manifest, tokens),
        prior=PRIORS[design.prior].format(bits),
    )


def bound_lines(experiment: Experiment, manifest: Manifest, tokens: int) -> str:
    """Rows of a card's table, named as in docs/measurement.md: the bounds of a run that has been
    evaluated, at so many ``tokens``.
    """
    path = results_folder(experiment.name, manifest.run_name) / "evaluation.json"
    if not path.exists():
        return ""
    evaluation = read_json(path, EvaluationResult, "evaluate")
    at_tokens: EvaluationResult | BudgetFigures = evaluation
    for budget in evaluation.budgets:
        if budget.listed == tokens:
            at_tokens = budget
    units = {"token": at_tokens.bits_per_token, "byte": at_tokens.bits_per_byte}
    return "".join(
        f"| {name}held-out NLL, bits per {unit} | {bound} |\n"
        for unit, figures in units.items()
        if figures  # text alone has bits per byte
        for attribute, name in BOUNDS.items()
        if (bound := getattr(figures, attribute))
    )
