"""Generation on a GPU against a CPU's; skipped without a GPU. `make gpu` runs these."""

import pytest
import torch

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
