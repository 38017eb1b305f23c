"""The bounds against the true NLL: of models so small that every z can be enumerated, and of
processes whose likelihood is known.
"""

from itertools import pairwise
from math import hypot, isnan, log
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from ftmodel.analysis.statistics import mean_and_error
from ftmodel.inference import bounds
from ftmodel.inference.bounds import exact_nll, importance_bound, latent_bounds, sampled_probability
from ftmodel.inference.filtering import filtering_bound
from ftmodel.model.config import ModelConfig
from ftmodel.model.objective import LN2, kl_per_bit, training_loss
from ftmodel.model.transformer import FreeTransformer
from ftmodel.synthetic import coin_flip
from ftmodel.synthetic.registry import PROCESSES
from tests.support.enumeration import Exact, assert_near
from tests.support.mutants import rejects

STEPS = 500  # of training, seconds
ROWS = 4096  # copies of one sequence: each row of a batch draws its own z
FLOAT32 = {"atol": 1e-5, "rtol": 1e-5}  # sums in float64 of what a model gives in float32


@pytest.fixture(params=[(1, 3), (2, 2)], ids=["H=1, T=3", "H=2, T=2"])
def case(request, make_model, make_tokens):
    """A model, inputs and targets (ROWS, T) that are copies of one sequence, and the truth."""
    bits, length = request.param
    model = make_model(latent_bits=bits, n_layers=2)
    tokens = make_tokens(1, length + 1).expand(ROWS, -1)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    truth = Exact(model, inputs[0], targets[0])
    assert truth.posterior_ce + truth.kl > truth.nll + 0.05, "a tight bound would test nothing"
    return model, inputs, targets, truth


@pytest.fixture
def bounds_of(rng):
    """latent_bounds with noise of the fixture rng."""

    def bounds(model, inputs, targets, samples, segment_ids=None):
        shape = (*inputs.shape, model.config.latent_bits)
        return latent_bounds(
            model, inputs, targets, samples, lambda: torch.rand(shape, generator=rng), segment_ids
        )

    return bounds


def test_nll_of_a_baseline_is_its_summed_cross_entropy(make_model, make_tokens):
    model, tokens = make_model(latent_bits=0), make_tokens(4, 9)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    log_p = model.logits(model(inputs).hidden).log_softmax(-1)
    expected = [-sum(log_p[b, t, targets[b, t]].item() for t in range(8)) for b in range(4)]
    assert exact_nll(model, inputs, targets).tolist() == pytest.approx(expected, rel=1e-5)


@rejects(
    "inference/bounds.py",
    "torch.cat(nll).view_as",
    "torch.cat(nll[::-1]).view_as",
    "chunks of log-probabilities in another order",
)
def test_chunks_of_logits_change_nothing(make_model, make_tokens, monkeypatch):
    model, tokens = make_model(latent_bits=0), make_tokens(5, 8)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    at_once = exact_nll(model, inputs, targets)
    for rows in (1, 3, 34):
        monkeypatch.setattr(bounds, "LOGITS", rows * 11)
        torch.testing.assert_close(exact_nll(model, inputs, targets), at_once, **FLOAT32)


def test_kl_is_that_of_the_whole_z(case, bounds_of):
    """One sequence's KL by its definition, Σ_z q log(q / p); no sampling is involved."""
    model, inputs, targets, truth = case
    bounds = bounds_of(model, inputs[:2], targets[:2], 1)
    assert bounds.kl.tolist() == pytest.approx([truth.kl] * 2, abs=1e-5)
    assert bounds.kl_bits.shape == (2, model.config.latent_bits)
    torch.testing.assert_close(bounds.kl_bits.sum(-1), bounds.kl)


@rejects("inference/bounds.py", "elbo=mean_ce + kl_bits.sum(-1)", "elbo=mean_ce", "ELBO without KL")
@pytest.mark.parametrize("samples", [1, 3])
def test_elbo_is_the_posterior_cross_entropy_plus_kl(case, bounds_of, samples):
    model, inputs, targets, truth = case
    bounds = bounds_of(model, inputs, targets, samples)
    assert_near(bounds.ce, truth.posterior_ce)
    assert_near(bounds.elbo, truth.posterior_ce + truth.kl)
    assert bounds.elbo.mean() > truth.nll


