"""Our decoder as a Llama in Hugging Face's terms, and a Llama as our decoder.

Both compute the same function of the same numbers. Three things differ: names; we keep key and
value, and gate and up, in one matrix; and the order of a head's channels, because RoPE turns our
channels (2 j, 2 j + 1) together, Hugging Face's (j, j + E / 2).

A Llama's embedding and read-out may have more rows than its tokenizer has ids, as in Qwen2. Our
model has only the tokenizer's rows, so no other id is ever predicted. Its probabilities are the
Llama's, renormalised over the tokenizer's ids. The padding rows are passed along separately.

Shapes: D model width, E head width, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ftmodel.config import ModelConfig
from ftmodel.layers import Block
from ftmodel.model.free_transformer import FreeTransformer

ACTIVATIONS = ("silu", "swish")
VOCABULARY = ("model.embed_tokens.weight", "lm_head.weight")  # tensors with a row for each id
NUMBERS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)  # dtypes of weights
ROPE = (  # the entries of rope_parameters, llama3's last
    "rope_type",
    "type",
    "rope_theta",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
)


def in_halves(weight: Tensor, heads: int) -> Tensor:
    """Rows (heads · E, …) of a query or key projection in Hugging Face's order of channels, as a
    view (heads, 2, E / 2, …).
    """
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2)


def to_halves(weight: Tensor, heads: int) -> Tensor:
    """``in_halves`` as a new tensor (heads · E, …)."""
    return in_halves(weight, heads).flatten(0, 2)


def llama_config(config: ModelConfig, vocab_size: int) -> dict[str, Any]:
    """Entries of config.json that fix what a Llama computes; with ``qkv_bias`` a Qwen2, with
    ``qk_norm`` a Qwen3. Raises ValueError for a model that is none of them: with both settings,
    with a latent, a random prefix, or attention within documents.
    """
    if config.latent_bits:
        raise ValueError("a Free Transformer is not a Llama: it has a latent")
    if config.random_prefix:
        raise ValueError("random_prefix: a Llama has no random tokens before a sequence")
    if config.document_mask:
        raise ValueError("document_mask: a Llama cannot keep attention within documents")
    if config.qkv_bias and config.qk_norm:
        raise ValueError(
            "qkv_bias, qk_norm: cannot both be exported; Qwen2 has the first, Qwen3 the second"
        )
    family = "qwen2" if config.qkv_bias else "qwen3" if config.qk_norm else "llama"
    if family == "llama" and config.d_model % config.n_heads:  # transformers insists on it
        raise ValueError(
            f"n_heads: {config.n_heads} does not divide d_model {config.d_model}, as a Llama's must"
        )
    return {
        "model_type": family,
        "vocab_size": vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.ffn_width,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_channels,
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": rope_parameters(config),
        "tie_word_embeddings": config.tied,
        "hidden_act": "silu",
        **({"attention_bias": False, "mlp_bias": False} if family == "llama" else {}),
    }


def rope_parameters(config: ModelConfig) -> dict[str, Any]:
    if config.rope_factor == 1:
        return {"rope_type": "default", "rope_theta": config.rope_theta}
    return {
        "rope_type": "llama3",
        "rope_theta": config.rope_theta,
        "factor": config.rope_factor,
        "low_freq_factor": config.rope_low_freq,
        "high_freq_factor": config.rope_high_freq,
        "original_max_position_embeddings": config.rope_old_context,
    }


def block_views(block: Block, config: ModelConfig, pairs: bool) -> dict[str, Tensor]:
    """A block's parameters by Hugging Face's names, without the layer's prefix."""
    attention = block.attention
    query = attention.query.weight
    key, value = attention.key_value.weight.chunk(2)
    gate, up = block.ffn.gate_up.weight.chunk(2)
    norms = {"q": attention.query_norm, "k": attention.key_norm}  # None without qk_norm
    gains = {f"self_attn.{x}_norm.weight": n.weight for x, n in norms.items() if n is not None}
    more = {name: gain if pairs else in_halves(gain, 1) for name, gain in gains.items()}
    if config.qkv_bias:
        key_bias, value_bias = attention.key_value.bias.chunk(2)
        more |= {
            "self_attn.q_proj.bias": in_halves(attention.query.bias, config.n_heads),
            "self_attn.k_proj.bias": in_halves(key_bias, config.n_kv_heads),
            "self_attn.v_proj.bias": value_bias,
        }
    return more | {
        "input_layernorm.weight": block.attention_norm.weight,
        "self_attn.q_proj.weight": query if pairs else in_halves(query, config.n_heads),
        "self_attn.k_proj.weight": key if pairs else in_halves(key, config.n_kv_heads),
        "self_attn.v_proj.weight": value,
        "self_attn.o_proj.weight": attention.output.weight,
        "post_attention_layernorm.weight": block.ffn_norm.weight,
        "mlp.gate_proj.weight": gate,
        "mlp.up_proj.weight": up,
        "mlp.down_proj.weight": block.ffn.down.weight,
    }


