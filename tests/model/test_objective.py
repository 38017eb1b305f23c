"""The training loss: KL against brute force, the hinge, κ in bits; all against the dense form."""

from math import log

import pytest
import torch
from torch.nn import functional as F

from ftmodel.model.objective import collapsed, kl_of_use, kl_per_bit, training_loss
from tests.support.dense_form import assert_same_loss, dense_loss, per_token
from tests.support.designs import all_pairs, possible, title
from tests.support.mutants import rejects

LN2 = log(2)


@pytest.fixture
def batch(make_tokens, rng):
    tokens = make_tokens(3, 9)
    return tokens[:, :-1], tokens[:, 1:], torch.rand(3, 8, 3, generator=rng)


@rejects("objective.kl_per_bit: ) «- entropy→/ LN2 - entropy / LN2»", "KL in bits")
@pytest.mark.parametrize("learned", [False, True], ids=["uniform", "learned"])
@pytest.mark.parametrize("bits", [1, 3, 6])
def test_kl_equals_the_sum_over_all_codes(rng, bits, learned):
    """Σ_d q(d) log(q(d) / p(d)), in nats; 0 to itself, and the prior has a gradient."""
    o, prior = torch.randn(2, 5, bits, generator=rng, dtype=torch.float64) * 2
    prior = prior if learned else torch.zeros_like(o)
    brute = torch.zeros(5, dtype=torch.float64)
    for code in range(1 << bits):
        ones = torch.tensor([code >> h & 1 for h in range(bits)], dtype=torch.bool)
        q, p = (torch.where(ones, x.sigmoid(), 1 - x.sigmoid()).prod(-1) for x in (o, prior))
        brute += q * (q / p).log()
    torch.testing.assert_close(kl_per_bit(o, prior if learned else None).sum(-1), brute)
    torch.testing.assert_close(kl_per_bit(o, prior).sum(-1), brute)
    torch.testing.assert_close(kl_per_bit(o, o), torch.zeros_like(o))
    kl_per_bit(o, prior.requires_grad_()).sum().backward()
    torch.testing.assert_close(prior.grad, prior.detach().sigmoid() - o.sigmoid())


def test_the_kl_by_which_a_latent_is_said_to_have_collapsed(make_model):
    """H = 3, 16 tokens, κ = 2. What a learned prior predicts costs nothing."""
    latents = {}, {"per": "sequence"}, {"prior": "learned"}, {"prior": "recurrent"}
    kl = [kl_of_use(make_model(latent=latent).config, 2.0) for latent in latents]
    assert kl == [2.0, 3 / 16, 0.0, 0.0]


@rejects("objective.training_loss: )«→ * (hinge > 0)» return", "a prior that free bits leave alone")
@pytest.mark.parametrize("prior", ["uniform", "learned", "recurrent"])
def test_below_the_threshold_the_prior_learns_from_the_kl_and_the_encoder_does_not(
    make_model, batch, prior
):
    """But for a recurrent prior: fitting it moves the z before, on which what it reads depends."""
    model = make_model(latent={"prior": prior})
    weights = model.latent.readout.weight
    loss, again = (training_loss(model, *batch, kappa_bits=30.0) for _ in range(2))
    assert loss.hinge == 0 < loss.kl and loss.total == loss.ce
    (of_ce,) = torch.autograd.grad(loss.ce, weights)
    (of_total,) = torch.autograd.grad(again.total, weights)
    assert of_ce.abs().max() > 0
    assert torch.allclose(of_total, of_ce) == (prior != "recurrent")
    if prior == "learned":
        out = model(batch[0], batch[2])
        kl = kl_per_bit(out.bit_logits.detach(), out.prior_logits).sum(-1).mean()
        training_loss(model, *batch, kappa_bits=30.0).total.backward()
        learned = model.latent.prior.readout.weight
        torch.testing.assert_close(learned.grad, torch.autograd.grad(kl, learned)[0])


