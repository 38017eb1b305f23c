"""Designs of the latent other than the paper's: each consumer of z against the model's own pass
over given codes, which tests/model/test_transformer.py holds against Algorithm 2.
"""

import pytest
import torch

from ftmodel.inference.answers import score_answers
from ftmodel.inference.bounds import latent_bounds, token_nll
from ftmodel.inference.filtering import filtering_bound
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import Codes, Noise
from ftmodel.inference.swap import swapped_ce
from ftmodel.model.config import ModelConfig
from ftmodel.model.mapper import pack_bits
from ftmodel.model.transformer import FreeTransformer
from tests.support.enumeration import Exact, assert_near
from tests.support.mutants import rejects

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
DESIGNS = [
    {"inject": "residual"},
    {"inject": "embedding"},
    {"inject": "kv_all"},
    {"inject": "memory"},
    {"map": "linear", "inject": "kv_all"},
    {"prior": "learned"},
    {"prior": "recurrent"},
    {"encoder": "separate"},
    {"encoder": "separate", "encoder_layers": 1, "inject": "residual"},
]
ROWS = 4000  # independent estimates


@pytest.fixture(params=DESIGNS, ids=str)
def design(request):
    return request.param


@rejects(
    "inference/bounds.py",
    "if logits is None:",
    "if True:",
    "bounds under the uniform prior, whatever the prior is",
)
@rejects(
    "inference/bounds.py",
    "sums(kl_of_bits(q, p), ids)",
    "sums(kl_of_bits(q, torch.full_like(q, 0.5)), ids)",
    "KL to the uniform prior, whatever the prior is",
)
@rejects(
    "inference/bounds.py",
    "model.prior_logits(x, positions, hidden, segment_ids)",
    "model.prior_logits(x, positions, 0 * hidden, segment_ids)",
    "bounds whose prior does not follow the z before",
)
@rejects(
    "inference/filtering.py",
    "log_density_ratio(bits, p, q)",
    "log_density_ratio(bits, torch.full_like(p, 0.5), q)",
    "weights of a proposal against the uniform prior",
)
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
    if model.latent.recurrent:  # the prior, and so the KL, are those after the z that was drawn
        assert_near(bounds.kl, truth.kl)
    else:
        assert bounds.kl[0].item() == pytest.approx(truth.kl, rel=1e-4)
    for proposal in (0.0, 0.7):
        filtered = filtering_bound(model, inputs, targets, 4, draw, proposal=proposal)
        assert_near((truth.nll - filtered).exp(), 1.0)


def with_prior(model, prompts, rest, noise):
    """Codes (24, 8) of the encoder, which reads the prompts alone, and then of the prior."""
    codes, latent = model(prompts, noise=noise[:, :5]).codes, model.latent
    if latent.prior is None:
        return torch.cat((codes, pack_bits(noise[:, 5:] < 0.5)), dim=1)
    tokens = torch.cat((prompts, rest[:, :-1]), dim=1)
    x = latent.prior.norm(model.lower(tokens, model.positions(0, 8, tokens.device)))
    for t in (5, 6, 7):
        given = x[:, t]
        if latent.recurrent:
            given = torch.cat((given, model(tokens[:, :t], codes=codes).hidden[:, -1]), dim=-1)
        z = pack_bits(noise[:, t] < latent.prior.readout(given).sigmoid())
        codes = torch.cat((codes, z[:, None]), dim=1)
    return codes


