"""A Llama as Hugging Face's programs keep it: a folder with config.json, tokenizer.json and
safetensors, or a .gguf file. Nothing beside these is read, and no code that comes with a model is
run (SECURITY.md).
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from ftmodel.conversion.llama import to_halves
from pipelines.artifacts.tokens.byte_tokenizer import read_tokenizer
from pipelines.host.errors import UserError
from pipelines.host.files import check_content

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"
ADAPTER = "adapter_config.json"  # PEFT's


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
    with gguf_errors(path), nothing_beside(path) as folder:
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(folder, gguf_file=path.name).to_dict()
        return config, GgufWeights(path, config), gguf_tokenizer(path)


def gguf_tokenizer(path: Path) -> Tokenizer:
    """The file's vocabulary and merges; text is split GPT-2's way, whatever the file says."""
    with gguf_errors(path), nothing_beside(path) as folder:
        from transformers import AutoTokenizer

        loaded = AutoTokenizer.from_pretrained(folder, gguf_file=path.name)
        return loaded.backend_tokenizer


@contextmanager
def nothing_beside(path: Path) -> Iterator[Path]:
    """A folder in which a file lies alone, as a link. In the file's own folder, transformers would
    read a tokenizer.json as if it belonged to a GGUF file, and offer to run code that it names.
    """
    with TemporaryDirectory() as folder:
        (Path(folder) / path.name).symlink_to(path.resolve())
        yield Path(folder)


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
    tokenizer: Tokenizer


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


def weight_files(folder: Path) -> dict[Path, set[str] | None]:
    """The safetensors of a folder, in order, each with the names of its tensors if an index says
    them. Like transformers, takes a single file for the whole model, whatever an index beside it
    says. Raises UserError if a file is missing, and for an adapter, which changes the weights.
    """
    if (folder / ADAPTER).exists():
        raise UserError(
            f"{folder / ADAPTER}: adapters are not read; merge it (PEFT's `merge_and_unload`) and "
            "save the whole model"
        )
    files: dict[Path, set[str] | None] = {folder / WEIGHTS: None}
    if not (folder / WEIGHTS).exists() and (folder / INDEX).exists():
        names = read_json(folder / INDEX).get("weight_map")
        if not isinstance(names, dict) or not all(
            isinstance(name, str) and Path(name).name == name for name in names.values()
        ):
            raise UserError(f"{folder / INDEX}: its weight_map names no files of this folder")
        files = {
            folder / file: {tensor for tensor, its_file in names.items() if its_file == file}
            for file in sorted({*names.values()})
        }
    for path in files:
        if not path.is_file():
            raise UserError(f"{path} is missing; weights must be safetensors or GGUF files")
    return files


def model_files(path: Path) -> list[Path]:
    """The files that determine what a Llama computes; raises UserError."""
    if path.suffix == ".gguf":
        if not path.is_file():
            raise UserError(f"{path} is missing")
        check_content(path)
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: neither a folder nor a .gguf file")
    if not (path / CONFIG).is_file():
        raise UserError(f"{path / CONFIG} is missing")
    return [path / CONFIG, *weight_files(path)]


def chat_settings(path: Path) -> tuple[bool, list[int]]:
    """Whether a model has a chat template, and the ids that end its texts; raises UserError."""
    model_files(path)
    if path.suffix == ".gguf":
        with gguf_errors(path):
            from gguf import GGUFReader

            fields = GGUFReader(path).fields
            ends = [f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")]
            found = [int(fields[name].contents()) for name in ends if name in fields]
            return "tokenizer.chat_template" in fields, sorted({*found})
    template = any(path.glob("chat_template.*"))
    of_tokenizer, of_generation = path / "tokenizer_config.json", path / "generation_config.json"
    if of_tokenizer.exists():
        template |= bool(read_json(of_tokenizer).get("chat_template"))
    ends_file = of_generation if of_generation.exists() else path / CONFIG
    listed = read_json(ends_file).get("eos_token_id")
    ids = listed if isinstance(listed, list) else [listed]
    return template, sorted(i for i in ids if isinstance(i, int))


def read_llama(path: Path) -> Llama:
    """Read a Llama; raises UserError for bad files. ftmodel/conversion checks the model itself."""
    model_files(path)
    if path.suffix == ".gguf":
        return Llama(*read_gguf(path))
    if not (path / TOKENIZER).exists():
        raise UserError(
            f"{path / TOKENIZER} is missing: nothing says which tokens the ids of the model are; "
            "`AutoTokenizer.from_pretrained(folder).save_pretrained(folder)` makes it of the "
            "model's other tokenizer files"
        )
    weights: dict[str, Tensor] = {}
    for file, names in weight_files(path).items():
        check_content(file)
        try:
            tensors = load_file(file)
        except Exception as error:  # not safetensors' own for a dtype that torch lacks
            raise UserError(f"{file}: not readable as safetensors ({error})") from None
        if names is not None and (other := sorted(names ^ tensors.keys())):
            raise UserError(
                f"{file}: {other[0]} is {'missing' if other[0] in names else 'left over'}, by "
                f"{INDEX}: files of several models?"
            )
        weights |= tensors
    if (path / WEIGHTS).exists() and (path / INDEX).exists():
        print(f"{path}: {WEIGHTS} is read, as by transformers; {INDEX} and its files are not")
    return Llama(read_json(path / CONFIG), weights, read_tokenizer(path / TOKENIZER))
