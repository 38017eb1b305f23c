"""The training loss: KL against brute force, the hinge per token, κ in bits."""

from math import log

import pytest
import torch
from torch.nn import functional as F

from ftmodel.model.latent_design import FreeBits
from ftmodel.model.objective import collapsed, free_bits, kl_of_use, kl_per_bit, training_loss
from ftmodel.model.spans import mean_over_spans
from tests.support.mutants import rejects

LN2 = log(2)


@rejects("model/objective.py", "prior * q) - entropy", "prior * q) / 2 - entropy / 2", "KL halved")
@rejects(
    "model/objective.py", "prior * q) - entropy", "prior * q) / LN2 - entropy / LN2", "KL in bits"
)
@pytest.mark.parametrize("bits", [1, 3, 6])
def test_kl_equals_the_sum_over_all_codes(rng, bits):
    """Σ_d q(d) log(q(d) / 2^−H), in nats, with q(d) the product over the bits of d."""
    o = torch.randn(5, bits, generator=rng, dtype=torch.float64) * 2
    p = o.sigmoid()
    brute = torch.zeros(5, dtype=torch.float64)
    for code in range(1 << bits):
        ones = torch.tensor([code >> h & 1 for h in range(bits)], dtype=torch.bool)
        q = torch.where(ones, p, 1 - p).prod(-1)
        brute += q * (q * 2**bits).log()
    torch.testing.assert_close(kl_per_bit(o).sum(-1), brute)


def test_kl_to_a_prior_with_probabilities_of_its_own(rng):
    """Σ_d q(d) log(q(d) / p(d)), in nats; 0 to itself, and the prior has a gradient."""
    o, prior = torch.randn(2, 5, 3, generator=rng, dtype=torch.float64) * 2
    brute = torch.zeros(5, dtype=torch.float64)
    for code in range(8):
        ones = torch.tensor([code >> h & 1 for h in range(3)], dtype=torch.bool)
        q, p = (torch.where(ones, x.sigmoid(), 1 - x.sigmoid()).prod(-1) for x in (o, prior))
        brute += q * (q / p).log()
    torch.testing.assert_close(kl_per_bit(o, prior).sum(-1), brute)
    torch.testing.assert_close(kl_per_bit(o, o), torch.zeros_like(o))
    torch.testing.assert_close(kl_per_bit(o, torch.zeros_like(o)), kl_per_bit(o))
    prior.requires_grad_()
    kl_per_bit(o, prior).sum().backward()
    torch.testing.assert_close(prior.grad, prior.detach().sigmoid() - o.sigmoid())


def test_kl_to_the_uniform_prior_is_ln_2_minus_entropy_to_the_bit(rng):
    """Its gradient, too: a rounding that differs is another training."""
    o = (torch.randn(1000, 8, generator=rng) * 3).requires_grad_()
    written_out = LN2 - (F.softplus(o) - o * o.sigmoid())
    (expected,) = torch.autograd.grad(written_out.sum(), o)
    kl = kl_per_bit(o)
    (gradient,) = torch.autograd.grad(kl.sum(), o)
    assert torch.equal(kl, written_out) and torch.equal(gradient, expected)


@pytest.mark.parametrize("o", [1e4, -1e4])
@pytest.mark.parametrize("prior", [0.0, 20.0, -20.0])
def test_kl_of_a_certain_bit_is_the_surprise_of_it(o, prior):
    logits = torch.tensor([o, prior], requires_grad=True)
    kl = kl_per_bit(*logits)
    kl.backward()
    surprise = F.softplus(torch.tensor(prior if o < 0 else -prior)).item()
    assert kl.item() == pytest.approx(surprise, abs=2e-3) and logits.grad.isfinite().all()


