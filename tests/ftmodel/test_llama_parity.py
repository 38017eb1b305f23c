"""The baseline is Llama: logits against Hugging Face's, sizes against the paper's presets."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ftmodel.config import ModelConfig
from ftmodel.transformer import FreeTransformer

PRESETS = {
    "1.5B": ModelConfig(28, 1536, 12, 2, 8960, context=4096, tied=True),
    "8B": ModelConfig(32, 4096, 32, 8, 14336, context=4096, tied=False),
}


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


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1], ids=["MHA", "GQA", "MQA"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@torch.no_grad()
def test_baseline_logits_equal_hugging_face_llama(make_model, make_tokens, n_kv_heads, tied):
    """An odd depth, θ and ε other than the defaults: each must be used, not assumed."""
    model = make_model(
        latent_bits=0, n_layers=3, n_kv_heads=n_kv_heads, tied=tied, rope_theta=50.0, norm_eps=1e-2
    )
    tokens = make_tokens(2, 16)
    logits = model.logits(model(tokens).hidden)
    expected = to_hugging_face(model)(tokens).logits
    assert expected.std() > 0.5, "logits this small would compare nothing"
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def count_on_meta(config):
    with torch.device("meta"):
        return sum(p.numel() for p in FreeTransformer(config, 131072).parameters())


@pytest.mark.parametrize(("preset", "published"), [("1.5B", 1.51e9), ("8B", 8.05e9)])
def test_presets_have_the_papers_number_of_parameters(preset, published):
    assert count_on_meta(PRESETS[preset]) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_latent_adds_one_block_and_its_table(preset):
    """The encoder is one block, its norm and read-out, ζ; the post-sampler is a (2^16, D) table."""
    base = PRESETS[preset]
    d, f = base.d_model, base.ffn_width
    kv = d * base.n_kv_heads // base.n_heads
    block = 2 * d * d + 2 * kv * d + 3 * d * f + 2 * d
    added = block + d + 16 * d + d + 2**16 * d
    latent = ModelConfig(**(vars(base) | {"latent_bits": 16}))
    assert count_on_meta(latent) - count_on_meta(base) == added
