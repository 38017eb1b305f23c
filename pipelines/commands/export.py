"""Export a trained model to transformers or llama.cpp.

    ftlab export text_baseline --to hf
    ftlab export text_free_k1_2 --to hf
    ftlab export text_baseline --to gguf
    ftlab export text_baseline --to hf --mlflow
    ftlab export baseline_s0 --to hf --tokens 1024000 --out llama

A baseline is exported as a Llama, a Free Transformer with its code. hf makes a folder for
AutoModelForCausalLM, vLLM and lm_eval's own backend: config.json, model.safetensors,
generation_config.json, tokenizer and model card. The folder of a Free Transformer also has the
model's code and needs `trust_remote_code`. By default the folder is exports/<experiment>/<run>; for
a smaller budget, a dash and its tokens follow. gguf makes a file of float32 weights for llama.cpp,
with the same name and .gguf. --mlflow also copies the result into the checkpoint's entry under
*Models* in MLflow; if the store is on this machine, the entry only names the result.
"""

from typing import Any

import click

from pipelines.host.command_line import COUNT, TRAINED, command


@command(__doc__)
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
def main(**given: Any) -> None:
    from pipelines.export import build

    build.main(**given)