@rejects(
    "model/objective.py",
    "kl_per_bit(o, None if prior is None else prior.detach())",
    "kl_per_bit(o if prior is None else prior.detach(), None if prior is None else o)",
    "KL of the prior from the encoder",
)
def test_the_loss_takes_the_kl_to_the_learned_prior(make_model, batch):
    inputs, targets, noise = batch
    model = make_model(latent={"prior": "learned"})
    out = model(inputs, noise)
    assert out.prior_logits.std() > 0.3
    loss = training_loss(model, inputs, targets, noise, 0.0)
    kl = kl_per_bit(out.bit_logits.double(), out.prior_logits.double()).sum(-1).mean()
    assert loss.kl.item() == loss.hinge.item() == pytest.approx(kl.item(), rel=1e-5)
    assert loss.total.item() == pytest.approx((loss.ce + loss.hinge).item(), rel=1e-6)
    loss.hinge.backward()
    for name, parameter in model.named_parameters():
        below = name.startswith(("embedding", "blocks.0", "blocks.1", "latent"))
        prior = name.startswith("latent.prior") or name.endswith("post_sampler")
        reached = parameter.grad is not None and parameter.grad.abs().max() > 0
        assert reached == (below and not prior), name


@rejects(
    "model/objective.py", "(fit - fit.detach())", "0 * fit", "a prior that the KL does not train"
)
@rejects(
    "model/objective.py",
    "total = total + (fit - fit.detach())",
    "total = total + (fit - fit.detach()) * (hinge > 0)",
    "a prior that free bits leave alone",
)
@rejects("model/objective.py", "(o.detach(), prior)", "(o, prior)", "a posterior without free bits")
@rejects(
    "model/objective.py",
    "None if prior is None else prior.detach()",
    "prior",
    "a prior trained by the hinge a second time",
)
@pytest.mark.parametrize("per", ["token", "every"])
def test_a_learned_prior_is_fitted_below_the_threshold_too(make_model, batch, per):
    """The loss's gradient is that of ce + hinge for the posterior's logits, of the KL for the
    prior's, at a κ that no token, some tokens and all tokens exceed.
    """
    inputs, targets, noise = batch
    latent = {"prior": "learned", "per": per, "every": 3 if per == "every" else None}
    model = make_model(latent=latent)
    starts = model.span_starts(inputs.shape[1], inputs.device, None)
    outputs = []
    forward = model.forward
    model.forward = lambda *args, **of: outputs.append(forward(*args, **of)) or outputs[-1]
    for kappa in (0.0, 0.2, 3.0):
        loss = training_loss(model, inputs, targets, noise, kappa)
        o, prior = outputs[-1].bit_logits, outputs[-1].prior_logits
        kl = mean_over_spans(kl_per_bit(o, prior).sum(-1), starts)
        (of_prior,) = torch.autograd.grad(kl.mean(), prior, retain_graph=True)
        (of_posterior,) = torch.autograd.grad(loss.ce + free_bits(kl, kappa), o)
        loss = training_loss(model, inputs, targets, noise, kappa)
        o, prior = outputs[-1].bit_logits, outputs[-1].prior_logits
        gradients = torch.autograd.grad(loss.total, (o, prior))
        expected = (of_posterior, of_prior)
        torch.testing.assert_close(gradients, expected, atol=1e-8, rtol=1e-4)
        assert of_prior.abs().max() > 1e-4


@pytest.mark.parametrize(
    ("latent", "kl"),
    [
        ({}, 2.0),
        ({"per": "sequence"}, 3 / 16),
        ({"prior": "learned"}, 0.0),
        ({"prior": "recurrent"}, 0.0),
    ],
    ids=["token", "sequence", "learned", "recurrent"],
)
def test_the_kl_by_which_a_latent_is_said_to_have_collapsed(make_model, latent, kl):
    """H = 3, 16 tokens, κ = 2. What a learned prior predicts costs nothing."""
    assert kl_of_use(make_model(latent=latent).config, 2.0) == kl


