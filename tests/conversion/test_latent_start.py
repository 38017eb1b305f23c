"""A latent begins quiet, within its threshold, and not dead."""

from math import log

import pytest
import torch
from torch.nn import functional as F

from ftmodel.conversion.latent_start import begin_latent, readout_scale, start_losses, stream_rms
from ftmodel.inference.passes import with_codes
from ftmodel.model.objective import training_loss
from tests.support.mutants import rejects


@pytest.fixture
def rows(rng):
    return torch.randint(11, (4, 13), generator=rng)


@pytest.fixture
def noise(rng):
    return torch.rand(2, 4, 12, 3, generator=rng)


@rejects("latent_start.stream_rms: .«median→mean»", "a few huge tokens decide how loud z begins")
def test_a_few_tokens_of_a_huge_norm_do_not_decide_the_rms(rng):
    x = torch.randn(2, 50, 64, generator=rng) * 3
    x[:, 0] *= 1000
    assert stream_rms(x) == pytest.approx(3, rel=0.05)


@rejects("latent_start.readout_scale: «LN2→1» else", "the first KL held against κ in nats")
@pytest.mark.parametrize("kappa", [0.01, 0.5, 1.0, 2.0])
def test_the_readout_shrinks_to_the_threshold_and_no_further(kappa, rng):
    o = torch.randn(5, 7, 4, generator=rng) * 4
    scale = readout_scale(o, kappa)
    probability = (o.double() * scale).sigmoid()
    entropy = -(probability * probability.log2() + (1 - probability) * (1 - probability).log2())
    assert (1 - entropy).sum(-1).mean().item() == pytest.approx(kappa, rel=1e-3)
    assert readout_scale(o, 4.0) == 1.0, "less than the threshold stays as it is"
    assert readout_scale(o * scale * 0.999, kappa) == 1.0
    assert readout_scale(0 * o, 0.0) == 1.0, "and so does what equals it"


@rejects("latent_start.begin_latent: «model.config.lower_blocks→0»", "encoder copied from block 1")
@pytest.mark.parametrize(
    ("share", "latent"),
    [
        *((0.1, {}), (0.1, {"per": "every", "every": 4}), (0.1, {"map": "linear"})),
        (0.5, {"encoder": "separate"}),
    ],
)
def test_the_post_sampler_has_its_share_and_the_kl_is_within_the_threshold(
    make_model, rows, noise, share, latent
):
    model = make_model(latent_std=0.5, latent=latent)
    tokens, copied = rows[:, :-1], "encoder" not in latent
    begin_latent(model, tokens, kappa_bits=0.05, share=share, copy_block=copied)
    x = model.lower(tokens, model.positions(tokens))
    rms = model.latent.embed(torch.arange(8)).square().mean().sqrt()
    assert rms.item() == pytest.approx(share * stream_rms(x).item(), rel=1e-4)
    losses = start_losses(model, rows, noise)
    assert 0.02 * log(2) < losses.kl <= 0.05 * log(2) * 1.001
    expected = training_loss(model, rows[:, :-1], rows[:, 1:], noise[1], 0.0)
    assert losses.posterior == pytest.approx(expected.ce.item(), rel=1e-5)
    assert losses.kl == pytest.approx(expected.kl.item(), rel=1e-4)
    if copied:
        reader = model.blocks[model.config.lower_blocks].parameters()
        for ours, theirs in zip(model.latent.encoder_block.parameters(), reader, strict=True):
            assert torch.equal(ours, theirs) and ours is not theirs


@pytest.mark.parametrize("encoder", ["shared", "separate"])
def test_the_encoder_learns_from_the_first_step_unless_the_share_is_0(
    make_model, rows, noise, encoder
):
    for share in (0.1, 0.0):
        model = make_model(latent_std=0.5, latent={"encoder": encoder})
        begin_latent(model, rows[:, :-1], kappa_bits=8.0, share=share, copy_block=False)
        training_loss(model, rows[:, :-1], rows[:, 1:], noise[0], 8.0).total.backward()
        gradient = model.latent.readout.weight.grad.abs().max()
        assert (gradient > 0) == (share > 0)


@rejects(
    "latent_start.start_losses: «upper_from_prior(model, x, Draws(noise[0]), at)[0]→model.upper("
    "x, latent.sample(o, noise[0])[0], at)»",
    "z from the encoder said to be from the prior",
)
def test_losses_before_the_first_step(make_model, rows, noise):
    """The parent's is that of the decoder alone, the prior's that of given codes; without a share
    all are equal.
    """
    model = make_model(latent_std=0.5)
    baseline = make_model(latent_bits=0)
    baseline.load_state_dict(model.state_dict(), strict=False)
    inputs, targets = rows[:, :-1], rows[:, 1:]
    parent = training_loss(baseline, inputs, targets).ce.item()
    losses = start_losses(model, rows, noise)
    assert losses.parent == pytest.approx(parent, rel=1e-5)
    assert start_losses(baseline, rows, None).parent == pytest.approx(parent, rel=1e-5)
    codes = (noise[0] < 0.5).long() @ torch.tensor([1, 2, 4])
    logits = model.logits(with_codes(model, inputs, codes).hidden)
    prior = F.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()
    assert losses.prior == pytest.approx(prior, rel=1e-5)
    assert losses.prior != pytest.approx(losses.parent, rel=1e-4)
    begin_latent(model, inputs, kappa_bits=1.0, share=0.0, copy_block=True)
    losses = start_losses(model, rows, noise)
    assert losses.prior == pytest.approx(losses.parent, rel=1e-5)
    assert losses.posterior == pytest.approx(losses.parent, rel=1e-5)


def test_documents_are_read_as_if_they_stood_alone(make_model, rows):
    model = make_model(latent_bits=0, document_mask=True)
    documents = (torch.arange(12) >= 5).long().expand(4, -1)
    whole = start_losses(model, rows, None).parent
    apart = start_losses(model, rows, None, documents).parent
    expected = training_loss(model, rows[:, :-1], rows[:, 1:], documents=documents).ce.item()
    assert apart == pytest.approx(expected, rel=1e-5)
    assert apart != pytest.approx(whole, rel=1e-4)