def decoder_views(model: FreeTransformer, pairs: bool = False) -> dict[str, Tensor]:
    """The decoder's parameters by Hugging Face's names, as views, which may be written to; without
    lm_head if it is tied. With ``pairs``, q's and k's channels stay in our order.
    """
    views = {
        "model.embed_tokens.weight": model.embedding.weight,
        "model.norm.weight": model.norm.weight,
    }
    if not model.config.tied:
        views["lm_head.weight"] = model.readout.weight
    for i, block in enumerate(model.blocks):
        assert isinstance(block, Block), "a module around a block hides its weights"
        for name, view in block_views(block, model.config, pairs).items():
            views[f"model.layers.{i}.{name}"] = view
    return views


@torch.no_grad()
def llama_weights(
    model: FreeTransformer, pairs: bool = False, padding: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """The decoder's tensors by Hugging Face's names, contiguous; without lm_head if it is tied.
    With ``pairs``, q's and k's channels stay in our order, which is llama.cpp's. ``padding`` holds
    rows to append, as ``load_llama`` returned them.
    """
    views = decoder_views(model, pairs)
    weights = {k: view.flatten(0, 2) if view.dim() > 2 else view for k, view in views.items()}
    for name, rows in (padding or {}).items():
        weights[name] = torch.cat((weights[name], rows.to(weights[name])))
    return {name: weight.detach().contiguous() for name, weight in weights.items()}


def entry(
    config: Mapping[str, Any], name: str, kind: type, default: Any = None, null: bool = False
) -> Any:
    """Read an entry of config.json that must be a ``kind`` (int, float, bool or dict). ``default``
    replaces a missing entry, and with ``null`` a null. Raises ValueError that names the entry.
    """
    value = config.get(name)
    if value is None and default is not None and (null or name not in config):
        return default
    kinds = (int, float) if kind is float else kind
    if not isinstance(value, kinds) or isinstance(value, bool) != (kind is bool):
        wanted = {int: "a whole number", float: "a number", bool: "true or false"}
        found = repr(value) if name in config else "missing"
        raise ValueError(f"{name}: {found}, expected {wanted.get(kind, 'a mapping')}")
    return value


def our_config(config: Mapping[str, Any]) -> ModelConfig:
    """The architecture that ``config``, the config.json of a Llama, describes. Raises ValueError,
    naming the entry, if it is missing, has the wrong type, or asks for what our decoder does not
    compute.
    """

    def refuse(name: str, wanted: object) -> None:
        raise ValueError(f"{name}: {config.get(name)!r}, but our decoder has {wanted}")

    kind = config.get("model_type")
    if kind not in ("llama", "qwen2", "qwen3"):
        refuse("model_type", "that of a llama, qwen2 or qwen3")
    for name in ("attention_bias", "mlp_bias"):
        if config.get(name, False):
            refuse(name, "no biases but those of Qwen2")
    if config.get("use_sliding_window", False):
        refuse("use_sliding_window", "attention to all positions")
    if config.get("hidden_act", "silu") not in ACTIVATIONS:
        refuse("hidden_act", "silu")
    key = "rope_scaling" if config.get("rope_parameters") is None else "rope_parameters"
    rope = entry(config, key, dict, {}, null=True)
    rotation = rope.get("rope_type", rope.get("type", "default"))
    if rotation not in ("default", "llama3"):
        raise ValueError(f"rope_type: {rotation!r}, but our decoder has plain RoPE or llama3's")
    if unknown := sorted(rope.keys() - {*ROPE}):
        raise ValueError(f"{key}.{unknown[0]}: {rope[unknown[0]]!r}, unknown to our decoder")
    scaling: dict[str, Any] = {}
    if rotation == "llama3":
        scaling = {
            "rope_factor": entry(rope, "factor", float),
            "rope_low_freq": entry(rope, "low_freq_factor", float),
            "rope_high_freq": entry(rope, "high_freq_factor", float),
            "rope_old_context": entry(rope, "original_max_position_embeddings", int),
        }
    heads, width = (entry(config, key, int) for key in ("num_attention_heads", "hidden_size"))
    head_width = None
    if kind == "qwen3" or config.get("head_dim") is not None:
        head_width = entry(config, "head_dim", int)
    if head_width and head_width * heads == width:
        head_width = None
    ours = ModelConfig(
        n_layers=entry(config, "num_hidden_layers", int),
        d_model=width,
        n_heads=heads,
        n_kv_heads=entry(config, "num_key_value_heads", int, heads, null=True),
        head_width=head_width,
        ffn_width=entry(config, "intermediate_size", int),
        context=entry(config, "max_position_embeddings", int),
        tied=entry(config, "tie_word_embeddings", bool, False),
        rope_theta=entry(rope if "rope_theta" in rope else config, "rope_theta", float, 10000.0),
        norm_eps=entry(config, "rms_norm_eps", float),
        qkv_bias=kind == "qwen2",
        qk_norm=kind == "qwen3",
        **scaling,
    )
    ours.validate()
    return ours


@torch.no_grad()
def load_llama(
    model: FreeTransformer, weights: Mapping[str, Tensor], rows: int | None = None
) -> dict[str, Tensor]:
    """Copy a Llama's weights, by Hugging Face's names, into the decoder of ``model``; a latent
    stays as it is. The vocabulary's tensors have ``rows`` rows, by default V. Returns their padding
    rows, from V on.

    Raises ValueError, naming the tensor, if it is missing or left over, has another shape, does not
    hold floating-point numbers of 16 bits or more, or is not finite. Then nothing is copied.
    """
    config, ids = model.config, model.embedding.num_embeddings
    with torch.device("meta"):  # names and shapes
        expected = llama_weights(FreeTransformer(config, ids))
    names = {name for name in weights if not name.endswith("rotary_emb.inv_freq")}
    for name, ours in expected.items():
        if name not in names:
            raise ValueError(f"{name}: is missing")
        theirs, shape = weights[name], tuple(ours.shape)
        if name in VOCABULARY:
            shape = rows or ids, *shape[1:]
        if theirs.shape != shape:
            raise ValueError(f"{name}: {tuple(theirs.shape)}, expected {shape}")
        if theirs.dtype not in NUMBERS:
            dtype = str(theirs.dtype).removeprefix("torch.")
            raise ValueError(f"{name}: {dtype}, not bfloat16, float16, float32 or float64")
        if not torch.stack(theirs.aminmax()).isfinite().all():  # without a copy of its size
            raise ValueError(f"{name}: has values that are not finite")
    if config.tied and "lm_head.weight" in names:  # some files store it anyway
        names.remove("lm_head.weight")
        readout, embedding = weights["lm_head.weight"], weights["model.embed_tokens.weight"]
        if readout.dtype not in NUMBERS or not torch.equal(readout, embedding):
            raise ValueError("lm_head.weight: differs from the embedding that it is tied to")
    if left := sorted(names - expected.keys()):
        more = f", and {len(left) - 1} more" if left[1:] else ""
        raise ValueError(f"{left[0]}: unknown{more}")
    vocabulary = {name: weights[name] for name in VOCABULARY if name in expected}
    for name, view in decoder_views(model).items():
        weight = weights[name][:ids] if name in vocabulary else weights[name]
        view.copy_(weight.reshape(view.shape))
    return {name: tensor[ids:].clone() for name, tensor in vocabulary.items() if len(tensor) > ids}


def decoder_of(
    config: Mapping[str, Any], weights: Mapping[str, Tensor], **changes: Any
) -> FreeTransformer:
    """Make a model whose decoder is this Llama; ``changes`` set fields of its ModelConfig."""
    model = FreeTransformer(
        replace(our_config(config), **changes), entry(config, "vocab_size", int)
    )
    load_llama(model, weights)
    return model
