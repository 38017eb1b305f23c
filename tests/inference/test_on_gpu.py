"""A GPU against a CPU; skipped without a GPU. `make gpu` runs these."""

import pytest
import torch

from ftmodel.inference.filtering import filtering_bound
from ftmodel.inference.generate import generate

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "sampled"])
@pytest.mark.parametrize("bits", [0, 3], ids=["baseline", "free"])
def test_the_same_tokens_are_generated(make_model, make_tokens, gpu, bits, temperature):
    """All random numbers are drawn on the CPU."""
    model, prompt = make_model(latent_bits=bits).eval(), make_tokens(5, 4)
    padding = torch.tensor([0, 1, 0, 2, 3])
    generated = []
    for device in ("cpu", gpu):
        rng = torch.Generator().manual_seed(1)
        model, prompt = model.to(device), prompt.to(device)
        options = dict(generator=rng, temperature=temperature, padding=padding)
        generated.append(generate(model, prompt, 12, **options).cpu())
    assert generated[0].shape == (5, 16)
    assert torch.equal(*generated)


def test_the_filtering_bound_is_the_same(make_model, make_tokens, rng, gpu):
    model, tokens = make_model(), make_tokens(9, 15)
    noise = torch.rand(5, 9, 14, 3, generator=rng)
    bounds = []
    for device in ("cpu", gpu):
        model, tokens, draws = model.to(device), tokens.to(device), iter(noise.to(device))
        bound = filtering_bound(model, tokens[:, :-1], tokens[:, 1:], 4, draws.__next__)
        bounds.append(bound.cpu())
    torch.testing.assert_close(*bounds, atol=1e-3, rtol=1e-4)
