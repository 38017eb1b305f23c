"""A baseline as a GGUF file, which llama.cpp and the programs around it take for a Llama.

llama.cpp knows only by name the patterns by which a tokenizer splits text before it merges bytes
(``tokenizer.ggml.pre``, src/llama-vocab.cpp), so a tokenizer that splits otherwise is refused.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import (
    MODEL_ARCH,
    GGUFValueType,
    GGUFWriter,
    LlamaFileType,
    TokenType,
    get_tensor_name_map,
)
from torch import Tensor

from ftmodel.conversion.llama import llama_weights
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.tokens.byte_tokenizer import spelled
from pipelines.artifacts.tokens.shards import Shards
from pipelines.tokenize.vocabulary import pre_tokenizer_parts

DIGIT = r"\p{N}"
GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_2 = LLAMA_3.replace(r"\p{N}{1,3}", DIGIT)
# Names by patterns and ignore_merges. "trillion" has GPT-2's pattern; so has "gpt-2", but under
# that name llama.cpp removes spaces when it decodes: "a , b" comes back as "a, b".
PRE_TOKENIZERS = {
    ((GPT_2,), False): "trillion",
    ((DIGIT, GPT_2), False): "smollm",
    ((QWEN_2,), False): "qwen2",
    ((LLAMA_3,), False): "dbrx",
    ((LLAMA_3,), True): "llama-bpe",
}


@dataclass
class Vocabulary:
    """The entries of ``tokenizer.ggml``; ``begin`` is the token before a text."""

    pre: str
    tokens: list[str]
    types: list[TokenType]
    merges: list[str]
    begin: int


def vocabulary(shards: Shards, rows: int | None = None) -> Vocabulary:
    """The vocabulary, padded to ``rows`` tokens; raises ValueError if llama.cpp lacks it."""
    begin = shards.metadata.end_of_text
    if begin is None:
        raise ValueError(
            "its tokens are symbols of a process, but a GGUF file needs a text tokenizer"
        )
    spec = json.loads(shards.tokenizer().to_str())
    model = spec["model"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    if not merges:
        raise ValueError("its tokenizer has no merges, which llama.cpp needs")
    count = rows or shards.metadata.vocab_size
    tokens = [f"[PAD{i}]" for i in range(count)]  # ids may be left out
    types = [TokenType.UNUSED] * len(tokens)
    for token, i in model["vocab"].items():
        tokens[i] = token
        types[i] = TokenType.UNUSED if spelled(token) is None else TokenType.NORMAL
    for added in spec["added_tokens"]:
        if added["single_word"]:
            raise ValueError(
                f"its tokenizer takes {added['content']!r} for a token only as a whole word, "
                "which llama.cpp cannot do"
            )
        tokens[added["id"]] = added["content"]
        types[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    return Vocabulary(pre_tokenizer(spec), tokens, types, merges, begin)


def pre_tokenizer(spec: Mapping[str, Any]) -> str:
    """llama.cpp's name for the way in which a tokenizer.json splits text; raises ValueError."""
    parts = pre_tokenizer_parts(spec["pre_tokenizer"])
    patterns = tuple(pattern for part in parts if (pattern := pattern_of(part)))
    ignore_merges = spec["model"]["ignore_merges"]
    if parts and parts[-1]["type"] == "ByteLevel" and (patterns, ignore_merges) in PRE_TOKENIZERS:
        return PRE_TOKENIZERS[patterns, ignore_merges]
    raise ValueError(
        "llama.cpp has no name for the way its tokenizer splits text: "
        f"{' and then '.join(patterns) or 'not at all'}, ignore_merges {ignore_merges}"
    )


def pattern_of(part: Mapping[str, Any]) -> str:
    """The pattern by whose matches a pre-tokenizer splits text; "" if it splits nothing."""
    match part:
        case {"type": "ByteLevel", "use_regex": cuts}:
            return GPT_2 if cuts else ""
        case {"type": "Digits", "individual_digits": True}:
            return DIGIT
        case {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated"}:
            if not part["invert"]:
                return regex
    return json.dumps(part)


def provenance(manifest: Manifest, tokens: int) -> dict[str, str | int]:
    """Entries of ``general``: what a model at ``tokens`` of its training is, and comes from."""
    name = f"{manifest.experiment}/{manifest.run_name}"
    return {
        "name": name,
        "description": f"Baseline {name} of free-transformer-lab, {tokens} tokens",
        "experiment": manifest.experiment,
        "run": manifest.run_name,
        "trained_tokens": tokens,
        "seed": manifest.run["seed"],
        "data": manifest.run["data"],
        "data_hash": manifest.data_hash,
        "spec_hash": manifest.spec_hash,
        "git_revision": manifest.git_revision or "not recorded",
        "device": manifest.device or "not recorded",
    }


def write(
    path: Path,
    model: FreeTransformer,
    config: Mapping[str, Any],
    words: Vocabulary,
    about: Mapping[str, str | int],
    padding: Mapping[str, Tensor] | None = None,
    ends: Sequence[int] = (),
) -> None:
    """Write float32 weights; ``config`` is llama_config's, ``padding`` the last vocabulary rows,
    and the first of ``ends`` a token that ends a turn.
    """
    writer = GGUFWriter(path, "llama")
    for key, value in about.items():
        kind = GGUFValueType.STRING if isinstance(value, str) else GGUFValueType.UINT64
        writer.add_key_value(f"general.{key}", value, kind)
    writer.add_type("model")
    writer.add_file_type(LlamaFileType.ALL_F32)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(words.pre)
    writer.add_token_list(words.tokens)
    writer.add_token_types(words.types)
    writer.add_token_merges(words.merges)
    writer.add_bos_token_id(words.begin)
    writer.add_eos_token_id(words.begin)
    writer.add_pad_token_id(words.begin)
    if ends:
        writer.add_eot_token_id(ends[0])
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, weight in llama_weights(model, pairs=True, padding=padding).items():
        known = names.get_name(name, (".weight",))
        assert known, name
        writer.add_tensor(known, weight.float().numpy())
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