@pytest.mark.parametrize("prior", ["learned", "recurrent"])
def test_what_the_encoder_learns_from_the_kl_below_the_threshold(make_model, batch, prior):
    """Nothing, but for a recurrent prior: it reads the upper half's state, which depends on the z
    before, so that fitting it moves these z as well.
    """
    model = make_model(latent={"prior": prior})
    weights = model.latent.readout.weight
    loss, again = (training_loss(model, *batch, kappa_bits=30.0) for _ in range(2))
    assert loss.hinge == 0
    (of_ce,) = torch.autograd.grad(loss.ce, weights)
    (of_total,) = torch.autograd.grad(again.total, weights)
    assert of_ce.abs().max() > 0
    assert torch.allclose(of_total, of_ce) == (prior == "learned")


@pytest.mark.parametrize(
    ("p", "nats"), [(0.5, 0.0), (0.75, LN2 + 0.75 * log(0.75) + 0.25 * log(0.25))]
)
def test_kl_of_a_coin_with_known_probability(p, nats):
    kl = kl_per_bit(torch.tensor([p, 1 - p], dtype=torch.float64).logit())
    torch.testing.assert_close(kl, torch.full((2,), nats, dtype=torch.float64))


@pytest.mark.parametrize("o", [30.0, -30.0, 1e4, -1e4])
def test_kl_of_a_certain_bit_is_one_bit_and_has_no_slope(o):
    """Far logits must give ln 2 and a gradient of 0, not inf − inf."""
    logit = torch.tensor(o, requires_grad=True)
    kl = kl_per_bit(logit)
    kl.backward()
    assert kl.item() == pytest.approx(LN2, abs=1e-6)
    assert logit.grad.item() == pytest.approx(0, abs=1e-6)


@rejects(
    "model/objective.py",
    "(kl - kappa_bits * LN2).clamp(min=0).mean()",
    "(kl.mean() - kappa_bits * LN2).clamp(min=0)",
    "hinge after averaging",
)
def test_hinge_is_taken_per_token_before_the_mean():
    """The mean KL, 0.75 bits, is below κ = 1 bit; the token of 1.5 bits is not."""
    kl = torch.tensor([[0.0, 1.5]]) * LN2
    assert free_bits(kl, 1.0).item() == pytest.approx(0.25 * LN2)


def test_hinge_is_taken_per_token_across_the_batch():
    kl = torch.tensor([[0.0, 0.0], [4.0, 0.0]]) * LN2
    assert free_bits(kl, 1.0).item() == pytest.approx(0.75 * LN2)


@rejects(
    "model/objective.py", "kl.mean(0", "kl.mean(1", "free bits of a position averaged over its row"
)
def test_what_the_kl_is_averaged_over_before_the_hinge():
    """By hand: KL of two rows of three tokens, bits, at κ = 1."""
    kl = torch.tensor([[0.0, 1.0, 5.0], [0.0, 3.0, 0.0]]) * LN2
    hinges = {over: free_bits(kl, 1.0, over).item() / LN2 for over in FreeBits}
    assert hinges == pytest.approx(
        {
            "token": (4 + 2) / 6,
            "sequence": ((2 - 1) + 0) / 2,
            "position": (0 + (2 - 1) + (2.5 - 1)) / 3,
            "batch": 1.5 - 1,
        }
    )


@rejects(
    "model/objective.py",
    "case FreeBits.sequence if documents is not None:",
    "case FreeBits.sequence if False:",
    "free bits of a document averaged over the whole row",
)
def test_a_sequence_is_a_document_where_rows_have_several():
    """Documents of 1, 2 and 3 tokens: hinges of their means, weighted by their tokens."""
    kl = torch.tensor([[0.0, 1.0, 5.0], [0.0, 3.0, 6.0]]) * LN2
    documents = torch.tensor([[1, 2, 2], [1, 1, 1]])
    hinge = free_bits(kl, 1.0, FreeBits.sequence, documents).item() / LN2
    assert hinge == pytest.approx((0 + 2 * (3 - 1) + 3 * (3 - 1)) / 6)


