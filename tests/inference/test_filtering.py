"""The filtering bound against the true NLL: of models so small that every z can be enumerated, and
of models made so that it is known.
"""

from types import SimpleNamespace

import pytest
import torch

from ftmodel.cache import LayerCache
from ftmodel.config import ModelConfig
from ftmodel.designs.hinge import LN2
from ftmodel.designs.prior import UniformPrior
from ftmodel.inference import filtering
from ftmodel.inference.bounds import NOISE_STEPS, latent_bounds
from ftmodel.inference.decoder import FastDecoder, PlainDecoder
from ftmodel.inference.filtering import (
    FilterSettings,
    filtering_bound,
    propose,
    stratified,
    systematic,
)
from ftmodel.mapper import pack_bits
from tests.support.enumeration import Exact, assert_near
from tests.support.mutants import rejects
from tests.support.passes import drawing

ROWS = 5000  # independent filters of one sequence
FLOAT32 = {"atol": 1e-4, "rtol": 1e-5}  # sums in float64 of what a model gives in float32


@pytest.fixture(params=[(1, 12), (4, 3)], ids=lambda p: f"H{p[0]}T{p[1]}")
def case(request, make_model, make_tokens):
    """A model, ``ROWS`` copies of a sequence's inputs and targets (ROWS, T), and the truth."""
    bits, length = request.param
    model = make_model(latent_bits=bits, n_layers=2)
    tokens = make_tokens(1, length + 1).expand(ROWS, -1)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    truth = Exact(model, inputs[0], targets[0])
    assert truth.prior_ce > truth.nll + 0.3, "z that changes nothing would test nothing"
    return model, inputs, targets, truth


@rejects("filtering.filtering_bound: «cloud.move→»(", "caches not resampled", case="H1T12-half")
@rejects(
    "LayerCache.move: «self.keys, self.values→(self.values,)»:", "keys not moved", case="H1T12-half"
)
@rejects(
    "filtering.filtering_bound: «log_weights[poor]→_» = -", "weights not reset", case="H1T12-half"
)
@rejects(
    "filtering.filtering_bound: «logsumexp(1)→mean(1) + log(particles)» nll",
    "log of the mean weight taken as the mean of logs",
    case="H1T12-half",
)
@rejects(
    "filtering.filtering_bound: = «→0 * »log_weights - «log_p[:, None]→log(particles)»",
    "weights of a token not carried on to the next",
    case="H1T12-half",
)
@pytest.mark.parametrize(
    ("particles", "resample_below", "proposal", "stratify"),
    [
        *((1, 0.5, 0.0, False), (5, 0, 0.0, False), (5, 0.5, 0.0, False), (5, 1.1, 0.0, False)),
        *((3, 0.5, 0.3, False), (3, 0.5, 1.0, False), (4, 0.5, 0.3, True), (5, 1.1, 0.0, True)),
    ],
    ids=["one", "never", "half", "always", "both", "encoder", "stratified", "all stratified"],
)
def test_the_probability_is_unbiased(case, rng, particles, resample_below, proposal, stratify):
    """exp(−bound) averages to p(x) over 5000 filters, by enumeration of every z."""
    model, inputs, targets, truth = case
    draw = drawing(rng, *inputs.shape, model.config.latent_bits)
    settings = FilterSettings(resample_below, proposal, stratify)
    bound = filtering_bound(model, inputs, targets, particles, draw, settings=settings)
    assert bound.dtype == torch.float64
    assert_near((truth.nll - bound).exp(), 1.0)
    assert bound.mean() > truth.nll


@rejects("filtering.filtering_bound: «hidden[poor]→_» =", "resampled without what the prior reads")
def test_the_filter_of_a_recurrent_prior_is_unbiased_when_it_resamples(
    make_model, make_tokens, rng
):
    model = make_model(latent_bits=1, n_layers=2, latent={"prior": "recurrent"})
    with torch.no_grad():
        model.latent.post_sampler.mul_(6)
        model.latent.prior.readout.weight.mul_(4)
    tokens = make_tokens(1, 9).expand(ROWS, -1)
    inputs, targets, draw = tokens[:, :-1], tokens[:, 1:], drawing(rng, ROWS, 8, 1)
    truth = Exact(model, inputs[0], targets[0])
    filtered = filtering_bound(model, inputs, targets, 4, draw, settings=FilterSettings(1.0))
    assert_near((truth.nll - filtered).exp(), 1.0)


