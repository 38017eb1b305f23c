"""Another injection, planted among the designs, is the one that every use of z follows.

Each use is compared with an uncached pass that is written out here and calls no method of the
model that turns codes into activations.
"""

import re
from pathlib import Path

import pytest
import torch

import ftmodel
from ftmodel.designs.design import Inject
from ftmodel.designs.injection import INJECTIONS, KeyValueInjection, MemoryInjection
from ftmodel.designs.parts import BlockInput
from ftmodel.inference.answers import score_answers
from ftmodel.inference.bounds import latent_bounds
from ftmodel.inference.filtering import filtering_bound
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import Noise
from ftmodel.inference.passes import with_codes
from ftmodel.kernels.fast_decoder import FastDecoder, PlainDecoder
from ftmodel.model.cache import new_cache
from ftmodel.model.mapper import pack_bits, pinned_noise
from tests.support.mutants import rejects

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
# what keys and values are of, or further ones beside those of x
OTHER = {
    "scaled": (KeyValueInjection, lambda x, r: x + 3 * r),
    "gated": (KeyValueInjection, lambda x, r: x + r * x.sigmoid()),
    "in place of half of x": (
        KeyValueInjection,
        lambda x, r: torch.cat((x[..., :8], r[..., 8:]), dim=-1),
    ),
    "gated beside x": (MemoryInjection, lambda x, r: r * x.sigmoid()),
}


@pytest.fixture(params=OTHER.values(), ids=OTHER)
def planted(request, monkeypatch):
    """What the paper's injection has become."""
    like, other = request.param

    class Planted(like):
        def __call__(self, n, x, r):
            return BlockInput(x, other(x, r) if n == self.first else None)

    monkeypatch.setitem(INJECTIONS, Inject.kv, Planted)
    return other


@pytest.fixture(params=[None, 1], ids=["half-way", "first block"])
def model(request, make_model, planted):
    return make_model(latent_block=request.param)


@pytest.fixture
def hidden_of(model, planted):
    """Activations (B, T, D) of an uncached pass with the planted injection; with x + r they would
    be others.
    """

    def hidden(tokens, codes):
        at = model.positions(tokens)
        x = model.lower(tokens, at)
        r = model.latent.post_sampler[codes]
        first, *later = model.blocks[model.config.lower_blocks :]

        def upper(kv):
            y = first(x, kv, at)
            for block in later:
                y = block(y, None, at)
            return model.norm(y)

        usual, other = upper(x + r), upper(planted(x, r))
        assert (usual - other).abs().max() > 0.1, "nothing to tell the two injections apart by"
        return other

    return hidden


@pytest.fixture
def log_probs(model, hidden_of):
    """log p (B, T) of targets after tokens, both (B, T), with z = codes (B, T)."""

    def of(tokens, targets, codes):
        log_p = model.logits(hidden_of(tokens, codes)).log_softmax(-1)
        return log_p.gather(-1, targets[..., None])[..., 0].double()

    return of