@pytest.mark.parametrize("over", [*FreeBits])
def test_the_loss_has_the_hinge_of_its_design(make_model, batch, over):
    inputs, targets, noise = batch
    model = make_model(latent={"free_bits": over})
    kl = kl_per_bit(model(inputs, noise).bit_logits).sum(-1)
    kappa_bits = kl.mean().item() / LN2 * 0.9
    loss = training_loss(model, inputs, targets, noise, kappa_bits)
    assert loss.hinge.item() == pytest.approx(free_bits(kl, kappa_bits, over).item(), rel=1e-5)
    for other in set(FreeBits) - {over}:
        assert loss.hinge.item() != pytest.approx(free_bits(kl, kappa_bits, other).item(), rel=1e-3)


@rejects("model/objective.py", "(kl - kappa_bits * LN2)", "(kl - kappa_bits)", "κ taken as nats")
@pytest.mark.parametrize("kappa_bits", [0.0, 0.125, 1.0, 3.0])
def test_kappa_is_in_bits_and_kl_in_nats(kappa_bits):
    """A token of 5 bits costs what it has above κ, in nats."""
    loss = free_bits(torch.tensor([5 * LN2]), kappa_bits)
    assert loss.item() == pytest.approx((5 - kappa_bits) * LN2)


@pytest.fixture
def batch(make_tokens, rng):
    tokens = make_tokens(3, 9)
    return tokens[:, :-1], tokens[:, 1:], torch.rand(3, 8, 3, generator=rng)


@pytest.mark.parametrize("tied", [True, False])
def test_free_transformer_loss_is_cross_entropy_plus_hinge(make_model, batch, tied):
    """κ lies within the range of KL_t, so that the hinge is at work for some tokens only."""
    inputs, targets, noise = batch
    model = make_model(tied=tied)
    out = model(inputs, noise)
    q = out.bit_logits.sigmoid()
    kl = LN2 + q * q.log() + (1 - q) * (1 - q).log()  # closed form, per bit
    kl = kl.sum(-1)
    kappa_nats = kl.median()
    ce = F.cross_entropy(model.logits(out.hidden).transpose(1, 2), targets)
    hinge = (kl - kappa_nats).relu().mean()

    loss = training_loss(model, inputs, targets, noise, kappa_bits=kappa_nats.item() / LN2)

    actual = torch.stack((loss.ce, loss.kl, loss.hinge, loss.total))
    expected = torch.stack((ce, kl.mean(), hinge, ce + hinge))
    assert 0 < hinge < kl.mean()
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_below_the_threshold_the_full_kl_is_reported_but_not_paid(make_model, batch):
    loss = training_loss(make_model(), *batch, kappa_bits=3.0)  # 3 bits cannot exceed 3 bits
    assert loss.kl > 0
    assert loss.hinge == 0
    assert loss.total == loss.ce


def test_baseline_loss_is_cross_entropy_without_kl(make_model, batch):
    inputs, targets, _ = batch
    model = make_model(latent_bits=0)
    loss = training_loss(model, inputs, targets)
    ce = F.cross_entropy(model.logits(model(inputs).hidden).transpose(1, 2), targets)
    torch.testing.assert_close(loss.total, ce)
    torch.testing.assert_close(loss.ce, ce)
    assert loss.kl is None and loss.hinge is None


@pytest.mark.parametrize(
    ("kl_bits", "kappa_bits", "expected"),
    [
        ([0.01] * 9, 0.5, True),
        ([0.4] * 6 + [0.01] * 3, 0.5, True),  # lost on the way
        ([0.01] * 6 + [0.4] * 3, 0.5, False),  # late, but used
        ([0.01] * 8 + [0.06], 0.5, False),
        ([0.0] * 9, 0.0, False),
    ],
)
def test_collapse_is_a_last_third_under_a_tenth_of_kappa(kl_bits, kappa_bits, expected):
    assert collapsed(kl_bits, kappa_bits, of=len(kl_bits)) is expected


def test_collapse_is_told_during_training_only_after_a_third_of_it():
    assert not collapsed([0.01] * 3, 0.5, of=12)
    assert collapsed([0.01] * 4, 0.5, of=12)
    assert collapsed([0.4] * 2 + [0.01] * 4, 0.5, of=12)
    assert not collapsed([0.4] * 2 + [0.01] * 3, 0.5, of=12)
