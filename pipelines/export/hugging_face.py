"""A model as a folder for transformers.

`write`: a baseline, which transformers, vLLM and lm_eval take for a Llama.
`write_free_transformer`: a Free Transformer with its own code, for AutoModelForCausalLM with
``trust_remote_code``. That code is the installed ftmodel/, as far as the model needs it, and two
modules of this package, with imports made relative.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig, PreTrainedTokenizerFast

from ftmodel.conversion.llama import llama_config, llama_weights
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.tokens.shards import Shards
from pipelines.export.configuration_free_transformer import FreeTransformerConfig
from pipelines.export.llama_cpp import QWEN_2, pattern_of
from pipelines.tokenize.vocabulary import pre_tokenizer_parts

# what this project samples from; transformers' own default keeps the 50 most probable tokens only
SAMPLING = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
AUTO = {
    "AutoConfig": "configuration_free_transformer.FreeTransformerConfig",
    "AutoModelForCausalLM": "modeling_free_transformer.FreeTransformerForCausalLM",
}
COPIED = """
'''transformers 4 copies the modules that such lines of this very file name:
{}
'''
"""
OURS = re.compile(
    r"^( *from )((?:ftmodel(?:\.\w+)?|pipelines\.export)\.(\w+)) import", re.MULTILINE
)


def configuration(
    model: FreeTransformer, shards: Shards, rows: int | None = None
) -> PreTrainedConfig:
    """The configuration of a Llama with ``rows`` rows in its embedding, by default one for each id
    of the tokenizer. Raises ValueError for a model that is no Llama, and for a Qwen2 whose
    tokenizer splits text in another way than Qwen2's, which transformers 5 assumes for every Qwen2.
    """
    entries = llama_config(model.config, rows or shards.metadata.vocab_size)
    family = entries.pop("model_type")
    cuts = json.loads(shards.tokenizer().to_str())["pre_tokenizer"]
    if family == "qwen2" and QWEN_2 not in map(pattern_of, pre_tokenizer_parts(cuts)):
        raise ValueError(
            "qkv_bias: transformers 5 splits the text of every Qwen2 by that model's pattern, "
            "but this tokenizer has another"
        )
    return AutoConfig.for_model(
        family,
        **entries,
        **special_tokens(shards),
        architectures=[f"{family.capitalize()}ForCausalLM"],
        dtype=str(model.embedding.weight.dtype).removeprefix("torch."),
    )


def special_tokens(shards: Shards) -> dict[str, Any]:
    return dict.fromkeys(SPECIAL_TOKENS, shards.metadata.end_of_text)


def write(
    folder: Path,
    config: PreTrainedConfig,
    model: FreeTransformer,
    shards: Shards,
    card: str,
    padding: Mapping[str, Tensor] | None = None,
    ends: Sequence[int] = (),
) -> None:
    """Write a folder. ``padding`` ends embedding and read-out, and is never generated. ``ends`` are
    ids that end a text besides the end of text.
    """
    weights = llama_weights(model, padding=padding)
    never = [*range(shards.metadata.vocab_size, config.vocab_size)]
    write_files(folder, config, weights, tokenizer(shards, model.config.context), card, never, ends)


def write_files(
    folder: Path,
    config: PreTrainedConfig,
    weights: dict[str, Tensor],
    tokens: PreTrainedTokenizerFast,
    card: str,
    never: Sequence[int] = (),
    ends: Sequence[int] = (),
) -> None:
    """Write what the folders of both arms have in common; ids in ``never`` are not generated, those
    in ``ends`` end a text, too.
    """
    config.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copymode(folder / "config.json", folder / "model.safetensors")  # else its owner's alone
    special = {name: getattr(config, name) for name in SPECIAL_TOKENS}
    if ends:
        special["eos_token_id"] = [special["eos_token_id"], *ends]
    settings = GenerationConfig(**SAMPLING, **special, suppress_tokens=[*never] or None)
    settings.save_pretrained(folder)
    tokens.save_pretrained(folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    add_names_of_transformers_4(folder)


def add_names_of_transformers_4(folder: Path) -> None:
    """Add what transformers 4 calls otherwise; each version reads the names that it knows."""
    config = json.loads((folder / "config.json").read_bytes())
    config["torch_dtype"] = config["dtype"]
    # its pipeline sets 0.7, and takes a model's temperature of 1 for one that is not set
    config["task_specific_params"] = {"text-generation": {"temperature": SAMPLING["temperature"]}}
    if rope := config.get("rope_parameters"):
        config["rope_theta"] = rope["rope_theta"]
        scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
        config["rope_scaling"] = None if rope["rope_type"] == "default" else scaling
    tokens = json.loads((folder / "tokenizer_config.json").read_bytes())
    tokens["tokenizer_class"] = "PreTrainedTokenizerFast"
    for name, entries in (("config.json", config), ("tokenizer_config.json", tokens)):
        text = json.dumps(entries, indent=2, sort_keys=True, ensure_ascii=False)
        (folder / name).write_text(f"{text}\n", encoding="utf-8")


def tokenizer(shards: Shards, context: int) -> PreTrainedTokenizerFast:
    """The shards' tokenizer. It begins a text as documents begin, takes special tokens inside a
    text for text, and pads on the left, because decoders continue on the right.
    """
    fast = shards.tokenizer()
    settings: dict[str, Any] = {
        "model_max_length": context,
        "padding_side": "left",
        # transformers 4 would add token_type_ids, which no decoder takes
        "model_input_names": ["input_ids", "attention_mask"],
    }
    if (end := shards.metadata.end_of_text) is None:  # rows, which begin as they do
        return PreTrainedTokenizerFast(tokenizer_object=fast, **settings)
    name = fast.id_to_token(end)
    # by another name in the template, where a space, a colon or a dollar has a meaning
    begin: Any = {"id": "begin", "ids": [end], "tokens": [name]}
    fast.post_processor = TemplateProcessing(
        single="begin $A", pair="begin $A $B", special_tokens=[begin]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=fast,
        **settings,
        **dict.fromkeys(("bos_token", "eos_token", "pad_token"), name),
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )


def modules() -> dict[str, str]:
    """Texts of the adapter and of our modules behind it, by file name, with relative imports."""
    texts: dict[str, str] = {}
    waiting = ["pipelines.export.modeling_free_transformer"]
    while waiting:
        name = waiting.pop()
        spec = find_spec(name)
        assert spec and spec.origin, name
        text = Path(spec.origin).read_text(encoding="utf-8")
        file = f"{name.rpartition('.')[2]}.py"
        texts[file] = OURS.sub(r"\1.\3 import", text)
        waiting += [other for _, other, stem in OURS.findall(text) if f"{stem}.py" not in texts]
    copied = "\n".join(f"from .{file.removesuffix('.py')} import" for file in sorted(texts))
    for reference in AUTO.values():
        texts[f"{reference.partition('.')[0]}.py"] += COPIED.format(copied)
    return texts


def write_free_transformer(
    folder: Path, model: FreeTransformer, shards: Shards, card: str, ends: Sequence[int] = ()
) -> None:
    """Write a folder with the model's code; ``ends`` as in ``write``."""
    weights = {f"model.{name}": tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tied:
        del weights["model.readout.weight"]
    words = tokenizer(shards, model.config.context)
    config = FreeTransformerConfig(
        shards.metadata.vocab_size,
        **asdict(model.config),
        **special_tokens(shards),
        architectures=["FreeTransformerForCausalLM"],
        auto_map=AUTO,
        dtype=str(model.embedding.weight.dtype).removeprefix("torch."),
    )
    write_files(folder, config, weights, words, card, ends=ends)
    for name, text in modules().items():
        (folder / name).write_text(text, encoding="utf-8")
