"""The chunked cross-entropy against torch's own, which stores all logits."""

import pytest
import torch
from torch.nn import functional as F

from ftmodel.kernels import cross_entropy, product
from ftmodel.kernels.cross_entropy import linear_cross_entropy
from tests.support.mutants import rejects


def case(dtype=torch.float32, n=37, d=16, v=101):
    """Hidden states, the read-out's matrix, and targets."""
    g = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(n, d, generator=g), torch.randn(v, d, generator=g)
    targets = torch.randint(v, (n,), generator=g)
    return hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), targets


def value_and_gradients(loss, *given, scale=1.0, half=False, device="cpu"):
    """Of ``case``, or of tensors like it; all three on the CPU."""
    hidden, weight, targets = (x.detach().to(device) for x in given)
    learned = hidden.requires_grad_(), weight.requires_grad_()
    with torch.autocast(device, torch.bfloat16, enabled=half):
        value = loss(hidden, weight, targets)
    return value.detach().cpu(), *(x.cpu() for x in torch.autograd.grad(value * scale, learned))


@pytest.fixture(params=[1, 8, 37, 512], autouse=True)
def rows(request, monkeypatch):
    """Chunks of one token, some that do not divide their number, exactly all, and more."""
    monkeypatch.setattr(cross_entropy, "CHUNK_ELEMENTS", 1)
    monkeypatch.setattr(cross_entropy, "LEAST_ROWS", request.param)


@rejects("LinearCrossEntropy.backward: = «grad→1»", "a gradient without the scale of a micro-batch")
@rejects(
    "LinearCrossEntropy.forward: grad_weight «+→»", "oneDNN's gradient of the last chunk alone"
)
@pytest.mark.parametrize(
    ("dtype", "scale", "onednn", "rtol", "atol"),
    [
        (torch.float64, 1.0, False, 1e-13, 1e-14),
        (torch.float64, 0.25, False, 1e-13, 1e-14),
        (torch.float32, 1.0, False, 1e-5, 1e-6),  # in one pass as exact as torch's
        (torch.float32, 1.0, True, 1e-5, 1e-6),
    ],
    ids=["float64", "a micro-batch", "float32", "by oneDNN"],
)
def test_value_and_gradients_are_torchs(monkeypatch, dtype, scale, onednn, rtol, atol):
    monkeypatch.setattr(product, "ONEDNN", onednn and torch.backends.mkldnn.is_available())
    monkeypatch.setattr(product, "MIN_MULTIPLICATIONS", 0)
    computed = value_and_gradients(linear_cross_entropy, *case(dtype), scale=scale)
    exact = value_and_gradients(F.linear_cross_entropy, *case(torch.float64), scale=scale)
    for a, b in zip(computed, exact, strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), b, rtol=rtol, atol=atol)


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request):
    return request.getfixturevalue("gpu") if request.param == "gpu" else "cpu"


@rejects("LinearCrossEntropy.forward: «torch.float32→dtype»", "a softmax in bf16", case="512-cpu")
def test_under_autocast_products_are_bf16_and_the_loss_is_not(device):
    given = case(n=400)
    computed = value_and_gradients(linear_cross_entropy, *given, half=True, device=device)
    expected = value_and_gradients(F.linear_cross_entropy, *given, half=True)
    assert [a.dtype for a in computed] == [torch.float32] * 3
    assert computed[0] != computed[0].bfloat16().float()  # a loss in bf16 has three digits
    # in another order of sums a few of the logits are rounded to the other bf16
    torch.testing.assert_close(computed[0], expected[0], rtol=3e-4, atol=0)
    for a, b in zip(computed[1:], expected[1:], strict=True):
        assert (a - b).norm() < 0.01 * b.norm()
    exact = F.linear_cross_entropy(*case(n=400))
    assert 1e-5 < (computed[0] - exact).abs() < 1e-2 * exact  # products were bf16


def test_what_a_gpu_fuses_is_torchs_in_float32():
    hidden, weight, targets = (x.detach() for x in case(n=64))
    logits = (hidden @ weight.T).bfloat16()
    exact = logits.float().requires_grad_()
    expected = F.cross_entropy(exact, targets, reduction="sum")
    value, gradient = cross_entropy.of_logits(logits, targets[:, None])
    torch.testing.assert_close(value, expected.detach())
    assert gradient.dtype == torch.bfloat16
    (of_exact,) = torch.autograd.grad(expected, exact)
    torch.testing.assert_close(gradient.float(), of_exact, rtol=2**-8, atol=1e-6)


def test_what_cannot_be_compiled_is_computed_as_it_is(monkeypatch):
    def failing(*_, **__):
        raise RuntimeError("no compiler\nand more")

    monkeypatch.setattr(torch, "compile", failing)
    with pytest.warns(UserWarning, match=r"cannot be compiled \(no compiler\)$"):
        assert cross_entropy.fused.__wrapped__() is cross_entropy.of_logits


def test_under_autocast_logits_that_bf16_has_are_not_rounded_again():
    """Small integers, whose products are exact in bf16 and in any order of sums."""
    hidden, weight, targets = case(n=400)
    given = [x.detach().round().clamp(-2, 2).requires_grad_() for x in (hidden, weight)]
    computed = value_and_gradients(linear_cross_entropy, *given, targets, half=True)
    exact = F.linear_cross_entropy(*(x.detach().double() for x in given), targets)
    assert computed[0].item() == pytest.approx(exact.item(), rel=1e-6)


def test_how_many_tokens_a_chunk_has(monkeypatch):
    """As many as their logits allow, and at least some, four times as many on a GPU."""
    least = cross_entropy.LEAST_ROWS
    assert [cross_entropy.chunk_rows(10, device) for device in ("cpu", "cuda")] == [
        least,
        4 * least,
    ]
    monkeypatch.setattr(cross_entropy, "CHUNK_ELEMENTS", 10 * 4 * least + 19)
    assert cross_entropy.chunk_rows(10, "cpu") == 4 * least + 1


def test_extreme_logits_stay_finite():
    hidden, weight, targets = case()
    given = hidden.detach().mul(1e4).requires_grad_(), weight, targets
    value, *gradients = value_and_gradients(linear_cross_entropy, *given)
    torch.testing.assert_close(value, F.linear_cross_entropy(*given).detach())
    assert all(g.isfinite().all() for g in gradients)


def test_a_second_backward_pass_is_refused_and_without_gradients_it_is_torchs():
    value = linear_cross_entropy(*case())
    value.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="inplace"):
        value.backward()
    with torch.no_grad():
        assert torch.equal(linear_cross_entropy(*case()), F.linear_cross_entropy(*case()))
