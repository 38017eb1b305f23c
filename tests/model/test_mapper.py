"""The binary mapper against the dense straight-through form, written out over all 2^H codes."""

from math import prod

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from ftmodel.model import mapper
from ftmodel.model.mapper import binary_mapper
from tests.support.mutants import rejects


def dense(o, noise, table):
    """r = (Y + G − detach(G)) W, one-hot Y and G_d = Π_h p_h^{U_h(d)} (1 − p_h)^{1 − U_h(d)}."""
    bits, codes = o.shape[-1], table.shape[0]
    p = o.sigmoid()[..., None, :]  # (…, 1, H)
    u = torch.tensor([[d >> h & 1 for h in range(bits)] for d in range(codes)], dtype=torch.bool)
    g = torch.where(u, p, 1 - p).prod(-1)  # (…, 2^H)
    sampled = (noise < o.sigmoid())[..., None, :] == u
    y = sampled.all(-1).to(o.dtype)
    return (y + g - g.detach()) @ table


def problem(bits, rng, lead=(3, 5), width=6, dtype=torch.float64):
    """Logits, noise, a table, and the gradient ρ that arrives at r."""
    o = torch.randn(*lead, bits, generator=rng, dtype=dtype) * 1.5
    noise = torch.rand(*lead, bits, generator=rng, dtype=dtype)
    table = torch.randn(1 << bits, width, generator=rng, dtype=dtype)
    rho = torch.randn(*lead, width, generator=rng, dtype=dtype)
    return o.requires_grad_(), noise, table.requires_grad_(), rho


def gradients(mapper, o, noise, table, rho):
    o.grad = table.grad = None
    r = mapper(o, noise, table)
    (r * rho).sum().backward()
    assert o.grad is not None and table.grad is not None
    return r, o.grad, table.grad


def mapped(o, noise, table):
    return binary_mapper(o, noise, table)[0]


WIDTHS = pytest.mark.parametrize("width", [6, 40], ids=["Khatri-Rao", "by codes"])


@rejects(
    "model/mapper.py",
    "logit_gradient(rho, p.reshape(-1, p.shape[-1]), table, ctx.product_dtype)",
    "(rho * table[codes].flatten(0, -2)).sum(-1, keepdim=True) * code_probabilities(p.flatten(0, "
    "-2)).gather(1, codes.flatten()[:, None]) * (bit_table(p.shape[-1])[codes.flatten()] - "
    "p.flatten(0, -2))",
    "gradient through the sampled code only",
)
@rejects(
    "model/mapper.py",
    "table.view(most, low, -1).transpose(0, 1).flatten(1)",
    "table.view(low, -1)",
    "Khatri-Rao products with the table's halves in the wrong order",
)
@WIDTHS
@pytest.mark.parametrize("bits", [1, 2, 5, 8])
def test_value_and_gradients_equal_the_dense_straight_through_form(rng, bits, width):
    inputs = problem(bits, rng, width=width)
    expected = gradients(dense, *inputs)
    actual = gradients(mapped, *inputs)
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-10)


@rejects(
    "model/mapper.py",
    "over_high[n] += ",
    "over_high[n] = ",
    "gradient of low bits through the last block of codes only",
)
@WIDTHS
@pytest.mark.parametrize(
    "block", [1, 8 * 4, 15 * 12], ids=["1 token, 4 codes", "8 tokens, 4 codes", "15, 12 codes"]
)
def test_gradients_do_not_depend_on_the_block(rng, monkeypatch, block, width):
    """Of 15 tokens and 32 codes; the larger blocks leave a rest of the one or of the other."""
    monkeypatch.setattr("ftmodel.model.mapper.CPU_BLOCK", block)
    inputs = problem(5, rng, width=width)
    expected = gradients(dense, *inputs)
    actual = gradients(mapped, *inputs)
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("lead", [(), (1,), (2, 1, 3)], ids=str)
def test_leading_dimensions_are_any_or_none(rng, lead):
    inputs = problem(3, rng, lead)
    torch.testing.assert_close(gradients(mapped, *inputs), gradients(dense, *inputs))


def test_logits_need_not_be_contiguous(rng):
    o, *rest = problem(3, rng)
    o = o.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    torch.testing.assert_close(gradients(mapped, o, *rest), gradients(dense, o, *rest))


def test_each_input_gets_its_gradient_alone(rng):
    """A frozen table, or logits without gradient, must not disturb the other gradient."""
    o, noise, table, rho = problem(4, rng)
    _, o_grad, table_grad = gradients(dense, o, noise, table, rho)
    (of_o,) = torch.autograd.grad((mapped(o, noise, table.detach()) * rho).sum(), o)
    (of_table,) = torch.autograd.grad((mapped(o.detach(), noise, table) * rho).sum(), table)
    torch.testing.assert_close((of_o, of_table), (o_grad, table_grad), atol=1e-10, rtol=1e-10)


def test_forward_is_the_row_of_the_code(rng):
    o, noise, table, _ = problem(6, rng)
    r, codes = binary_mapper(o, noise, table)
    assert torch.equal(r, table[codes])


@rejects(
    "model/mapper.py",
    "weights = 1 << torch.arange(bits.shape[-1], device=bits.device)",
    "weights = 1 << torch.arange(bits.shape[-1], device=bits.device).flip(0)",
    "bit order reversed between mapper and table",
)
@pytest.mark.parametrize("code", range(8))
def test_bit_h_of_a_code_is_worth_two_to_the_h(code):
    """Logits so large that the bits are certain: the row must be the one that they spell."""
    o = torch.tensor([40.0 if code >> h & 1 else -40.0 for h in range(3)])
    r, drawn = binary_mapper(o, torch.full((3,), 0.5), torch.arange(8.0)[:, None])
    assert drawn.item() == code
    assert r.item() == code


