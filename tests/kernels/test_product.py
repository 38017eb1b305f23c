"""Products by oneDNN against PyTorch's own."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from ftmodel.config import ModelConfig
from ftmodel.kernels import product as products
from ftmodel.kernels.product import Linear, product, slow_mkl, weight_gradient
from ftmodel.layers import use_kernels
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import training_loss


@pytest.fixture
def calls(monkeypatch):
    """Shapes of the factors that oneDNN multiplies, which here are all float32 ones."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("a PyTorch without oneDNN")
    monkeypatch.setattr(products, "ONEDNN", True)
    monkeypatch.setattr(products, "MIN_MULTIPLICATIONS", 0)
    shapes, multiply = [], torch.ops.mkldnn._linear_pointwise

    def record(a, b, *rest):
        shapes.append((tuple(a.shape), tuple(b.shape)))
        return multiply(a, b, *rest)

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", record)
    return shapes


def test_the_smaller_factor_is_copied(rng, calls):
    for grad, x, first in (((9, 2), (9, 5), (2, 9)), ((9, 5), (9, 2), (2, 9))):
        grad, x = torch.randn(*grad, generator=rng), torch.randn(*x, generator=rng)
        torch.testing.assert_close(weight_gradient(grad, x), grad.t() @ x)
        assert calls.pop()[0] == first


def test_a_frozen_input_or_matrix_costs_no_product(rng, calls):
    layer, x = Linear(3, 4), torch.randn(5, 3, generator=rng)
    y = layer(x)
    torch.testing.assert_close(y, x @ layer.weight.t() + layer.bias)
    y.sum().backward()
    assert len(calls) == 2
    layer.weight.requires_grad_(False)
    layer(x.requires_grad_()).sum().backward()
    assert len(calls) == 4


def test_other_types_and_small_products_are_multiplied_by_pytorch(calls, monkeypatch):
    a = torch.ones(2, 3)
    product(a.double(), a.double())
    product(a.bfloat16(), a.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert Linear(3, 2)(a).dtype == torch.bfloat16
    monkeypatch.setattr(products, "MIN_MULTIPLICATIONS", 24)
    product(a, torch.ones(3, 3))
    buffer = torch.empty(2, 2)
    assert product(a, a, buffer).data_ptr() == buffer.data_ptr()
    assert product(a[None], a).shape == (1, 2, 2)
    assert not calls
    product(a, torch.ones(4, 3))
    assert len(calls) == 1


def test_products_from_2_to_the_24_multiply_adds_on_are_by_onednn(monkeypatch):
    monkeypatch.setattr(products, "ONEDNN", True)
    a, b = torch.empty(1 << 12, 1 << 6), torch.empty(1 << 6, 1 << 6)
    assert products.suits(a, b) and not products.suits(a, b[1:])


@pytest.mark.parametrize(
    ("name", "avx512", "slow"),
    [("AMD EPYC", True, True), ("AMD EPYC", False, False), ("Intel Xeon", True, False)],
)
def test_onednn_is_for_processors_that_mkl_neglects(monkeypatch, name, avx512, slow):
    known = {"cpu_name": name, "avx512_f": avx512}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known)
    assert slow_mkl() is slow
    known.clear()
    assert not slow_mkl()


def gradients(model):
    rng = torch.Generator().manual_seed(1)
    tokens, noise = torch.randint(11, (4, 9), generator=rng), torch.rand(4, 8, 3, generator=rng)
    loss = training_loss(model, tokens[:, :-1], tokens[:, 1:], noise, 0.1).total
    return loss, *torch.autograd.grad(loss, list(model.parameters()))


def model():
    torch.manual_seed(0)
    return use_kernels(FreeTransformer(ModelConfig(2, 16, 2, 1, 24, 8, latent_bits=3), 11))


def products_in(model):
    """The model's gradients, and how many products by oneDNN they took."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        result = gradients(model)
    events = profiler.key_averages()
    return result, sum(e.count for e in events if e.key == "ftmodel::onednn_product")


def test_the_gradients_of_a_model_are_those_of_pytorch_and_compiled_blocks_multiply_alike(
    monkeypatch,
):
    """Traced as for inductor, but run at once."""
    expected, none = products_in(model())
    monkeypatch.setattr(products, "ONEDNN", torch.backends.mkldnn.is_available())
    monkeypatch.setattr(products, "MIN_MULTIPLICATIONS", 0)
    compiled = model()
    compiled.blocks[0].ffn.compile(backend="aot_eager")
    gradients(compiled)
    (traced, count), (actual, plain) = products_in(compiled), products_in(model())
    for found in (traced, actual):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
    assert none == 0 and count == plain and (plain > 30) == products.ONEDNN