@pytest.mark.parametrize("prior", [None, 0.0, 20.0, -20.0])
@pytest.mark.parametrize("o", [30.0, -30.0, 1e4, -1e4])
def test_kl_of_a_certain_bit_is_the_surprise_of_it_and_has_no_slope(o, prior):
    """Far logits must give ln 2 and a gradient of 0, not inf − inf."""
    logits = torch.tensor([o, prior or 0.0], requires_grad=True)
    kl = kl_per_bit(logits[0], None if prior is None else logits[1])
    kl.backward()
    surprise = F.softplus(-logits[1] * (1 if o > 0 else -1)).item()
    assert kl.item() == pytest.approx(surprise, abs=1e-6 if prior is None else 2e-3)
    assert logits.grad[0].item() == pytest.approx(0, abs=1e-6) and logits.grad[1].isfinite()


def test_collapse_is_a_last_third_under_a_tenth_of_kappa():
    def has_collapsed(*kl_bits, of=9):
        return collapsed(dict(enumerate(kl_bits, 1)), 0.5, of)

    used, unused = [0.4], [0.01]
    assert has_collapsed(*unused * 9)
    rounded = dict.fromkeys(range(1, 10), -1e-9)
    assert not collapsed(rounded, 0.0, 9), "κ = 0, and a KL of 0 but for rounding"
    assert has_collapsed(*used * 6, *unused * 3), "lost on the way"
    assert not has_collapsed(*unused * 6, *used * 3), "late, but used"
    assert not has_collapsed(*unused * 8, 0.05) and has_collapsed(*unused * 8, 0.049), "κ / 10"
    assert has_collapsed(*used, *unused, of=2) and not has_collapsed(of=2), "a third is a value"
    # during training only after a third of it
    assert has_collapsed(*unused * 4, of=12) and not has_collapsed(*unused * 3, of=12)
    assert has_collapsed(*used * 2, *unused * 4, of=12)
    assert not has_collapsed(*used * 2, *unused * 3, of=12)


def test_a_third_of_the_training_is_one_of_its_steps_however_many_values_they_have():
    """Steps 5 to 8 of 12: also the part of a mean that begins before them."""
    used, unused = 0.4, 0.01
    for ends in ((2, 4, 8), (4, 5, 6, 7, 8), (2, 6, 8)):
        kl = dict.fromkeys(ends, unused)
        first = min(step for step in ends if step > 4)
        assert collapsed(kl | {ends[0]: used}, 0.5, 12)
        assert not collapsed(kl | {first: used}, 0.5, 12)
    assert not collapsed(dict.fromkeys((1, 2, 3), unused), 0.5, 12)
    assert collapsed({4: unused}, 0.5, 12)


def test_beta_weighs_the_hinge_alone(make_model, batch):
    model = make_model()
    one, half = (training_loss(model, *batch, 0.02, beta=beta) for beta in (1.0, 0.5))
    assert half.hinge == one.hinge > 0
    assert torch.equal(one.total, one.ce + one.hinge)
    torch.testing.assert_close(half.total, half.ce + half.hinge / 2)


DOCUMENTS = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 2, 2], [1, 2, 2, 3, 3, 3, 3, 3, 3]])


def test_there_are_few_of_many():
    assert len(possible()) == 1920, "only a recurrent prior of one z per sequence is none"
    assert len(all_pairs()) < 30


@rejects(
    "objective.training_loss: (-1), «at.span_starts→None»", "a span's hinge at its first token"
)
@rejects(
    "objective.training_loss: «, None→» if prior is None else prior.detach()«→, None if "
    "prior is None else o»",
    "KL of the prior from the encoder",
)
@rejects("objective.training_loss: fit«→.detach()» - fit", "a prior that the KL does not train")
@rejects("objective.training_loss: o«.detach()→»", "a posterior without free bits")
@rejects("objective.training_loss: prior«.detach()→»", "a prior trained by the hinge a second time")
@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["rows", "documents"])
@pytest.mark.parametrize("design", all_pairs(), ids=title)
def test_loss_and_gradients_are_those_of_the_dense_form(
    make_model, make_tokens, design, rng, documents
):
    model, tokens = make_model(latent=design), make_tokens(2, 10)
    batch = tokens[:, :-1], tokens[:, 1:], torch.rand(2, 9, 3, generator=rng), 0.02, documents
    loss, twin = training_loss(model, *batch), per_token(model)
    expected = dense_loss(twin, model.config.latent, *batch)
    torch.testing.assert_close(loss.kl_of_bits.sum(), expected.kl)
    assert_same_loss(loss, expected, model, twin)
