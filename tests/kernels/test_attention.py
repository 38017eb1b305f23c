"""The precision of attention under autocast."""

import torch
from torch import nn
from torch.nn import functional as F

from ftmodel.kernels.attention import attend
from ftmodel.kernels.product import Linear
from ftmodel.layers import Attention, use_kernels


def test_without_autocast_attention_keeps_its_precision(rng):
    q, k, v = (torch.randn(2, 3, 5, 8, generator=rng).double() for _ in range(3))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.equal(attend(q, k, v, is_causal=True), expected)


def test_every_attention_of_a_model_is_replaced_and_every_linear_layer(make_model):
    model = use_kernels(make_model(latent={"inject": "memory"}))
    layers = [m for m in model.modules() if isinstance(m, Attention)]
    assert len(layers) == 5 and all(layer.attend is attend for layer in layers)
    assert all(type(m) is Linear for m in model.modules() if isinstance(m, nn.Linear))
    assert not any(hasattr(block, "attend") for block in model.blocks)


def test_attention_is_trained_in_float32_under_autocast_on_a_cpu(rng):
    """Neither it nor its gradients are rounded; without gradients it is bf16, as autocast says."""
    q, k, v = (torch.randn(2, 3, 5, 8, generator=rng, requires_grad=True) for _ in range(3))

    def outcome():
        y = attend(q, k, v, is_causal=True)
        return [y, *torch.autograd.grad(y.square().sum(), (q, k, v))]

    exact = outcome()
    with torch.autocast("cpu", torch.bfloat16):
        half = outcome()
        with torch.no_grad():
            assert attend(q, k, v, is_causal=True).dtype == torch.bfloat16
    torch.testing.assert_close(half, exact)