@rejects(
    "filtering.stratified: noise«→.cumsum(1)».argsort", "one particle always in the lowest stratum"
)
def test_stratified_noise_is_uniform_for_each_particle_and_even_over_all(rng):
    noise, shift = torch.rand(4000, 5, 2, generator=rng), torch.rand(4000, 2, generator=rng)
    new = stratified(noise, shift)
    expected = (torch.arange(5)[:, None] + shift[:, None]) / 5
    torch.testing.assert_close(new.sort(1).values, expected, atol=2e-7, rtol=0)
    assert (new * NOISE_STEPS == (new * NOISE_STEPS).round()).all()
    for q in (0.1, 0.5, 0.77):  # each particle, and each two of its bits together
        below = (new < q).double()
        for particle in range(5):
            assert_near(below[:, particle, 0], q)
            assert_near(below[:, particle].prod(-1), q * q)


@rejects("filtering.filtering_bound: : «noise→_»", "noise that is stratified and not used")
def test_stratified_particles_make_a_bound_tighter(make_model, make_tokens, rng):
    """Without a resampling that would hide it: of one bit, half of the particles set it."""
    model = make_model(latent_bits=1, n_layers=2)
    tokens = make_tokens(1, 3).expand(500, -1)
    bounds = [
        filtering_bound(
            *(model, tokens[:, :-1], tokens[:, 1:], 2, drawing(rng, 500, 2, 1)),
            settings=FilterSettings(0.0, 0.0, stratify),
        ).var()
        for stratify in (False, True)
    ]
    assert bounds[1] < 0.8 * bounds[0]


def test_systematic_resampling(rng):
    """Of K particles with weights W each is drawn ⌊K W⌋ or ⌈K W⌉ times, K W times on average."""
    weights = torch.rand(6, dtype=torch.float64, generator=rng)
    weights[2] = 0
    weights /= weights.sum()
    uniform = torch.arange(50_000, dtype=torch.float64) / 50_000
    drawn = systematic(weights.expand(50_000, -1), uniform)
    counts = torch.nn.functional.one_hot(drawn, 6).sum(1)
    expected = 6 * weights
    assert (counts >= expected.floor()).all()
    assert (counts <= expected.ceil()).all()
    torch.testing.assert_close(counts.double().mean(0), expected, atol=1e-3, rtol=0)
    first_without_weight = torch.tensor([[0, 0.5, 0.5]], dtype=torch.float64)
    assert systematic(first_without_weight, torch.zeros(1).double()).tolist() == [[1, 1, 2]]
    rounded = torch.tensor([[0.5, 0.5 - 1e-9]], dtype=torch.float64)  # sum up to less than 1
    last = torch.tensor([1 - 1e-12], dtype=torch.float64)
    assert systematic(rounded, last).tolist() == [[0, 1]]


class Planted:
    """A Free Transformer of one bit per token whose upper half is given: a function of the z of all
    tokens so far, which it reads from its cache; and so is its encoder.
    """

    config = ModelConfig(1, 2, 1, 1, 1, 99, latent_bits=1, latent_block=1)
    embedding = SimpleNamespace(weight=torch.zeros(1))
    blocks = (None,)  # no Block: the fast decoder does not take it
    latent = SimpleNamespace(
        embed=lambda codes: codes[..., None].float(),
        draw=lambda draws, *_: pack_bits(draws.noise < 0.5),
        prior=UniformPrior(None),
    )
    noise_source = SimpleNamespace(width=1)

    def __init__(self, symbols, log_probs, encode=torch.zeros_like):
        """``log_probs``: of the next symbol (B, T, symbols), from z (B, T) up to each token;
        ``encode``: logits of z (B, T, 1) of tokens (B, T, 1).
        """
        self.log_probs, self.of_tokens = log_probs, encode
        self.readout = SimpleNamespace(weight=torch.eye(symbols))

    def positions(self, *_, **__):
        return SimpleNamespace(span_starts=None)

    def lower(self, tokens, at):
        return tokens[..., None].float()

    def encode(self, tokens, x, at):
        return self.of_tokens(x)

    def prior_logits(self, x, at, hidden):
        return None

    def upper(self, x, r, at, cache=None):
        layer = cache[0] if cache else LayerCache(x.shape[1])
        z = layer.append(r[:, None], r[:, None])[0][:, 0, :, 0]  # (B, t)
        return self.log_probs(z)[:, -x.shape[1] :]


def parity(z):
    """The next symbol is the parity of all z so far, or, one time in a thousand, the other."""
    odd = z.cumsum(1) % 2
    return torch.stack((1 - odd, odd), dim=-1).clamp(0.001, 0.999).log()


