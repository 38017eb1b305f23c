"""The NLL of a baseline, and what bounds are made of; test_designs.py has the bounds themselves."""

from math import log

import pytest
import torch

from ftmodel.config import LatentDesign, Prior
from ftmodel.designs.hinge import LN2
from ftmodel.inference import bounds
from ftmodel.inference.bounds import exact_nll, importance_bound, latent_bounds, sampled_probability
from ftmodel.kernels.product import product
from tests.inference.test_filtering import Planted
from tests.support.mutants import rejects

FLOAT32 = {"atol": 1e-5, "rtol": 1e-5}  # sums in float64 of what a model gives in float32


def test_nll_of_a_baseline_is_its_summed_cross_entropy(make_model, make_tokens, monkeypatch):
    """However few log-probabilities are computed at a time, and of chunks of a row apart."""
    model, tokens = make_model(latent_bits=0), make_tokens(4, 9)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    log_p = model.logits(model(inputs).hidden).log_softmax(-1)
    expected = [-sum(log_p[b, t, targets[b, t]].item() for t in range(8)) for b in range(4)]
    read = []
    recorded = lambda x, weight: read.append(len(x)) or product(x, weight)  # noqa: E731
    monkeypatch.setattr(bounds, "product", recorded)
    for logits, rows in ((5, [1] * 32), (11, [1] * 32), (131, [11, 11, 10]), (1000, [32])):
        monkeypatch.setattr(bounds, "LOGITS", logits)
        assert exact_nll(model, inputs, targets).tolist() == pytest.approx(expected, rel=1e-5)
        assert read == rows
        read.clear()
    chunks = torch.arange(4)[:, None] * 2 + torch.tensor([1] * 5 + [2] * 3)
    alone = [exact_nll(model, inputs[:, at], targets[:, at]) for at in (slice(5), slice(5, 8))]
    packed = exact_nll(model, inputs, targets, chunks)
    torch.testing.assert_close(packed, torch.stack(alone, 1).flatten(), **FLOAT32)


@rejects(
    "bounds.sampled_probability: «.ceil().clamp(1, NOISE_STEPS - 1)→»", "odds finer than noise"
)
@pytest.mark.parametrize("o", [-1e4, -30.0, -17.0, -16.0, -3.0, 0.3, 17.0, 30.0])
def test_estimates_are_unbiased_where_bits_saturate(o):
    """A bit of logit o is one as often as its probability says, counted over every value that
    float32 noise has. Then one token of two, each with probability 1/2 whatever z is: noise of 0,
    which is all there is below 2^-24, sets even a bit of logit −30. The estimate has two values:
    with the share of the noise values that give each of them, they average to 1/2.
    """
    noise = torch.arange(1 << 24).float() / (1 << 24)
    q = sampled_probability(torch.tensor(o))
    share = (noise < q).double().mean().item()
    assert 0 < share == q.item() < 1
    assert share == pytest.approx(torch.tensor(o).double().sigmoid().item(), abs=2**-24)
    model = Planted(2, lambda z: torch.zeros(*z.shape, 2), lambda x: torch.full_like(x, o))
    noise = torch.tensor([0.0, 1 - 2.0**-24])[:, None, None]  # sets the bit, and does not
    tokens = torch.zeros(2, 1, dtype=torch.long)
    bounds = latent_bounds(model, tokens, tokens, 1, lambda: noise)
    one, zero = (-bounds.iwae).exp().tolist()
    assert share * one + (1 - share) * zero == pytest.approx(0.5, rel=1e-6)
    elbo = share * bounds.iwae[0] + (1 - share) * bounds.iwae[1]
    assert bounds.elbo[0].item() == pytest.approx(elbo.item(), rel=1e-6)


@rejects("bounds.latent_bounds: torch.stack(kl)«.mean(0)→[-1]»", "the KL of the last sample alone")
@pytest.mark.parametrize("prior", Prior)
def test_bounds_of_several_samples_are_means_over_those_of_each(make_model, make_tokens, prior):
    """Under a recurrent prior the KL, too, is another for each sample."""
    model, tokens = make_model(latent=LatentDesign(prior=prior)), make_tokens(2, 9)
    noise = torch.rand(6, 2, 8, 3, generator=torch.Generator().manual_seed(0))
    common = model, tokens[:, :-1], tokens[:, 1:]
    found = latent_bounds(*common, 3, iter(noise).__next__)
    each = [latent_bounds(*common, 1, iter(noise[2 * k :]).__next__) for k in range(3)]
    for name in ("ce", "kl", "elbo", "kl_bits"):
        values = torch.stack([getattr(one, name) for one in each])
        torch.testing.assert_close(getattr(found, name), values.mean(0), **FLOAT32)
        varies = values.std(0).min() > 1e-4
        assert varies == (name in ("ce", "elbo") or prior is Prior.recurrent), name
    for name in ("iwae", "prior"):  # −log of the mean probability
        log_p = -torch.stack([getattr(one, name) for one in each])
        expected = log(3) - log_p.logsumexp(0)
        torch.testing.assert_close(getattr(found, name), expected, **FLOAT32)


@rejects(
    "bounds.importance_bound: «log(k) - grouped.logsumexp→-grouped.mean»(1)", "IWAE of logarithms"
)
def test_importance_bound_is_the_mean_over_disjoint_groups_of_samples():
    log_weights = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0]).log()[:, None].double()
    bounds = [importance_bound(log_weights, k).item() for k in (1, 2, 5)]
    assert bounds[0] == pytest.approx(-2 * LN2)  # the mean of log 1, 2, 4, 8, 16 = log 4
    assert bounds[1] == pytest.approx(-(log(1.5) + log(6)) / 2)  # the last of five is left over
    assert bounds[2] == pytest.approx(-log(31 / 5))
