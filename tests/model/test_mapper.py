"""The binary mapper against the dense straight-through form, written out over all 2^H codes."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ftmodel.config import LatentDesign
from ftmodel.designs.codebook import codebook
from ftmodel.designs.noise import Draws
from ftmodel.mapper import binary_mapper
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


TOKENS = (3, 5)
CASES = [  # bits, leading dimensions, block of the backward pass
    *((bits, TOKENS, None) for bits in (1, 2, 5, 8)),
    # of 15 tokens and 32 codes; the larger blocks leave a rest of the one or of the other
    *((5, TOKENS, block) for block in (1, 8 * 4, 15 * 12)),
    *((3, lead, None) for lead in ((), (1,), (2, 1, 3))),
]


@rejects("mapper.pack_bits: device)«→.flip(0)»", "bit order reversed", case="5-(3, 5)-None")
@rejects(
    "BinaryMapper.backward: «logit_gradient(rho, p.reshape(-1, p.shape[-1]), table, "
    "ctx.product_dtype)→(rho * table[codes].flatten(0, -2)).sum(-1, keepdim=True) * "
    "code_probabilities(p.flatten(0, -2)).gather(1, codes.flatten()[:, None]) * "
    "(bit_table(p.shape[-1])[codes.flatten()] - p.flatten(0, -2))»",
    "gradient through the sampled code only",
    case="5-(3, 5)-None",
)
@rejects("mapper.sums_by_codes: «+→»=", "gradient of low bits through the last block of codes only")
@pytest.mark.parametrize(("bits", "lead", "block"), CASES, ids=str)
def test_value_and_gradients_equal_the_dense_straight_through_form(
    rng, monkeypatch, bits, lead, block
):
    if block:
        monkeypatch.setattr("ftmodel.mapper.CPU_BLOCK", block)
    inputs = problem(bits, rng, lead)
    expected = gradients(dense, *inputs)
    actual = gradients(mapped, *inputs)
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-10)


def test_each_input_gets_its_gradient_alone(rng):
    """Of a frozen table, or logits without gradient; logits need not be contiguous."""
    o, noise, table, rho = problem(4, rng)
    o = o.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    _, o_grad, table_grad = gradients(dense, o, noise, table, rho)
    (of_o,) = torch.autograd.grad((mapped(o, noise, table.detach()) * rho).sum(), o)
    (of_table,) = torch.autograd.grad((mapped(o.detach(), noise, table) * rho).sum(), table)
    torch.testing.assert_close((of_o, of_table), (o_grad, table_grad), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("gradient", ["all_codes", "score"])
def test_a_draw_that_equals_the_probability_sets_no_bit(make_model, gradient):
    latent = make_model(latent={"gradient": gradient}).latent
    half = torch.full((1, 3), 0.5)
    assert not latent.sample(torch.zeros(1, 3), half)[1].any()
    assert not latent.draw(Draws(half), torch.zeros(1, 16)).any()


def test_memory_kept_for_backward_does_not_grow_with_the_number_of_codes(rng):
    """From 4 to 12 bits it may grow by 8 floats a token, not by 4080; the table is kept anyway."""

    def kept_bytes(bits):
        o, noise, table, _ = problem(bits, rng, lead=(32,), dtype=torch.float32)
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
            binary_mapper(o, noise, table)
        return sum(x.nbytes for x in kept if x.data_ptr() != table.data_ptr())

    few, many = kept_bytes(4), kept_bytes(12)
    assert few > 0 and many - few <= 32 * 8 * 4


class LargestOutput(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


@pytest.mark.parametrize(
    ("half", "bits", "tokens", "width", "block"),
    [(False, 10, 64, 64, 4096), (True, 10, 64, 64, 4096), (False, 8, 2048, 40, 1 << 17)],
)
def test_backward_never_makes_a_tensor_of_all_codes(
    rng, monkeypatch, half, bits, tokens, width, block
):
    """Which would be 65536 elements or more; allowed are blocks."""
    monkeypatch.setattr("ftmodel.mapper.CPU_BLOCK", block)
    o, noise, table, rho = problem(bits, rng, lead=(tokens,), width=width, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        loss = (mapped(o, noise, table.detach()) * rho).sum()
    with LargestOutput() as largest:
        loss.backward()
    assert 0 < largest.elements <= block


@pytest.mark.parametrize("gradient", ["all_codes", "score"])
def test_bfloat16_logits_are_sampled_with_float32_probabilities(rng, gradient):
    """In bfloat16, sigmoid(7) rounds to 1 and the bit could never be 0."""
    o = torch.full((20000, 1), 7.0, dtype=torch.bfloat16, requires_grad=True)
    table = codebook(LatentDesign(gradient=gradient))
    r, codes = table.sample(o, torch.rand(20000, 1, generator=rng), torch.ones(2, 1))
    r.sum().backward()
    assert o.grad.dtype == torch.bfloat16
    assert 0 < (codes == 0).sum() < 40  # 18 expected
