"""Settings of the latent's design together, where the other tests vary one at a time: each consumer
of z against the pass over given codes of a model with the same weights and one z per token.
"""

from itertools import product

import pytest
import torch

from ftmodel.inference.answers import score_answers
from ftmodel.inference.bounds import latent_bounds
from ftmodel.inference.filtering import filtering_bound
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import Noise
from ftmodel.inference.sequence_bound import enumerable, enumerated_nll
from ftmodel.model.mapper import pinned_noise
from tests.inference.test_spans import CLOSE, log_p, log_prior
from tests.model.test_spans import drawn_at_starts
from tests.support.dense_form import per_token
from tests.support.designs import EVERY, all_pairs, title
from tests.support.enumeration import assert_near

ROWS = 2000  # independent estimates
WIDTHS = {"token": 1, "every": EVERY, "sequence": 99}

# no gradient, hence no hinge, in inference
DESIGNS = {
    title(design): design
    for design in (
        {key: value for key, value in each.items() if key not in ("gradient", "free_bits")}
        for each in all_pairs()
    )
}


@pytest.fixture(params=DESIGNS.values(), ids=DESIGNS)
def design(request):
    return request.param


@torch.no_grad()
def test_bounds_are_unbiased(make_model, make_tokens, design, rng):
    """By enumeration of every z of two positions' worth of bits and more."""
    model = make_model(latent_bits=2, n_layers=2, latent=design)
    length = 3 if design["per"] == "token" else 5
    width = min(WIDTHS[design["per"]], length)
    one = make_tokens(1, length + 1)
    z = torch.tensor([*product(range(4), repeat=-(-length // width))])
    codes = z.repeat_interleave(width, dim=1)[:, :length]
    each = one.expand(len(z), -1)
    prior = log_prior(model, each[:, :-1], codes, [*range(0, length, width)]).sum(1)
    nll = -(prior + log_p(model, each, codes).sum(1)).logsumexp(0).item()
    tokens = one.expand(ROWS, -1)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]

    def draw():
        return torch.rand(ROWS, length, 2, generator=rng)

    bounds = latent_bounds(model, inputs, targets, 1, draw)
    assert_near((nll - bounds.iwae).exp(), 1.0)
    assert_near((nll - bounds.prior).exp(), 1.0)
    assert bounds.elbo.mean() > nll
    if enumerable(model.config):
        exact = enumerated_nll(model, inputs[:3], targets[:3])
        torch.testing.assert_close(exact, torch.full_like(exact, nll), **CLOSE)
        return
    for proposal in (0.0, 0.7):
        filtered = filtering_bound(model, inputs, targets, 4, draw, proposal=proposal)
        assert_near((nll - filtered).exp(), 1.0)


@torch.no_grad()
def test_z_of_the_prior_is_drawn_token_by_token(make_model, make_tokens, design, rng):
    model, tokens = make_model(latent=design), make_tokens(3, 8)
    noise = torch.rand(3, 8, 3, generator=rng)
    starts = model.span_starts(8, tokens.device)
    starts = torch.arange(8).expand(3, -1) if starts is None else starts.expand(3, -1)
    codes = drawn_at_starts(per_token(model), tokens, noise, starts)
    out = model(tokens, prior_noise=noise)
    assert torch.equal(out.codes, codes)
    hidden = per_token(model)(tokens, codes=codes).hidden
    torch.testing.assert_close(out.hidden, hidden, **CLOSE)


@torch.no_grad()
def test_answers_and_generation_under_given_z(make_model, make_tokens, design, rng):
    """With a cache and the fast decoder. The encoder never reads an answer or a new token."""
    model, prompts, answers = make_model(latent=design), make_tokens(8, 5), make_tokens(8, 4)
    model.latent.post_sampler.mul_(5)  # z decides which token is the most probable
    width = WIDTHS[design["per"]]
    codes = torch.randint(8, (8, 9), generator=rng)
    codes = codes[:, torch.arange(9) // width * width]
    noise = pinned_noise(codes, 3)
    seen = []
    model.latent.readout.register_forward_hook(lambda *call: seen.append(call[-1].shape[1]))

    tokens = torch.cat((prompts, answers), dim=1)
    rows, lengths = torch.arange(8), torch.full((8,), 4)
    scores = score_answers(model, prompts, None, answers, lengths, rows, [noise[:, :8]])
    expected = log_p(model, tokens, codes)[:, 4:].sum(1)
    torch.testing.assert_close(scores.log_probs[0], expected, **CLOSE)

    written = generate(model, prompts, 4, generator=rng, z=Noise(noise), temperature=0)
    twin = per_token(model)
    logits = twin.logits(twin(written[:, :-1], codes=codes[:, :8]).hidden)
    assert torch.equal(logits[:, 4:].argmax(-1), written[:, 5:])
    assert set(seen) == {5}, "the prompt alone"
