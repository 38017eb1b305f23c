"""A Llama as Hugging Face's programs keep it: a folder with config.json and safetensors, or a .gguf
file. Pickled weights are not read, and no code that comes with a model is run.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from pipelines.artifacts import gguf_file
from pipelines.artifacts.tokens.byte_tokenizer import read_tokenizer
from pipelines.common.errors import UserError

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"


@dataclass
class Llama:
    """Everything that is read from a model's files."""

    config: Mapping[str, Any]  # config.json
    weights: Mapping[str, Tensor]  # by Hugging Face's names
    tokenizer: Tokenizer | None  # None: the folder has no tokenizer.json


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error})") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: not a mapping")
    return content


def weight_files(folder: Path) -> list[Path]:
    """The safetensors of a folder, in order; raises UserError if any is missing."""
    if not (folder / INDEX).exists():
        files = [folder / WEIGHTS]
    else:
        names = read_json(folder / INDEX).get("weight_map")
        if not isinstance(names, dict) or not all(
            isinstance(name, str) and Path(name).name == name for name in names.values()
        ):
            raise UserError(f"{folder / INDEX}: its weight_map names no files of this folder")
        files = [folder / name for name in sorted({*names.values()})]
    for path in files:
        if not path.is_file():
            raise UserError(f"{path}: is missing; weights are read from safetensors or GGUF alone")
    return files


def model_files(path: Path) -> list[Path]:
    """The files that determine what a Llama computes; raises UserError."""
    if path.suffix == ".gguf":
        if not path.is_file():
            raise UserError(f"{path}: is missing")
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: neither a folder nor a .gguf file")
    if not (path / CONFIG).is_file():
        raise UserError(f"{path / CONFIG}: is missing")
    return [path / CONFIG, *weight_files(path)]


def read_llama(path: Path) -> Llama:
    """Read a Llama; raises UserError for bad files. ftmodel/conversion checks the model itself."""
    files = model_files(path)
    if path.suffix == ".gguf":
        return Llama(*gguf_file.read(path))
    weights: dict[str, Tensor] = {}
    for file in files[1:]:
        try:
            weights |= load_file(file)
        except Exception as error:  # not safetensors' own for a dtype that torch lacks
            raise UserError(f"{file}: not readable as safetensors ({error})") from None
    file = path / TOKENIZER
    tokenizer = read_tokenizer(file) if file.exists() else None
    return Llama(read_json(path / CONFIG), weights, tokenizer)
