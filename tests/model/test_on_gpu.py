"""What a GPU computes against what a CPU computes; skipped without a GPU. `make gpu` runs these."""

import copy

import pytest
import torch

from ftmodel.kernels.attention import flex_works
from ftmodel.mapper import binary_mapper
from ftmodel.model.objective import training_loss
from pipelines.train.core.acceleration import blocks_of

pytestmark = pytest.mark.gpu
KAPPA = 0.5


@pytest.fixture(
    params=[{"latent_bits": 0}, {}, {"latent": {"encoder": "separate"}}],
    ids=["baseline", "free", "separate encoder"],
)
def case(request, make_model, make_tokens, rng):
    """A model on the CPU, its tokens and the noise of z."""
    model, tokens = make_model(**request.param), make_tokens(4, 17)
    bits = model.config.latent_bits
    noise = torch.rand(4, 16, bits, generator=rng) if bits else None
    return model, tokens, noise


def loss_of(model, tokens, noise, device, half=False, documents=None):
    """The training loss on a device, and the gradients of all parameters, both on the CPU."""
    model.to(device).zero_grad()
    tokens, noise = tokens.to(device), None if noise is None else noise.to(device)
    kappa = None if noise is None else KAPPA
    documents = None if documents is None else documents.to(device)
    with torch.autocast(device, torch.bfloat16, enabled=half):
        loss = training_loss(model, tokens[:, :-1], tokens[:, 1:], noise, kappa, documents).total
    loss.backward()
    # copies: gradients on the CPU would move along when the model is moved next
    gradients = {name: p.grad.to("cpu", copy=True) for name, p in model.named_parameters()}
    return loss.detach().cpu(), gradients


def assert_same(found, expected):
    torch.testing.assert_close(found[0], expected[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[1], expected[1], atol=1e-4, rtol=1e-3)


def test_loss_and_gradients_are_those_of_a_cpu(case, gpu):
    expected = loss_of(*case, "cpu")
    assert_same(loss_of(*case, gpu), expected)


def test_bf16_is_near_float32(case, gpu):
    expected, _ = loss_of(*case, "cpu")
    loss, _ = loss_of(*case, gpu, half=True)
    assert loss.item() == pytest.approx(expected.item(), rel=0.05)


def test_compiled_blocks_compute_the_same(make_model, make_tokens, rng, gpu):
    model, given = make_model(n_layers=2), (make_tokens(4, 17), torch.rand(4, 16, 3, generator=rng))
    expected = loss_of(copy.deepcopy(model), *given, gpu)
    for block in blocks_of(model):
        block.compile()
    assert_same(loss_of(model, *given, gpu), expected)


@pytest.mark.parametrize("compiled", [False, True])
def test_attention_within_documents_is_that_of_the_dense_mask(make_model, rng, gpu, compiled):
    """By FlexAttention, in blocks of 128 positions."""
    model = make_model(n_layers=2, head_width=16, context=400)
    tokens = torch.randint(11, (2, 401), generator=rng)
    documents = torch.arange(4).repeat_interleave(torch.tensor([150, 1, 106, 143])).expand(2, -1)
    given = tokens, torch.rand(2, 400, 3, generator=rng)
    assert gpu == "cpu" or flex_works(torch.device(gpu, 0), 16)
    expected = loss_of(copy.deepcopy(model), *given, "cpu", documents=documents)
    for block in blocks_of(model) if compiled else ():
        block.compile()
    assert_same(loss_of(model, *given, gpu, documents=documents), expected)


@pytest.mark.parametrize("half", [False, True])
def test_the_mappers_gradient_at_sixteen_bits(rng, gpu, half):
    """Of more tokens than a block of the backward pass holds."""
    o = torch.randn(1200, 16, generator=rng)
    noise, rho = torch.rand(1200, 16, generator=rng), torch.randn(1200, 8, generator=rng)
    table = torch.randn(1 << 16, 8, generator=rng)
    results = []
    for device in ("cpu", gpu):
        given = [x.detach().to(device).requires_grad_() for x in (o, table)]
        with torch.autocast(device, torch.bfloat16, enabled=half and device == gpu):
            r, codes = binary_mapper(given[0], noise.to(device), given[1])
        r.backward(rho.to(device))
        results.append([codes.cpu(), r.detach().cpu(), *(x.grad.cpu() for x in given)])
    assert torch.equal(results[1][0], results[0][0])
    if not half:
        torch.testing.assert_close(results[1], results[0], atol=1e-3, rtol=1e-3)
    for expected, found in zip(*(each[1:] for each in results), strict=True):
        assert (found - expected).norm() < (0.01 if half else 1e-4) * expected.norm()
