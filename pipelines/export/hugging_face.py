"""A baseline as a folder that transformers, vLLM and lm_eval take for a Llama."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import (
    AutoConfig,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

from ftmodel.conversion.llama import llama_config, llama_weights
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.tokens.shards import Shards

# what this project samples from; transformers' own default keeps the 50 most probable tokens only
SAMPLING = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}


def configuration(
    model: FreeTransformer, shards: Shards, rows: int | None = None
) -> PreTrainedConfig:
    """Of a Llama with so many ``rows`` in its embedding, by default as many as the tokenizer has
    ids; raises ValueError for a model that is none.
    """
    entries = llama_config(model.config, rows or shards.metadata.vocab_size)
    family = entries.pop("model_type")
    return AutoConfig.for_model(
        family,
        **entries,
        **special_tokens(shards),
        architectures=[f"{family.capitalize()}ForCausalLM"],
        dtype=str(model.embedding.weight.dtype).removeprefix("torch."),
    )


def special_tokens(shards: Shards) -> dict[str, Any]:
    return dict.fromkeys(
        ("bos_token_id", "eos_token_id", "pad_token_id"), shards.metadata.end_of_text
    )


def write(
    folder: Path,
    config: PreTrainedConfig,
    model: FreeTransformer,
    shards: Shards,
    card: str,
    padding: Mapping[str, Tensor] | None = None,
) -> None:
    """``padding``: rows for the end of the embedding and the read-out, which `generate` then never
    predicts.
    """
    config.save_pretrained(folder)
    weights = llama_weights(model, padding=padding)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    never = [*range(shards.metadata.vocab_size, config.vocab_size)] or None
    settings = GenerationConfig(**SAMPLING, **special_tokens(shards), suppress_tokens=never)
    settings.save_pretrained(folder)
    tokenizer(shards, model.config.context).save_pretrained(folder)
    (folder / "README.md").write_text(card, encoding="utf-8")


def tokenizer(shards: Shards, context: int) -> PreTrainedTokenizerFast:
    """That of the shards, which begins a text with the token that documents begin with; what looks
    like a special token in a text is text. It pads on the left, as decoders go on from there.
    """
    fast = shards.tokenizer()
    settings: dict[str, Any] = {"model_max_length": context, "padding_side": "left"}
    if (end := shards.metadata.end_of_text) is None:  # rows, which begin as they do
        return PreTrainedTokenizerFast(tokenizer_object=fast, **settings)
    return PreTrainedTokenizerFast(
        tokenizer_object=starting(fast, end),
        **settings,
        **dict.fromkeys(("bos_token", "eos_token", "pad_token"), fast.id_to_token(end)),
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )


def starting(fast: Tokenizer, token: int) -> Tokenizer:
    """The tokenizer, putting a token before every text."""
    name = fast.id_to_token(token)
    fast.post_processor = TemplateProcessing(
        single=f"{name} $A", pair=f"{name} $A $B", special_tokens=[(name, token)]
    )
    return fast
