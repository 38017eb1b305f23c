"""Decoding by oneDNN's products and by weights in bfloat16, against the model's forward pass."""

from statistics import fmean

import pytest
import torch

from ftmodel.cache import new_cache
from ftmodel.inference import decoder
from ftmodel.inference.decoder import (
    FastDecoder,
    Matrix,
    PlainDecoder,
    RoundedMatrix,
    RoundedWeights,
    bf16_products,
    make_decoder,
    matrix,
)
from ftmodel.inference.generate import generate
from ftmodel.inference.passes import with_codes
from ftmodel.kernels import product
from tests.support.mutants import rejects
from tests.support.passes import given_codes, pinned

needs_bf16 = pytest.mark.skipif(not bf16_products(), reason="this CPU does not multiply bfloat16")


@pytest.fixture
def everything_rounded(monkeypatch):
    monkeypatch.setattr(decoder, "LEAST_ROUNDED", 0)


@rejects("Matrix.add_times: «add_→copy_»", "products that replace what they are added to")
@pytest.mark.parametrize("kind", ["as it is", "rounded"])
@torch.inference_mode()
def test_products_are_written_and_added_where_they_belong(rng, monkeypatch, kind):
    if not torch.backends.mkldnn.is_available() or (kind == "rounded" and not bf16_products()):
        pytest.skip("a PyTorch without oneDNN, or a CPU that does not multiply bfloat16")
    monkeypatch.setattr(product, "ONEDNN", True)
    monkeypatch.setattr(decoder, "MIN_MULTIPLICATIONS", 0)
    weight, x = torch.randn(64, 32, generator=rng), torch.randn(3, 32, generator=rng)
    expected = x @ weight.t()
    close = {"atol": 0.15, "rtol": 0.02} if kind == "rounded" else {"atol": 1e-4, "rtol": 1e-5}
    w = Matrix(weight, 3)
    if kind == "rounded":
        w = RoundedMatrix(torch.ops.mkldnn._reorder_linear_weight(weight.bfloat16()))
    torch.testing.assert_close(w.times(x), expected, **close)
    out, wide = torch.empty(3, 64), torch.zeros(3, 100)
    assert w.times(x, out=out) is out
    torch.testing.assert_close(out, expected, **close)
    w.times(x, out=wide[:, 10:74])
    torch.testing.assert_close(wide[:, 10:74], expected, **close)
    assert not wide[:, :10].any() and not wide[:, 74:].any()
    w.add_times(x, to=out)
    torch.testing.assert_close(out, 2 * expected, **close)


def test_small_products_are_left_to_pytorch(monkeypatch):
    """A call of oneDNN costs more than they do."""
    monkeypatch.setattr(product, "ONEDNN", True)
    assert not Matrix(torch.ones(512, 512), 3).onednn
    assert Matrix(torch.ones(512, 512), 4).onednn
    monkeypatch.setattr(product, "ONEDNN", False)
    assert not Matrix(torch.ones(512, 512), 64).onednn


@needs_bf16
@pytest.mark.parametrize("bits", [0, 3], ids=["baseline", "latent"])
@torch.inference_mode()
def test_rounded_weights_move_predictions_by_a_hundredth(make_model, rng, everything_rounded, bits):
    """Logits by 0.02 of their standard deviation, next-token distributions by 1e-3 nats, in the
    mean over tokens.
    """
    model, tokens = make_model(latent_bits=bits), torch.randint(11, (3, 12), generator=rng)
    codes = torch.randint(8, (3, 12), generator=rng)
    caches = new_cache(model.config, 12), new_cache(model.config, 12)
    for cache in caches:
        given_codes(model, tokens[:, :4], codes[:, :4] if bits else None, cache=cache)
    fast = FastDecoder(model, caches[0], rounded=RoundedWeights(model))
    plain, differences, divergences = PlainDecoder(model, caches[1]), [], []
    for token, z in zip(tokens[:, 4:].T, codes[:, 4:].T, strict=True):
        read = [each.read(token, pinned(z, 3) if bits else None) for each in (fast, plain)]
        got, expected = fast.logits(read[0]), plain.logits(read[1])
        differences.append((got - expected).square().mean().sqrt() / expected.std())
        p, q = expected.log_softmax(-1), got.log_softmax(-1)
        divergences.append((p.exp() * (p - q)).sum(-1).mean())
    assert 1e-4 < fmean(differences) < 0.02
    assert fmean(divergences) < 1e-3


@needs_bf16
def test_matrices_from_2_to_the_18_elements_on_are_rounded(make_model):
    """Those of attention, 512 x 512 all; the larger one of SwiGLU has 510 x 512."""
    model = make_model(n_layers=2, d_model=512, ffn_width=255)
    rounded, named = RoundedWeights(model), dict(model.named_parameters())
    of = "query", "key_value", "output"
    large = {f"blocks.{n}.attention.{layer}.weight" for n in range(2) for layer in of}
    assert {name for name, weight in named.items() if weight in rounded.packed} == large
    for name, weight in named.items():
        if weight.dim() > 2:  # the encoder's query
            continue
        assert type(matrix(weight, 3, rounded)) is (RoundedMatrix if name in large else Matrix)


@needs_bf16
def test_rounded_weights_generate(make_model, make_tokens, everything_rounded):
    """At temperature 0 nearly always the same tokens; ``until`` leaves rows out."""
    model, prompt = make_model(), make_tokens(16, 4)
    rounded = RoundedWeights(model)

    def continued(**arguments):
        rng = torch.Generator().manual_seed(5)
        return generate(model, prompt, 8, generator=rng, temperature=0, **arguments)

    exact, got = continued(), continued(rounded=rounded)
    assert got.shape == exact.shape and (got == exact).float().mean() > 0.8

    def until(new):
        return torch.arange(16) < (8 if new.shape[1] < 4 else 16)

    ended = continued(rounded=rounded, until=until)
    assert torch.equal(ended[8:, :8], got[8:, :8])


@needs_bf16
def test_rounded_weights_of_another_model_or_for_another_decoder(make_model, everything_rounded):
    model, other = make_model(), make_model()
    cache, zeros = new_cache(model.config, 12), torch.zeros(1, 4, dtype=torch.long)
    with_codes(model, zeros, zeros, cache=cache)
    rounded = RoundedWeights(model)
    assert isinstance(make_decoder(model, cache, rounded=rounded), FastDecoder)
    with pytest.raises(ValueError, match="of the same model"):
        make_decoder(other, cache, rounded=rounded)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="in float32"):
        make_decoder(model, cache, rounded=rounded)


@pytest.mark.parametrize("flag", ["avx512_bf16", "amx_bf16", "avx512_f"])
def test_which_processors_multiply_bf16(monkeypatch, flag):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {flag: True})
    assert bf16_products() == (flag != "avx512_f")


def test_a_processor_that_does_not_multiply_bf16_is_named(make_model, monkeypatch):
    monkeypatch.setattr(decoder, "bf16_products", lambda: False)
    with pytest.raises(ValueError, match="AVX512-BF16 or AMX"):
        RoundedWeights(make_model())
