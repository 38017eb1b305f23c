"""The baseline is Llama: logits against Hugging Face's, sizes against the paper's presets."""

import pytest
import torch

from ftmodel.model.config import ModelConfig
from ftmodel.model.transformer import FreeTransformer
from tests.support.hugging_face import to_hugging_face
from tests.support.mutants import rejects

PRESETS = {
    "1.5B": ModelConfig(28, 1536, 12, 2, 8960, context=4096, tied=True),
    "8B": ModelConfig(32, 4096, 32, 8, 14336, context=4096, tied=False),
}


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
