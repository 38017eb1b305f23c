"""Hand a trained model over to other programs: a baseline as a Llama, a Free Transformer with code.

    python -m pipelines.export baseline --to hf
    python -m pipelines.export baseline --to hf --tokens 1000000 --out llama
    python -m pipelines.export free_k1_2 --to hf

hf makes a folder for AutoModelForCausalLM, vLLM and lm_eval's own backend: config.json,
model.safetensors, generation_config.json, tokenizer and model card; that of a Free Transformer has
the model's code as well and needs `trust_remote_code`. By default it is exports/<experiment>/<run>,
with the tokens of a smaller budget behind a dash.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ftmodel.model.transformer import FreeTransformer
from pipelines.artifacts.card import check_card
from pipelines.artifacts.checkpoint import Manifest, check_vocabulary, load_model
from pipelines.artifacts.paths import checkpoint_path, tokens_folder
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.errors import UserError
from pipelines.config.load import load_stage
from pipelines.config.schema import Experiment
from pipelines.export import free_card, free_transformer, hugging_face, model_card


def main(run: str, to: str, tokens: int | None, out: str | None) -> None:
    experiment = load_stage("runs", run)
    arm = experiment.runs[run]
    listed = [budget.listed for budget in experiment.budgets(arm)]
    if tokens is not None and tokens not in listed:
        known = ", ".join(f"{each:,}" for each in listed)
        raise UserError(f"--tokens: {run} has no checkpoint at {tokens:,} tokens, but at {known}")
    smaller = None if tokens in (None, arm.tokens) else tokens
    name = run if smaller is None else f"{run}-{smaller}"
    folder = Path(out) if out else Path("exports") / experiment.name / name
    if folder.exists():
        raise UserError(f"--out: {folder} is there already")
    path = checkpoint_path(experiment.name, run, smaller)
    model, manifest = load_model(path)
    check_card(path, manifest, experiment, run)
    shards = Shards(tokens_folder(arm.data))
    check_vocabulary(path, manifest, shards)
    try:
        write = writer(to, experiment, manifest, smaller or arm.tokens, model, shards)
    except ValueError as error:
        raise UserError(f"{run}: {error}") from None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as partly:
        written = Path(partly) / folder.name
        write(written)
        written.rename(folder)
    code = "" if model.latent is None else ", with trust_remote_code"
    print(f"{folder}: {run}, for `AutoModelForCausalLM.from_pretrained`{code}")


def writer(
    to: str,
    experiment: Experiment,
    manifest: Manifest,
    tokens: int,
    model: FreeTransformer,
    shards: Shards,
) -> Callable[[Path], None]:
    """What writes a model in a format; raises ValueError if that does not hold such a model."""
    if model.latent is not None:
        card = free_card.of_run(experiment, manifest, tokens)
        return partial(free_transformer.write, model=model, shards=shards, card=card)
    card = model_card.of_run(experiment, manifest, tokens, to)
    settings = hugging_face.configuration(model, shards)
    return partial(hugging_face.write, config=settings, model=model, shards=shards, card=card)
