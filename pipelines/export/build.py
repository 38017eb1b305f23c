"""Export a trained model to transformers or llama.cpp.

    python -m pipelines.export text_baseline --to hf
    python -m pipelines.export text_free_k1_2 --to hf
    python -m pipelines.export text_baseline --to gguf
    python -m pipelines.export text_baseline --to hf --mlflow
    python -m pipelines.export baseline_s0 --to hf --tokens 1024000 --out llama

A baseline is exported as a Llama, a Free Transformer with its code. hf makes a folder for
AutoModelForCausalLM, vLLM and lm_eval's own backend: config.json, model.safetensors,
generation_config.json, tokenizer and model card. The folder of a Free Transformer also has the
model's code and needs `trust_remote_code`. By default the folder is exports/<experiment>/<run>; for
a smaller budget, a dash and its tokens follow. gguf makes a file of float32 weights for llama.cpp,
with the same name and .gguf. --mlflow also copies the result into the checkpoint's entry under
*Models* in MLflow; if the store is on this machine, the entry only names the result.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from torch import Tensor

from ftmodel.conversion.llama import llama_config
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.checkpoint import Manifest, read_padding
from pipelines.artifacts.manifest import load_trained
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.arguments import COUNT, TRAINED
from pipelines.common.errors import UserError
from pipelines.config.load import load_stage
from pipelines.config.schema import Experiment
from pipelines.export import free_transformer, hugging_face, llama_cpp, model_card
from pipelines.tracking.registry import ModelEntry

READER = {"hf": "`AutoModelForCausalLM.from_pretrained`", "gguf": "llama.cpp"}


@TRAINED
@click.option(
    "--to",
    type=click.Choice(["hf", "gguf"]),
    required=True,
    help="hf: a folder for Hugging Face's transformers; gguf: a file for llama.cpp.",
)
@click.option(
    "--tokens", type=COUNT, help="Checkpoint of a smaller budget. Default: the whole run."
)
@click.option(
    "--out", type=click.Path(), metavar="PATH", help="Where to write; must not exist yet."
)
@click.option("--mlflow", is_flag=True, help="Also copy it into the checkpoint's entry in MLflow.")
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
        write = writer(to, experiment, manifest, smaller or whole, model, shards, padding)
    except ValueError as error:
        raise UserError(f"{run}: {error}") from None
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as partly:
        written = Path(partly) / target.name
        write(written)
        written.rename(target)
    code = "" if model.latent is None else ", with trust_remote_code"
    print(f"{target}: {run}, for {READER[to]}{code}")
    if entry:
        print(entry.hold(target))


def writer(
    to: str,
    experiment: Experiment,
    manifest: Manifest,
    tokens: int,
    model: FreeTransformer,
    shards: Shards,
    padding: Mapping[str, Tensor],
) -> Callable[[Path], None]:
    """A function that writes a model in a format; raises ValueError if that cannot hold it."""
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
        words, about = llama_cpp.vocabulary(shards, rows), llama_cpp.provenance(manifest, tokens)
        return lambda path: llama_cpp.write(path, model, config, words, about, padding)
    card = model_card.of_run(experiment, manifest, tokens)
    if model.latent is not None:
        return lambda path: free_transformer.write(path, model, shards, card)
    settings = hugging_face.configuration(model, shards, rows)
    return lambda path: hugging_face.write(path, settings, model, shards, card, padding)
