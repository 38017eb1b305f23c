"""One z for several tokens: what it is where a prompt ends amid a span, by enumeration, and the
bound on the NLL where it is that of a whole sequence.
"""

from math import log

import pytest
import torch
from torch.nn import functional as F

from ftmodel.config import ModelConfig
from ftmodel.inference import latent_source, sequence_bound as sequence_bounds
from ftmodel.inference.bounds import latent_bounds, sampled_probability
from ftmodel.inference.filtering import FilterSettings
from ftmodel.inference.latent_source import candidate_noise
from ftmodel.inference.passes import with_codes
from ftmodel.inference.sequence_bound import enumerable, enumerated_nll, nll_bound, sequence_bound
from ftmodel.mapper import pack_bits
from tests.designs.test_sharing import EACH_DESIGN, EVERY, SEQUENCE
from tests.inference.test_designs import log_p
from tests.support.dense_form import per_token
from tests.support.enumeration import assert_near
from tests.support.mutants import rejects
from tests.support.passes import drawing, pinned_noise, settled

ROWS = 1000


def log_prior(model, tokens, codes, starts):
    """log p(z) of the ``codes`` (B, T) at ``starts``, given the z before, nats, (B, starts)."""
    twin, before = per_token(model), torch.zeros(len(tokens), 1, model.config.d_model)
    x = twin.lower(tokens, twin.positions(tokens))
    hidden = torch.cat((before, with_codes(twin, tokens, codes).hidden), dim=1)
    logits = twin.latent.prior(x[:, starts], hidden[:, starts])
    if logits is None:
        return torch.full((len(tokens), len(starts)), -log(2) * model.config.latent_bits)
    signs = pinned_noise(codes[:, starts], model.config.latent_bits)  # −1 for bits that are set
    return F.logsigmoid(-signs * logits).sum(-1).double()


@rejects("sequence_bound.sequence_bound: «p→0.5»)", "samples of the uniform prior", case="learned")
@pytest.mark.parametrize("prior", ["uniform", "learned"])
@torch.no_grad()
def test_an_encoder_that_is_surer_than_it_should_be_does_little_harm(
    make_model, make_tokens, rng, prior
):
    """Half of the samples are the prior's own, be it far from uniform: no weight is more than twice
    its p(x | z).
    """
    model = make_model(latent_bits=6, n_layers=2, latent=SEQUENCE | {"prior": prior})
    model.latent.readout.weight.mul_(30)
    if prior == "learned":
        model.latent.prior.readout.weight.mul_(10)
    tokens = make_tokens(1, 7).expand(ROWS, -1)
    inputs, targets, draw = tokens[:, :-1], tokens[:, 1:], drawing(rng, ROWS, 6, 6)
    half = [sequence_bound(model, inputs[:1], targets[:1], 1, lambda n=n: torch.full((1, 6, 6), n))
            for n in (0.5, 0.75)]  # fmt: skip
    equal = half[0] == half[1]
    assert equal or prior == "learned", "a draw that equals the probability sets no bit"
    nll = enumerated_nll(model, inputs[:1], targets[:1]).item()
    for k in (1, 7, 8):
        bound = sequence_bound(model, inputs, targets, k, draw)
        assert_near((nll - bound).exp(), 1.0)
    surely = latent_bounds(model, inputs, targets, 8, draw).iwae
    assert bound.mean() < surely.mean() - 0.01


@rejects(
    "latent_source.prompt_codes: («model.prior_logits(x, at, hidden)→None», x)",
    "a uniform prior",
    case="every, learned prior",
)
@EACH_DESIGN
@torch.no_grad()
def test_the_z_that_a_prompt_leaves_open_is_that_of_the_models_posterior(
    make_model, make_tokens, monkeypatch, design, rng
):
    """By enumeration; a prompt of one token says nothing, whatever the encoder makes of it. Its z
    is the prior's own draw.
    """
    monkeypatch.setattr(latent_source, "CANDIDATES", 64)  # its bias goes with their number
    model = make_model(latent_bits=2, n_layers=2, latent=design)
    model.latent.readout.weight.mul_(2)
    model.latent.post_sampler.mul_(5)
    for length in (1, 6):
        prompt = make_tokens(1, length).expand(ROWS, -1)
        noise = torch.rand(ROWS, length, 2, generator=rng)
        first = 0 if design["per"] == "sequence" else (length - 1) // 3 * 3
        earlier = model(prompt, noise=noise).codes
        codes = settled(model, prompt, noise)
        assert torch.equal(codes[:, :first], earlier[:, :first])
        given = torch.stack([earlier.clone() for _ in range(4)])
        given[..., first:] = torch.arange(4)[:, None, None]
        weights = [
            log_p(model, prompt, z)[:, first:].sum(1) + log_prior(model, prompt, z, [first])[:, 0]
            for z in given
        ]
        expected = torch.stack(weights, dim=1).softmax(1)  # (ROWS, 4)
        apart = expected[0].max() - expected[0].min()
        assert length == 1 or apart > 0.1, "a flat posterior would test nothing"
        for z in range(4):
            assert_near((codes[:, first] == z).double() - expected[:, z], 0.0)