def test_codes_are_drawn_with_their_product_probabilities(rng):
    """χ² of 20000 codes of 3 bits; 24.3 is its 0.999 quantile at 7 degrees of freedom."""
    p, n = (0.2, 0.5, 0.9), 20000
    o = torch.tensor(p).logit().expand(n, 3)
    _, codes = binary_mapper(o, torch.rand(n, 3, generator=rng), torch.zeros(8, 1))
    g = [prod(p[h] if d >> h & 1 else 1 - p[h] for h in range(3)) for d in range(8)]
    expected = n * torch.tensor(g)
    counts = codes.bincount(minlength=8)
    assert ((counts - expected) ** 2 / expected).sum() < 24.3


def saved_bytes(bits, tokens, rng):
    """Bytes kept between forward and backward, beside the table, which is kept anyway."""
    o, noise, table, _ = problem(bits, rng, lead=(tokens,), dtype=torch.float32)
    kept = []

    def pack(tensor):
        if tensor.data_ptr() != table.data_ptr():
            kept.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        binary_mapper(o, noise, table)
    return sum(kept)


def test_memory_kept_for_backward_does_not_grow_with_the_number_of_codes(rng):
    """From 4 to 12 bits it may grow by 8 floats a token, not by 4080."""
    tokens = 32
    few, many = saved_bytes(4, tokens, rng), saved_bytes(12, tokens, rng)
    assert few > 0
    assert many - few <= tokens * 8 * 4


class LargestOutput(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bf16"])
def test_backward_never_makes_a_tensor_of_all_codes(rng, monkeypatch, half):
    """64 tokens by 1024 codes would be 65536 elements, a copy of the table 65536; blocks of 4096
    are allowed.
    """
    monkeypatch.setattr("ftmodel.model.mapper.CPU_BLOCK", 4096)
    o, noise, table, rho = problem(10, rng, lead=(64,), width=64, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        loss = (mapped(o, noise, table.detach()) * rho).sum()
    with LargestOutput() as largest:
        loss.backward()
    assert 0 < largest.elements <= 4096


def test_khatri_rao_never_makes_a_tensor_of_all_codes(rng, monkeypatch):
    """64 tokens by 1024 codes would be 65536 elements, their rows (64, 32 · 16) 32768; a block of
    8192 and a copy of the table, 16384, are allowed.
    """
    monkeypatch.setattr("ftmodel.model.mapper.CPU_BLOCK", 4096)
    o, noise, table, rho = problem(10, rng, lead=(64,), width=16, dtype=torch.float32)
    loss = (mapped(o, noise, table.detach()) * rho).sum()
    with LargestOutput() as largest:
        loss.backward()
    assert 0 < largest.elements <= 16384


@rejects(
    "model/mapper.py",
    "if rho.dtype == table.dtype == dtype == p.dtype and khatri_rao_pays",
    "if khatri_rao_pays",
    "Khatri-Rao products of bf16 factors",
)
def test_the_form_depends_on_the_shape(monkeypatch):
    """A bf16 product, which rounds W ρ alone, is always by codes."""
    calls, sums = [], mapper.sums_by_khatri_rao

    def record(*inputs):
        calls.append(inputs[0].shape)
        return sums(*inputs)

    monkeypatch.setattr(mapper, "sums_by_khatri_rao", record)
    narrow, wide = torch.ones(2, 32), torch.ones(2, 96)
    for onednn, rho, bits, pays in (
        (True, narrow, 8, True),
        (False, narrow, 8, True),
        (True, torch.ones(2, 64), 14, True),
        (False, torch.ones(2, 64), 14, False),
        (True, torch.ones(2, 64), 12, False),
        (True, wide, 16, False),
    ):
        monkeypatch.setattr("ftmodel.model.product.ONEDNN", onednn)
        assert mapper.khatri_rao_pays(rho, bits) is pays, (onednn, rho.shape, bits)
    p, table = torch.full((2, 4), 0.5), torch.ones(16, 32)
    mapper.logit_gradient(narrow, p, table, torch.bfloat16)
    assert not calls
    mapper.logit_gradient(narrow, p, table, torch.float32)
    assert len(calls) == 1


def test_gradients_under_bfloat16_autocast_are_close_to_float32(rng):
    o, noise, table, rho = problem(8, rng, lead=(64,), width=32, dtype=torch.float32)
    exact = gradients(mapped, o, noise, table, rho)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = gradients(mapped, o, noise, table, rho)
    for e, r in zip(exact, rough, strict=True):
        assert r.dtype == torch.float32
        assert F.cosine_similarity(e.flatten(), r.flatten(), dim=0) > 0.999
        torch.testing.assert_close(r.norm(), e.norm(), rtol=0.01, atol=0)


def test_bfloat16_logits_are_sampled_with_float32_probabilities(rng):
    """In bfloat16, sigmoid(7) rounds to 1 and the bit could never be 0."""
    o = torch.full((20000, 1), 7.0, dtype=torch.bfloat16, requires_grad=True)
    r, codes = binary_mapper(o, torch.rand(20000, 1, generator=rng), torch.ones(2, 1))
    r.sum().backward()
    assert o.grad.dtype == torch.bfloat16
    assert 0 < (codes == 0).sum() < 40  # 18 expected


@pytest.mark.parametrize(
    ("noise", "rows"), [((2, 4), 8), ((1, 3), 8), ((2, 3), 7), ((2, 3), 16)], ids=str
)
def test_shapes_that_do_not_belong_together_are_refused(noise, rows):
    with pytest.raises(ValueError, match=r"differ in shape|does not fit"):
        binary_mapper(torch.zeros(2, 3), torch.zeros(noise), torch.zeros(rows, 5))
