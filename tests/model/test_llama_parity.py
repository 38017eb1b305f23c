"""The baseline is Llama: logits against Hugging Face's."""

import pytest
import torch

from tests.support.hugging_face import to_hugging_face
from tests.support.mutants import rejects


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
    torch.testing.assert_close(logits, expected, atol=5e-5, rtol=1e-5)


@rejects(
    "model/layers.py",
    "(a * cos - b * sin, a * sin + b * cos)",
    "(a * cos + b * sin, b * cos - a * sin)",
    "compiled RoPE turning the other way",
)
@rejects(
    "model/layers.py", "view_as_real(rope", "view_as_real(rope**2", "compiled RoPE turning too far"
)
@torch.no_grad()
def test_compiled_blocks_turn_queries_and_keys_as_llamas_do(make_model, make_tokens):
    """Compiled, RoPE has no complex numbers; traced as for inductor, but run at once."""
    model = make_model(latent_bits=0, n_kv_heads=2, rope_theta=50.0)
    tokens = make_tokens(2, 16)
    expected = to_hugging_face(model)(tokens).logits
    for block in model.blocks:
        block.compile(backend="aot_eager")
    torch.testing.assert_close(model.logits(model(tokens).hidden), expected, atol=5e-5, rtol=1e-5)