@rejects("Positions.of: «, padding→»)", "a learned prior of padded prompts by their padding")
@EACH_DESIGN
@torch.no_grad()
def test_padding_changes_nothing_for_the_z_that_a_prompt_leaves_open(
    make_model, make_tokens, design, rng
):
    model, prompt = make_model(latent=design), make_tokens(20, 7)
    noise = torch.rand(20, 7, 3, generator=rng)
    model.latent.post_sampler.mul_(5)
    padding = torch.arange(20) % 5
    padded = settled(model, prompt, noise, padding)
    for n in range(5):
        rows = padding == n
        alone = settled(model, prompt[rows, n:], noise[rows, n:])
        assert torch.equal(padded[rows, n:], alone)


@rejects("latent_source.prompt_codes: z = «ours.choose(→(»torch.stack", "a given z that is drawn")
@torch.no_grad()
def test_a_z_that_is_given_is_not_drawn(make_model, make_tokens, rng):
    """Also in a batch with others, which are drawn as if they stood alone."""
    model, prompt = make_model(latent=SEQUENCE), make_tokens(20, 6)
    noise, codes = torch.rand(20, 6, 3, generator=rng), torch.randint(8, (20, 1), generator=rng)
    codes, given = codes.expand(-1, 6), (torch.arange(20) % 2 == 0)[:, None].expand(-1, 6)
    drawn = settled(model, prompt, noise)
    assert torch.equal(settled(model, prompt, noise, codes=codes), codes)
    found = settled(model, prompt, noise, codes=codes, given=given)
    assert torch.equal(found, torch.where(given, codes, drawn))


def test_candidates_are_the_same_points_in_every_run_rotated_by_the_noise():
    points = torch.rand(16, 1, 2, generator=torch.Generator().manual_seed(0))
    points[0] = 0
    least = 2.0**-24
    rotated = candidate_noise(torch.tensor([[least, 0.5], [least, 0.5]]))
    expected = ((points + torch.tensor([least, 0.5])) % 1).repeat(1, 2, 1)
    assert torch.equal(rotated, expected)


@torch.no_grad()
def test_the_noise_of_the_next_token_chooses_among_the_candidates(make_model, make_tokens, rng):
    """Without a next token it is the first, the prior's. The least number does not choose one
    without weight, the greatest chooses the last.
    """
    model = make_model(latent=SEQUENCE, tied=False)
    prompt, noise = make_tokens(1, 3).expand(100, -1), torch.rand(100, 3, 3, generator=rng)
    noise[::2, 0, 1] = 0.5  # which sets no bit of probability 1/2
    of_prior = pack_bits(noise[:, 0] < 0.5)
    assert torch.equal(settled(model, prompt[:, :1], noise[:, :1])[:, 0], of_prior)

    noise[:, 1, 0] = 1
    for length in (2, 3):
        read, of_read = prompt[:, :length], noise[:, :length]
        logits = model(read[:1], torch.zeros_like(of_read[:1])).bit_logits
        q = sampled_probability(logits[:, 0])
        last = pack_bits(candidate_noise(noise[:, 0])[-1] < q)
        assert torch.equal(settled(model, read, of_read)[:, 0], last)

    model.readout.weight.mul_(1e5)  # of two different z one has no weight
    noise[:, 1, 0] = 0
    codes = settled(model, prompt, noise)[:, 0]
    nll = [-log_p(model, prompt[:1], torch.full((1, 3), z)).sum().item() for z in range(8)]
    better = torch.tensor(nll)[codes] < torch.tensor(nll)[of_prior] - 800
    assert (better | (codes == of_prior)).all() and better.any()


@pytest.mark.parametrize(
    ("latent", "few"),
    [(SEQUENCE, [False, True, True, False]), ({}, [False] * 4)],
    ids=["sequence", "token"],
)
def test_which_codes_are_few_enough_to_sum_over(latent, few):
    configs = (ModelConfig(2, 4, 1, 1, 4, 8, latent_bits=n, latent=latent) for n in (0, 1, 8, 9))
    assert [enumerable(config) for config in configs] == few


@pytest.mark.parametrize(("latent", "share"), [({}, 0), (EVERY, 0.25)])
def test_where_several_tokens_read_a_z_the_encoder_has_a_part_in_the_proposal(
    make_model, make_tokens, monkeypatch, latent, share
):
    proposals = []
    monkeypatch.setattr(sequence_bounds, "filtering_bound", lambda *a: proposals.append(a[-2]))
    tokens = make_tokens(2, 7)
    nll_bound(make_model(latent=latent), tokens[:, :-1], tokens[:, 1:], 2, lambda: None)
    assert proposals == [FilterSettings(0.5, share)]
