"""A Llama as Hugging Face's programs keep it: a folder with config.json and safetensors, or a .gguf
file. Pickled weights are not read, and no code that comes with a model is run.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from ftmodel.conversion.llama import to_halves
from pipelines.artifacts.tokens.byte_tokenizer import read_tokenizer
from pipelines.host.errors import UserError

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"


class GgufWeights(Mapping[str, Tensor]):
    """Tensors of a Llama's or Qwen's GGUF file, by Hugging Face's names and in float32. A tensor
    that such a model does not have keeps the file's name.

    Each is dequantized when it is asked for. transformers would hold a second copy of all of them,
    and drop tensors that it does not know, such as the `rope_freqs` by which a file slows RoPE.
    """

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        """``config`` is config.json's. Raises ValueError for a RoPE that it does not describe."""
        from gguf import MODEL_ARCH, GGUFReader, get_tensor_name_map
        from transformers import AutoConfig, AutoModelForCausalLM

        family = getattr(MODEL_ARCH, config["model_type"].upper(), MODEL_ARCH.LLAMA)
        known = get_tensor_name_map(family, config["num_hidden_layers"])
        with torch.device("meta"):
            settings = AutoConfig.for_model(**config)
            names = AutoModelForCausalLM.from_config(settings).state_dict()
        theirs = {}
        for name in names:
            stem, _, kind = name.rpartition(".")
            theirs[f"{known.get_name(stem)}.{kind}"] = name
        self.path = path
        reader = GGUFReader(path)
        for key, field in reader.fields.items():  # which transformers does not read
            if ".rope.scaling." in key and field.contents() != "none":
                raise ValueError(f"{key}: not supported from GGUF; use the folder of safetensors")
        self.tensors = {theirs.get(t.name, t.name): t for t in reader.tensors}
        self.heads = {}
        if config["model_type"] == "llama":  # llama.cpp rotates its channels in pairs, as we do
            self.heads = {
                "q_proj": config["num_attention_heads"],
                "k_proj": config["num_key_value_heads"],
            }

    def __getitem__(self, name: str) -> Tensor:
        from gguf import dequantize

        tensor = self.tensors[name]
        with gguf_errors(self.path):
            numbers = dequantize(tensor.data, tensor.tensor_type)
        numbers = np.require(numbers, requirements="W")  # copied if they are the file's own
        weight = torch.from_numpy(numbers)
        heads = self.heads.get(name.split(".")[-2])
        return weight if heads is None else to_halves(weight, heads)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def read_gguf(path: Path) -> tuple[dict[str, Any], GgufWeights, Tokenizer]:
    """Read the entries of config.json, which transformers translates, the weights and the
    tokenizer of a GGUF file; raises UserError.
    """
    with gguf_errors(path):
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name).to_dict()
        return config, GgufWeights(path, config), gguf_tokenizer(path)


def gguf_tokenizer(path: Path) -> Tokenizer:
    """The file's vocabulary and merges; text is split GPT-2's way, whatever the file says."""
    with gguf_errors(path):
        from transformers import AutoTokenizer

        loaded = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        return loaded.backend_tokenizer


@contextmanager
def gguf_errors(path: Path) -> Iterator[None]:
    """Turn what reading a GGUF file raises into a UserError."""
    try:
        import gguf  # noqa: F401  transformers needs it, and says so at length

        yield
    except UserError:
        raise
    except ImportError:
        raise UserError(f"{path}: reading it takes the package gguf: `pip install gguf`") from None
    except Exception as error:  # a damaged file may make its readers raise anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{path}: not readable as GGUF ({reason})") from None


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
        config, gguf_weights, tokenizer = read_gguf(path)
        return Llama(config, gguf_weights, tokenizer)
    weights: dict[str, Tensor] = {}
    for file in files[1:]:
        try:
            weights |= load_file(file)
        except Exception as error:  # not safetensors' own for a dtype that torch lacks
            raise UserError(f"{file}: not readable as safetensors ({error})") from None
    file = path / TOKENIZER
    own = read_tokenizer(file) if file.exists() else None
    return Llama(read_json(path / CONFIG), weights, own)