@rejects(
    "inference/bounds.py",
    "(log(k) - grouped.logsumexp(1)).mean(0)",
    "-grouped.mean(1).mean(0)",
    "IWAE averaging logarithms",
)
def test_iwae_starts_at_the_elbo_and_tightens_towards_the_nll(case, bounds_of):
    """In the mean it falls with K and never passes the truth (Burda et al. 2016, theorem 1)."""
    model, inputs, targets, truth = case
    iwae = [bounds_of(model, inputs, targets, k).iwae for k in (1, 4, 32)]
    assert_near(iwae[0], truth.posterior_ce + truth.kl)
    means = [values.mean().item() for values in iwae]
    errors = [values.std().item() / ROWS**0.5 for values in iwae]
    assert means[0] - means[1] > 4 * hypot(errors[0], errors[1])
    assert means[1] - means[2] > 4 * hypot(errors[1], errors[2])
    assert means[2] > truth.nll - 4 * errors[2]


@rejects(
    "inference/bounds.py",
    "sums(log_density_ratio(bits, p, q), ids) - ce[-1]",
    "-ce[-1]",
    "IWAE without its weights",
)
@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("bound", ["iwae", "prior"])
def test_sampled_probability_is_unbiased(case, bounds_of, bound, samples):
    """exp(−bound) is an importance-sampling estimate of p(x), for any number of samples."""
    model, inputs, targets, truth = case
    bounds = bounds_of(model, inputs, targets, samples)
    ratio = (truth.nll - getattr(bounds, bound)).exp()
    assert_near(ratio, 1.0)


def test_prior_bound_of_one_sample_is_the_prior_cross_entropy(case, bounds_of):
    model, inputs, targets, truth = case
    assert_near(bounds_of(model, inputs, targets, 1).prior, truth.prior_ce)


def test_with_many_samples_both_bounds_reach_the_nll_of_each_sequence(
    make_model, make_tokens, bounds_of
):
    """Five sequences in one batch, 200 copies of each: none may borrow from another."""
    model, tokens = make_model(latent_bits=1, n_layers=2), make_tokens(5, 4)
    nll = [Exact(model, s[:-1], s[1:]).nll for s in tokens]
    assert max(nll) - min(nll) > 1
    copies = tokens.repeat(200, 1)
    bounds = bounds_of(model, copies[:, :-1], copies[:, 1:], 500)
    for bound in (bounds.iwae, bounds.prior):
        assert bound.view(200, 5).mean(0).tolist() == pytest.approx(nll, abs=0.02)


