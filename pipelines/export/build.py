"""Hand a trained baseline over as a Llama that other programs load without our code.

    python -m pipelines.export baseline --to hf
    python -m pipelines.export baseline --to hf --tokens 1000000 --out llama

hf makes a folder for AutoModelForCausalLM, vLLM and lm_eval's own backend: config.json,
model.safetensors, generation_config.json, tokenizer and model card. By default it is
exports/<experiment>/<run>, with the tokens of a smaller budget behind a dash.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.artifacts.card import check_card
from pipelines.artifacts.checkpoint import check_vocabulary, load_model
from pipelines.artifacts.paths import checkpoint_path, tokens_folder
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.errors import UserError
from pipelines.config.load import load_stage
from pipelines.export import hugging_face, model_card


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
    card = model_card.of_run(experiment, manifest, smaller or arm.tokens, to)
    try:
        config = hugging_face.configuration(model, shards)
    except ValueError as error:
        raise UserError(f"{run}: {error}") from None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as partial:
        written = Path(partial) / folder.name
        hugging_face.write(written, config, model, shards, card)
        written.rename(folder)
    print(f"{folder}: {run}, for `AutoModelForCausalLM.from_pretrained`")