@rejects(
    ")«→ / 2», at, cache), codes)", "a forward pass over given codes with an embedding of its own"
)
def test_forward_pass_follows(model, hidden_of, make_tokens, rng):
    """In training too: the gradient of the table is that of the planted injection."""
    tokens, noise = make_tokens(3, 7), torch.rand(3, 7, 3, generator=rng)
    sampled = model(tokens, noise=noise)
    expected = hidden_of(tokens, sampled.codes)
    torch.testing.assert_close(sampled.hidden, expected, **CLOSE)
    given = with_codes(model, tokens, sampled.codes).hidden
    torch.testing.assert_close(given, expected, **CLOSE)
    rho = torch.randn(expected.shape, generator=rng)
    grads = [
        torch.autograd.grad((hidden * rho).sum(), model.latent.post_sampler)[0]
        for hidden in (sampled.hidden, given, expected)
    ]
    assert grads[2].abs().max() > 0.1
    torch.testing.assert_close(grads[0], grads[2], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(grads[1], grads[2], atol=1e-4, rtol=1e-4)


@rejects("(bits))«→ / 2»,", "bounds with an embedding of their own", file="inference/bounds.py")
@torch.no_grad()
def test_bounds_follow(model, log_probs, make_tokens, rng):
    tokens = make_tokens(3, 9)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    noise = torch.rand(2, 3, 8, 3, generator=rng)
    draws = iter(noise)
    bounds = latent_bounds(model, inputs, targets, 1, lambda: next(draws))
    posterior = log_probs(inputs, targets, model(inputs, noise=noise[0]).codes)
    prior = log_probs(inputs, targets, pack_bits(noise[1] < 0.5))
    torch.testing.assert_close(bounds.ce, -posterior.sum(1), **CLOSE)
    torch.testing.assert_close(bounds.prior, -prior.sum(1), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fast", "plain"])
def test_the_filtering_bound_follows(model, log_probs, make_tokens, rng, dtype):
    """Of one particle: the prior-sample bound of its z."""
    model.to(dtype)
    tokens = make_tokens(3, 9)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    noise = torch.rand(2, 3, 8, 3, generator=rng)
    bound = filtering_bound(model, inputs, targets, 1, iter(noise).__next__)
    with torch.no_grad():
        expected = log_probs(inputs, targets, pack_bits(noise[0] < 0.5))
    torch.testing.assert_close(bound, -expected.sum(1), **CLOSE)


@rejects("self.x_answer«→ * 1.1», noise[self.", "scores of answers with an embedding of their own")
@torch.no_grad()
def test_scores_of_answers_follow(model, log_probs, make_tokens, rng):
    prompts, answers = make_tokens(3, 5), make_tokens(3, 4)
    noise = torch.rand(3, 8, 3, generator=rng)
    rows, lengths = torch.arange(3), torch.full((3,), 4)
    scores = score_answers(model, prompts, None, answers, lengths, rows, [noise]).log_probs[0]
    codes = torch.cat(
        (model(prompts, noise=noise[:, :5]).codes, pack_bits(noise[:, 5:] < 0.5)), dim=1
    )
    tokens = torch.cat((prompts, answers), dim=1)
    expected = log_probs(tokens[:, :-1], tokens[:, 1:], codes)[:, 4:].sum(1)
    torch.testing.assert_close(scores, expected, **CLOSE)


@rejects(
    "«→(»self.«model.inject(n→x.x», self.x.x«, r→ + r if block is self.upper_blocks[0] else None»)",
    "cached generation with an injection of its own",
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fast", "plain"])
@torch.no_grad()
def test_cached_generation_follows(model, hidden_of, make_tokens, rng, dtype):
    """At temperature 0 each token is the most probable one of the uncached pass."""
    model.to(dtype)
    prompt, noise = make_tokens(8, 4), torch.rand(8, 14, 3, generator=rng)
    tokens = generate(model, prompt, 10, generator=rng, z=Noise(noise), temperature=0)
    codes = torch.cat(
        (model(prompt, noise=noise[:, :4]).codes, pack_bits(noise[:, 4:-1] < 0.5)), dim=1
    )
    logits = model.logits(hidden_of(tokens[:, :-1], codes))
    assert torch.equal(logits[:, 3:].argmax(-1), tokens[:, 4:])


@torch.inference_mode()
def test_decoders_follow(model, hidden_of, make_tokens, rng):
    tokens, codes = make_tokens(3, 12), torch.randint(8, (3, 12), generator=rng)
    expected = hidden_of(tokens, codes)
    for kind in (FastDecoder, PlainDecoder):
        cache = new_cache(model.config, 12)
        with_codes(model, tokens[:, :4], codes[:, :4], cache=cache)
        decoder = kind(model, cache)
        for t in range(4, 12):
            hidden = decoder.read(tokens[:, t], pinned_noise(codes[:, t], 3))
            torch.testing.assert_close(hidden, expected[:, t], **CLOSE)


def test_no_other_module_reads_the_post_sampler():
    """But costs/counting.py, which counts its elements, conversion/latent_start.py, which scales it
    before the first step, the exported model, which draws it where transformers asks for that, and
    the training module, which logs its gradient.
    """
    root = Path(ftmodel.__file__).parents[1]
    modules = [path for room in ("ftmodel", "pipelines") for path in (root / room).rglob("*.py")]
    readers = {p.name for p in modules if re.search(r"\.post_sampler\b", p.read_text())}
    assert readers == {
        *("latent.py", "counting.py", "module.py"),
        *("latent_start.py", "modeling_free_transformer.py"),
    }