@rejects(
    "inference/answers.py",
    "noise[self.rows], positions, cache=copies",
    "2 * (noise[self.rows] >= 0.5) - 1, positions, cache=copies",
    "answers with z of the uniform prior, whatever the prior is",
)
@rejects(
    "inference/answers.py",
    "before=hidden[:, 0]",
    "before=None",
    "answers whose first z does not follow the prompt",
)
@rejects(
    "inference/generate.py",
    "rows.decoder.read(token, noise, hidden)",
    "rows.decoder.read(token, noise, 0 * hidden)",
    "generation whose z does not follow the token before",
)
@rejects(
    "inference/fast_decoder.py",
    "latent.draw(noise, x, before)",
    "latent.draw(noise, 0 * x, before)",
    "generation from the uniform prior, whatever the prior is",
)
@rejects(
    "model/layers.py",
    "keys, values = cache.append(keys, values)",
    "keys, values = cache.append(keys, values)\n            if memory is not None:\n"
    "                half = keys.shape[-1] // 2\n"
    "                keys, values = (x[..., :half].repeat(1, 1, 1, 2) for x in (keys, values))",
    "memory missing from the cache, which has x in its place",
)
@torch.no_grad()
def test_answers_and_generation_follow(make_model, make_tokens, design, rng):
    """With a cache, too: answers have the log-probabilities of the uncached pass, and at a
    temperature of 0 each new token is its most probable one. The encoder never reads an answer.
    """
    model, prompts, answers = make_model(latent=design), make_tokens(24, 5), make_tokens(24, 4)
    model.latent.post_sampler.mul_(5)  # z decides which token that is
    noise = torch.rand(24, 8, 3, generator=rng)
    codes = with_prior(model, prompts, answers, noise)
    rows, lengths = torch.arange(24), torch.full((24,), 4)
    scores = score_answers(model, prompts, None, answers, lengths, rows, [noise]).log_probs[0]
    hidden = model(torch.cat((prompts, answers[:, :-1]), dim=1), codes=codes).hidden[:, 4:]
    log_p = model.logits(hidden).log_softmax(-1).gather(-1, answers[..., None])[..., 0]
    torch.testing.assert_close(scores, log_p.double().sum(1), **CLOSE)

    written = generate(model, prompts, 4, generator=rng, z=Noise(noise), temperature=0)
    codes = with_prior(model, prompts, written[:, 5:], noise)
    logits = model.logits(model(written[:, :-1], codes=codes).hidden)
    assert torch.equal(logits[:, 4:].argmax(-1), written[:, 5:])


@torch.no_grad()
def test_the_encoder_reads_each_prompt_once_and_nothing_else(make_model, make_tokens, design, rng):
    """Whatever is generated or scored: what its read-out is given has the prompt's 5 positions."""
    model, prompts = make_model(latent=design), make_tokens(3, 5)
    expected = model(prompts, torch.rand(3, 5, 3, generator=rng)).bit_logits
    seen = []
    model.latent.readout.register_forward_hook(lambda *call: seen.append(call[-1]))
    for answers in make_tokens(2, 12).view(2, 3, 4):
        generate(model, prompts, 4, generator=rng)
        noise, lengths = torch.rand(3, 8, 3, generator=rng), torch.full((3,), 4)
        score_answers(model, prompts, None, answers, lengths, torch.arange(3), [noise] * 2)
    assert len(seen) == 4
    for o in seen:
        torch.testing.assert_close(o, expected, **CLOSE)


@torch.no_grad()
def test_texts_are_rebuilt_from_the_z_of_the_forward_pass(make_model, make_tokens, design, rng):
    model, texts = make_model(latent=design), make_tokens(4, 8)
    model.latent.readout.weight.mul_(1e6)  # so that there is one z
    out = model(texts[:, :-1], noise=torch.full((4, 7, 3), 0.5))
    nll = token_nll(model, out.hidden, texts[:, 1:]).sum(1)
    ce = swapped_ce(model, texts, torch.tensor([1, 0, 3, 2]), 1, 3, rng)
    torch.testing.assert_close(ce.own, nll.double(), atol=1e-4, rtol=1e-5)


@rejects(
    "model/mapper.py", "=codes.device)", "=codes.device).clamp(max=62)", "the last of 64 bits lost"
)
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
        (
            {"latent": {"encoder": "separate", "encoder_layers": 0}},
            "latent.encoder_layers: 0 is outside 1 … 1024",
        ),
        ({"latent": {"encoder_layers": 2}}, "latent.encoder_layers: 2, but a shared encoder is"),
        (
            {"latent": {"inject": "embedding"}, "latent_block": 2},
            "latent_block: 2, but latent.inject: embedding is before block 1",
        ),
        ({"latent": {"encoder": "own"}}, "encoder: 'own' is not one of shared, separate"),
        ({"latent": {"inject": "queries"}}, "'queries' is not one of kv, residual, kv_all, "),
    ],
)
def test_designs_that_there_are_not(make_model, changes, message):
    with pytest.raises(ValueError, match=message):
        make_model(**changes)
