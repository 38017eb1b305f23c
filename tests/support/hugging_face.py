"""Our baseline as Hugging Face's Llama, an outside reference for it."""

from transformers import LlamaConfig, LlamaForCausalLM


def halves_order(weight, heads):
    """Rows of a query or key projection, from neighbouring pairs to HF's pairs (j, j + E/2)."""
    rows = weight.unflatten(0, (heads, -1, 2))  # (heads, E / 2, 2, D)
    return rows.transpose(1, 2).flatten(0, 2)


def to_hugging_face(model):
    """HF's Llama with the weights of our baseline."""
    c = model.config
    reference = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=model.embedding.num_embeddings,
            hidden_size=c.d_model,
            intermediate_size=c.ffn_width,
            num_hidden_layers=c.n_layers,
            num_attention_heads=c.n_heads,
            num_key_value_heads=c.n_kv_heads,
            max_position_embeddings=c.context,
            rms_norm_eps=c.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
            tie_word_embeddings=c.tied,
            attn_implementation="eager",
        )
    )
    weights = {
        "model.embed_tokens.weight": model.embedding.weight,
        "model.norm.weight": model.norm.weight,
        "lm_head.weight": model.readout.weight,
    }
    for i, block in enumerate(model.blocks):
        key, value = block.attention.key_value.weight.chunk(2)
        gate, up = block.ffn.gate_up.weight.chunk(2)
        parts = {
            "input_layernorm": block.attention_norm.weight,
            "self_attn.q_proj": halves_order(block.attention.query.weight, c.n_heads),
            "self_attn.k_proj": halves_order(key, c.n_kv_heads),
            "self_attn.v_proj": value,
            "self_attn.o_proj": block.attention.output.weight,
            "post_attention_layernorm": block.ffn_norm.weight,
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": block.ffn.down.weight,
        }
        weights |= {f"model.layers.{i}.{name}.weight": w for name, w in parts.items()}
    reference.load_state_dict(weights, strict=True)
    return reference.eval()