def test_a_model_whose_z_decides_everything_has_its_true_likelihood(rng):
    """Under a z that is uniform the parity is: every sequence of 64 symbols has 2^−64. Importance
    sampling does not meet a z that suits them; a particle whose z changed without its past, or the
    other way round, would have the parity of neither.
    """
    tokens = torch.randint(2, (50, 65), generator=rng)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    model, draw = Planted(2, parity), drawing(rng, 50, 64, 1)
    bound = filtering_bound(model, inputs, targets, 256, draw) / 64 / LN2
    assert bound.mean().item() == pytest.approx(1, abs=0.01)
    iwae = latent_bounds(model, inputs, targets, 16, draw).iwae / 64 / LN2
    assert iwae.mean() > 3


@pytest.mark.parametrize(
    ("particles", "x", "resampled"), [(4, 0.15, True), (4, 0.16, False), (2, 1e-30, False)]
)
def test_particles_are_resampled_below_half_their_effective_number(
    monkeypatch, particles, x, resampled
):
    """One has weight 1, the others x. Of four (1 + 3x)² / (1 + 3x²) is 2 at x = 0.155."""
    calls = []
    monkeypatch.setattr(filtering, "systematic", lambda *a: calls.append(a) or systematic(*a))

    def one_and_x(z):
        p = torch.where(z == 1, 0.9, 0.9 * x)
        return torch.stack((1 - p, p), dim=-1).log()

    z = (torch.arange(particles) == 0).long()
    draws = iter([*(0.75 * (1 - z)).view(-1, 1, 1, 1), torch.zeros(1, 1, 1)])
    ones = torch.ones(1, 1, dtype=torch.long)
    bound = filtering_bound(Planted(2, one_and_x), ones, ones, particles, draws.__next__)
    assert bound.exp().item() == pytest.approx(particles / (0.9 * (1 + (particles - 1) * x)))
    assert len(calls) == resampled


@pytest.mark.parametrize("latent", [{}, {"prior": "recurrent"}, {"per": "every", "every": 3}])
def test_it_is_the_same_by_either_decoder(make_model, make_tokens, monkeypatch, rng, latent):
    """Where the last block alone reads z, and has a cache."""
    model, tokens, bounds = make_model(latent=latent, latent_block=4), make_tokens(5, 9), []
    noise = torch.rand(5, 5, 8, 3, generator=rng)
    for unread, kind in enumerate((FastDecoder, PlainDecoder)):
        noise[4, ..., 1:] = unread / 2  # resampling uses the first of H numbers
        monkeypatch.setattr(filtering, "make_decoder", kind)
        draws = iter(noise)
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        bounds.append(
            filtering_bound(model, inputs, targets, 4, draws.__next__, None, FilterSettings(1.1))
        )
    torch.testing.assert_close(*bounds, **FLOAT32)


def test_a_single_symbol_is_certain(make_model, rng):
    """No particle is lost to rounding: the bound of what has probability 1 is 0."""
    tokens = torch.zeros(3, 9, dtype=torch.long)
    bound = filtering_bound(make_model(vocab_size=1), tokens, tokens, 7, drawing(rng, 3, 9, 3))
    torch.testing.assert_close(bound, torch.zeros(3, dtype=torch.float64), atol=1e-5, rtol=0)


def test_a_proposal_mixes_the_logits_of_the_encoder_with_those_of_a_learned_prior(make_model, rng):
    latent = make_model(latent={"prior": "learned"}).latent
    x, before, o = (torch.randn(2, 1, n, generator=rng) for n in (16, 16, 3))
    x, o = x[:, 0], o[:, 0]
    noise = torch.rand(2, 5, 3, generator=rng)
    prior = latent.prior(x[:, None], before.expand(2, 5, 16))
    codes, log_ratio = propose(latent, x, before.expand(2, 5, 16), noise, o, 0.25)
    q, p = (logits.sigmoid() for logits in (o[:, None] / 4 + 3 / 4 * prior, prior))
    bits = noise < q
    assert torch.equal(codes, pack_bits(bits))
    ratio = torch.where(bits, p / q, (1 - p) / (1 - q)).log().sum(-1)
    torch.testing.assert_close(log_ratio, ratio.double(), check_dtype=False, **FLOAT32)
    for logits in (None, torch.zeros(2, 3)):  # a draw that equals the probability sets no bit
        half = propose(make_model().latent, x, before, torch.full((2, 5, 3), 0.5), logits, 1.0)
        assert not half[0].any()