@pytest.mark.parametrize("reader", [None, 1, 4])
def test_bounds_use_the_same_weights_as_the_forward_pass(
    make_model, make_tokens, bounds_of, reader
):
    """With certain bits there is one z: CE is that of forward(), and KL is all H T bits."""
    model, tokens = make_model(latent_block=reader), make_tokens(3, 7)
    with torch.no_grad():
        model.latent.readout.weight.mul_(1e6)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    bounds = bounds_of(model, inputs, targets, 2)
    logits = model.logits(model(inputs, noise=torch.full((3, 6, 3), 0.5)).hidden)
    ce = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").sum(1)
    torch.testing.assert_close(bounds.ce, ce.detach().double(), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(bounds.kl, torch.full((3,), 18 * LN2).double(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("o", [-1e4, -30.0, -17.0, -16.0, -3.0, 0.3, 16.0, 17.0, 30.0])
def test_a_bit_is_one_as_often_as_its_probability_says(o):
    """Counted over every value that float32 noise has."""
    noise = torch.arange(1 << 24).float() / (1 << 24)
    q = sampled_probability(torch.tensor(o))
    assert (noise < q).double().mean().item() == q.item()
    assert q.item() == pytest.approx(torch.tensor(o).double().sigmoid().item(), abs=2**-24)


@rejects(
    "inference/bounds.py",
    "return (o.double().sigmoid() * NOISE_STEPS).ceil().clamp(1, NOISE_STEPS - 1)",
    "return (o.double().sigmoid() * NOISE_STEPS)",
    "rare bits weighed by a probability that noise does not have",
)
@pytest.mark.parametrize("o", [-1e4, -30.0, -17.0, -5.0, 0.3, 17.0, 30.0])
def test_the_estimate_of_a_probability_is_unbiased_where_bits_saturate(o):
    """One token of two, each with probability 1/2 whatever z is; the bit's logit is o. Noise of 0,
    which is all there is below 2^-24, sets even a bit of logit −30. The estimate has two values:
    with the share of the noise values that give each of them, they average to 1/2.
    """
    model = SimpleNamespace(
        config=SimpleNamespace(latent_bits=1),
        readout=SimpleNamespace(weight=torch.zeros(2, 1)),
        positions=lambda *_: None,
        lower=lambda tokens, positions: tokens[..., None].float(),
        upper=lambda x, r, positions: torch.zeros_like(x),
        encode=lambda tokens, x, positions: torch.full_like(x, o),
        latent=SimpleNamespace(embed=lambda codes: codes),
        prior_logits=lambda *_: None,
        upper_from_prior=lambda x, *_: (torch.zeros_like(x), None),
    )
    noise = torch.tensor([0.0, 1 - 2.0**-24])[:, None, None]  # sets the bit, and does not
    tokens = torch.zeros(2, 1, dtype=torch.long)
    bounds = latent_bounds(model, tokens, tokens, 1, lambda: noise)
    counts = torch.arange(1 << 24).float() / (1 << 24) < sampled_probability(torch.tensor(o))
    share = counts.double().mean().item()
    one, zero = (-bounds.iwae).exp().tolist()
    assert share * one + (1 - share) * zero == pytest.approx(0.5, rel=1e-6)
    elbo = share * bounds.iwae[0] + (1 - share) * bounds.iwae[1]
    assert bounds.elbo[0].item() == pytest.approx(elbo.item(), rel=1e-6)


def test_weights_of_bits_that_do_not_saturate_are_those_of_the_logits(make_model, make_tokens, rng):
    model, tokens = make_model(), make_tokens(50, 10)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    noise = torch.rand(2, 50, 9, 3, generator=rng)
    drawn = iter(noise)
    bounds = latent_bounds(model, inputs, targets, 1, lambda: next(drawn))
    out = model(inputs, noise=noise[0])
    o = out.bit_logits
    assert o.abs().max() < 9
    nll = F.cross_entropy(model.logits(out.hidden).mT, targets, reduction="none").sum(1)
    log_q = -F.binary_cross_entropy_with_logits(
        o, (noise[0] < o.sigmoid()).float(), reduction="none"
    ).sum((1, 2))
    expected = (-nll - 27 * LN2 - log_q).detach()
    torch.testing.assert_close(bounds.log_weights[0].float(), expected, atol=1e-3, rtol=1e-5)
    torch.testing.assert_close(
        bounds.kl.float(), kl_per_bit(o).sum((1, 2)).detach(), atol=1e-4, rtol=1e-5
    )


@rejects("inference/bounds.py", "device, segment_ids", "device", "chunks of a row scored as one")
def test_chunks_packed_into_rows_are_bounded_as_if_each_were_alone(make_model, make_tokens, rng):
    """Rows of 9 tokens: chunks of 4 and 3 with padding, and one of 9; each has its own noise."""
    model, k = make_model(), 3
    spans = {1: (0, 0, 4), 2: (0, 4, 7), 3: (1, 0, 9)}  # row, start, end of each chunk
    tokens = {chunk: make_tokens(1, end - start + 1) for chunk, (_, start, end) in spans.items()}
    inputs, targets, segment_ids = (torch.zeros(2, 9, dtype=torch.long) for _ in range(3))
    noise = torch.rand(2 * k, 2, 9, 3, generator=rng)
    for chunk, (row, start, end) in spans.items():
        inputs[row, start:end], targets[row, start:end] = (
            tokens[chunk][0, :-1],
            tokens[chunk][0, 1:],
        )
        segment_ids[row, start:end] = chunk
    drawn = iter(noise)
    packed = vars(latent_bounds(model, inputs, targets, k, lambda: next(drawn), segment_ids))
    baseline = make_model(latent_bits=0)
    nll = exact_nll(baseline, inputs, targets, segment_ids)
    for chunk, (row, start, end) in spans.items():
        drawn = iter(noise[:, row : row + 1, start:end])
        alone = tokens[chunk][:, :-1], tokens[chunk][:, 1:]
        for name, value in vars(latent_bounds(model, *alone, k, lambda: next(drawn))).items():  # noqa: B023
            at = packed[name][..., chunk - 1] if name == "log_weights" else packed[name][chunk - 1]
            value = value.squeeze(-1 if name == "log_weights" else 0)
            torch.testing.assert_close(at, value, **FLOAT32)
        torch.testing.assert_close(nll[chunk - 1], exact_nll(baseline, *alone)[0], **FLOAT32)


def test_importance_bound_is_the_mean_over_disjoint_groups_of_samples():
    log_weights = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0]).log()[:, None].double()
    bounds = [importance_bound(log_weights, k).item() for k in (1, 2, 5)]
    assert bounds[0] == pytest.approx(-2 * LN2)  # the mean of log 1, 2, 4, 8, 16 = log 4
    assert bounds[1] == pytest.approx(-(log(1.5) + log(6)) / 2)  # the last of five is left over
    assert bounds[2] == pytest.approx(-log(31 / 5))


def test_mean_and_its_standard_error():
    figures = mean_and_error(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert figures == pytest.approx({"mean": 2.5, "se": (5 / 3) ** 0.5 / 2})
    assert isnan(mean_and_error(torch.ones(1))["se"])


@rejects(
    "analysis/statistics.py",
    "residuals = totals - mean * sizes",
    "residuals = totals - totals.mean()",
    "standard error as if all documents had one size",
)
def test_standard_error_over_documents_of_different_sizes(rng):
    """Against the jackknife, which leaves out one document at a time and knows no formula; and
    far from the error of documents that are taken to be alike in size.
    """
    sizes = 10 + 500 * torch.rand(400, generator=rng, dtype=torch.float64) ** 3
    totals = sizes * (2 + 0.3 * torch.randn(400, generator=rng, dtype=torch.float64))
    figures = mean_and_error(totals, sizes)
    left_out = (totals.sum() - totals) / (sizes.sum() - sizes)
    jackknife = (399 / 400 * (left_out - left_out.mean()).square().sum()).sqrt().item()
    assert figures["mean"] == pytest.approx((totals.sum() / sizes.sum()).item())
    assert figures["se"] == pytest.approx(jackknife, rel=0.03)
    assert mean_and_error(totals / sizes.mean())["se"] > 3 * jackknife


def test_tokens_of_one_document_are_no_independent_evidence(rng):
    """Documents that are each said 100 times over are as uncertain as before."""
    totals, sizes = torch.rand(30, generator=rng), torch.ones(30)
    assert mean_and_error(100 * totals, 100 * sizes) == pytest.approx(mean_and_error(totals))


class KnowsTheCoin:
    """The coin itself in the form of a Free Transformer with one bit per token: the first z of a
    sequence is the coin's side, the others say nothing, so that its likelihood is the coin's. Its
    encoder is far from the true posterior.
    """

    config = SimpleNamespace(latent_bits=1)
    readout = SimpleNamespace(weight=torch.eye(3))  # the hidden state is the log-probabilities

    def __init__(self):
        self.latent = SimpleNamespace(embed=self.embed)

    def positions(self, start, length, device, documents=None):
        return documents

    def lower(self, tokens, positions):
        return (tokens == coin_flip.ONE)[..., None].float()

    def encode(self, tokens, x, positions):
        """Half the log-odds of as many ones, at the first token; lots are drawn at the others."""
        lead = (2 * x[:, 1:, 0] - 1).sum(1)
        o = torch.full(x.shape, 0.3)
        o[:, 0, 0] = lead * log((1 - coin_flip.EPSILON) / coin_flip.EPSILON) / 2
        return o

    def embed(self, codes):
        return 2.0 * codes[..., None] - 1

    def prior_logits(self, x, positions, hidden, documents):
        return None

    def upper_from_prior(self, x, noise, positions, documents):
        z = (noise[..., 0] < 0.5).long()
        return self.upper(x, self.embed(z), positions), z

    def upper(self, x, r, positions):
        side = (r[:, :1, 0] + 1) / 2  # (B, 1)
        p = coin_flip.probability_of_one(side).expand(-1, x.shape[1])
        return torch.stack((torch.full_like(p, 1e-30), 1 - p, p), dim=-1).log()


@rejects(
    "inference/bounds.py",
    "iwae=importance_bound(log_weights, samples)",
    "iwae=mean_ce",
    "reconstruction in place of the bound",
)
@rejects(
    "inference/bounds.py",
    "log_density_ratio(bits, p, q), ids)",
    "torch.where(bits, p, (1 - p).expand_as(q)).log().sum(-1), ids)",
    "IWAE without the posterior's density",
)
def test_bounds_of_the_coin_itself_reach_its_exact_likelihood(rng):
    """Closed form: sampled probabilities average to the exact one; bounds fall to it with K."""
    rows = coin_flip.sample_sequences(2000, rng)
    exact = -coin_flip.exact_log_probability(rows)
    shape = (2000, coin_flip.FLIPS, 1)
    bounds = latent_bounds(
        KnowsTheCoin(), rows[:, :-1], rows[:, 1:], 64, lambda: torch.rand(shape, generator=rng)
    )
    for bound in (bounds.prior, bounds.iwae):
        assert_near((exact - bound).exp(), 1.0)
    iwae = [mean_and_error(importance_bound(bounds.log_weights, k) - exact) for k in (1, 8, 64)]
    elbo = mean_and_error(bounds.elbo - exact)
    assert iwae[0]["mean"] == pytest.approx(elbo["mean"], abs=4 * iwae[0]["se"])
    assert iwae[0]["mean"] > iwae[1]["mean"] + 0.1 > iwae[2]["mean"] + 0.2
    assert -3 * iwae[2]["se"] < iwae[2]["mean"] < 0.1
    assert (bounds.ce - exact).mean() < -0.2  # given z: no bound


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kappa"), [("coin", 1 / 32), ("target", 2.0)])
def test_bounds_of_a_trained_model_are_above_the_exact_nll_and_fall_with_samples(name, kappa):
    """On processes whose likelihood is known, with errors over sequences. Holds for any outcome of
    the training, which brings the bounds close enough to the truth for a wrong one to fall below.
    """
    process, bits = PROCESSES[name], 2
    torch.manual_seed(0)
    shape = dict(n_layers=2, d_model=32, n_heads=2, n_kv_heads=2, ffn_width=64)
    start = dict(rope_theta=100.0, embedding_std=1.0, latent_std=0.5)
    config = ModelConfig(**shape, **start, context=process.row - 1, latent_bits=bits)
    model = FreeTransformer(config, len(process.symbols))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    rng = torch.Generator().manual_seed(0)

    def noise(rows):
        return torch.rand(rows, process.row - 1, bits, generator=rng)

    for _ in range(STEPS):
        rows = process.sample(32, rng)
        loss = training_loss(model, rows[:, :-1], rows[:, 1:], noise(32), kappa)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()

    rows = process.sample(256, rng)
    exact = -process.log_probability(rows)
    bounds = latent_bounds(model.eval(), rows[:, :-1], rows[:, 1:], 16, lambda: noise(256))
    iwae = [importance_bound(bounds.log_weights, k) for k in (1, 2, 4, 8, 16)]
    filtering = filtering_bound(model, rows[:, :-1], rows[:, 1:], 8, lambda: noise(256))
    for bound in (bounds.elbo, bounds.prior, *iwae, filtering):
        above = mean_and_error(bound - exact)
        assert above["mean"] > -4 * above["se"]
    one = mean_and_error(iwae[0] - bounds.elbo)
    assert abs(one["mean"]) <= 4 * one["se"] + 1e-6  # log q and KL are of the same q
    for fewer, more in pairwise(iwae):  # E of IWAE-k never rises with k (Burda et al. 2016)
        fall = mean_and_error(fewer - more)
        assert fall["mean"] >= -4 * fall["se"] - 1e-6
