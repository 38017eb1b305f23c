"""Designs of the latent other than the paper's: each consumer of z against the model's own pass
over given codes, which tests/model/test_transformer.py holds against Algorithm 2.
"""

import pytest
import torch

from ftmodel.inference.answers import score_answers
from ftmodel.inference.bounds import latent_bounds
from ftmodel.inference.filtering import filtering_bound
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import Codes, Noise
from ftmodel.model.config import ModelConfig
from ftmodel.model.mapper import pack_bits
from ftmodel.model.transformer import FreeTransformer
from tests.support.enumeration import Exact, assert_near

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
DESIGNS = [
    {"inject": "residual"},
    {"inject": "kv_all"},
    {"inject": "memory"},
    {"map": "linear", "inject": "kv_all"},
]
ROWS = 4000  # independent estimates


@pytest.fixture(params=DESIGNS, ids=str)
def design(request):
    return request.param


def test_bounds_are_unbiased_and_above_the_nll(make_model, make_tokens, design, rng):
    """By enumeration of every z."""
    model = make_model(latent_bits=2, n_layers=2, latent=design)
    tokens = make_tokens(1, 6).expand(ROWS, -1)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    truth = Exact(model, inputs[0], targets[0])
    assert truth.prior_ce > truth.nll + 0.05, "z that changes nothing would test nothing"

    def draw():
        return torch.rand(ROWS, 5, 2, generator=rng)

    bounds = latent_bounds(model, inputs, targets, 1, draw)
    assert_near((truth.nll - bounds.iwae).exp(), 1.0)
    assert_near((truth.nll - bounds.prior).exp(), 1.0)
    assert_near(bounds.ce, truth.posterior_ce)
    assert bounds.kl[0].item() == pytest.approx(truth.kl, rel=1e-4)
    filtered = filtering_bound(model, inputs, targets, 4, draw)
    assert_near((truth.nll - filtered).exp(), 1.0)


@torch.no_grad()
def test_answers_and_generation_follow(make_model, make_tokens, design, rng):
    """With a cache, too: answers have the log-probabilities of the uncached pass, and at a
    temperature of 0 each new token is its most probable one. The encoder never reads an answer.
    """
    model, prompts, answers = make_model(latent=design), make_tokens(3, 5), make_tokens(3, 4)
    noise = torch.rand(3, 8, 3, generator=rng)
    codes = torch.cat(
        (model(prompts, noise=noise[:, :5]).codes, pack_bits(noise[:, 5:] < 0.5)), dim=1
    )
    rows, lengths = torch.arange(3), torch.full((3,), 4)
    scores = score_answers(model, prompts, None, answers, lengths, rows, [noise]).log_probs[0]
    hidden = model(torch.cat((prompts, answers[:, :-1]), dim=1), codes=codes).hidden[:, 4:]
    log_p = model.logits(hidden).log_softmax(-1).gather(-1, answers[..., None])[..., 0]
    torch.testing.assert_close(scores, log_p.double().sum(1), **CLOSE)

    written = generate(model, prompts, 4, generator=rng, z=Noise(noise), temperature=0)
    logits = model.logits(model(written[:, :-1], codes=codes).hidden)
    assert torch.equal(logits[:, 4:].argmax(-1), written[:, 5:])


@torch.no_grad()
def test_a_linear_map_takes_64_bits(make_tokens, rng):
    """Each bit of a code decides the sign of its own vector, the last one included, and codes are
    taken as they were sampled.
    """
    shape = dict(n_layers=2, d_model=16, n_heads=4, n_kv_heads=2, ffn_width=24, context=16)
    config = ModelConfig(**shape, latent_bits=64, latent={"map": "linear"})
    torch.manual_seed(0)
    model, noise = FreeTransformer(config, 11).eval(), torch.rand(2, 7, 64, generator=rng)
    assert model.latent.post_sampler.shape == (64, 16)
    assert model.latent.post_sampler.std().item() == pytest.approx(0.02 / 8, rel=0.1)
    tokens = make_tokens(2, 7)
    out = model(tokens, noise)
    bits = noise < out.bit_logits.sigmoid()
    r = torch.where(bits, 1.0, -1.0) @ model.latent.post_sampler
    torch.testing.assert_close(model.latent.embed(out.codes), r)
    torch.testing.assert_close(model(tokens, codes=out.codes).hidden, out.hidden)
    generate(model, tokens, 2, generator=rng, z=Codes(out.codes[:, :2]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latent_bits": 25}, "latent_bits: 25 is outside 0 … 24"),
        ({"latent_bits": 65, "latent": {"map": "linear"}}, "65 is outside 0 … 64"),
        ({"latent": {"inject": "queries"}}, "'queries' is not one of kv, residual, kv_all, memory"),
    ],
)
def test_designs_that_there_are_not(make_model, changes, message):
    with pytest.raises(ValueError, match=message):
        make_model(**changes)
