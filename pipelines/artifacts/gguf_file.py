"""A GGUF file as Hugging Face's names and numbers.

transformers translates its architecture and tokenizer. Weights are read here, one at a time,
because transformers holds a second copy of all of them, and drops tensors that it does not know,
such as the `rope_freqs` by which a file slows down RoPE.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from ftmodel.conversion.llama import to_halves
from pipelines.common.errors import UserError


class GgufWeights(Mapping[str, Tensor]):
    """Tensors of a Llama's or Qwen's file, in float32, each dequantized when it is asked for. A
    tensor that such a model does not have keeps the file's name.
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
        self.path, reader = path, GGUFReader(path)
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
        with errors(self.path):
            numbers = dequantize(tensor.data, tensor.tensor_type)
        numbers = np.require(numbers, requirements="W")  # copied if they are the file's own
        weight = torch.from_numpy(numbers)
        heads = self.heads.get(name.split(".")[-2])
        return weight if heads is None else to_halves(weight, heads)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def read(path: Path) -> tuple[dict[str, Any], GgufWeights, Tokenizer]:
    """Read the entries of config.json, the weights and the tokenizer; raises UserError."""
    with errors(path):
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name).to_dict()
        return config, GgufWeights(path, config), tokenizer(path)


def tokenizer(path: Path) -> Tokenizer:
    """The file's vocabulary and merges; text is split GPT-2's way, whatever the file says."""
    with errors(path):
        from transformers import AutoTokenizer

        loaded = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        return loaded.backend_tokenizer


@contextmanager
def errors(path: Path) -> Iterator[None]:
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
