"""A recurrent prior: z_t depends on the z before it, within its document and after its padding."""

import pytest
import torch

from ftmodel.inference.bounds import latent_bounds
from ftmodel.inference.encoding import encode
from ftmodel.inference.filtering import filtering_bound
from ftmodel.inference.swap import swapped_ce
from ftmodel.model.objective import kl_per_bit
from ftmodel.model.transformer import token_before
from tests.support.enumeration import Exact, assert_near
from tests.support.mutants import rejects

CLOSE = {"atol": 2e-5, "rtol": 1e-4}
DOCUMENTS = torch.tensor([[1, 1, 1, 1, 1, 2, 2, 2, 2], [3, 3, 3, 3, 3, 3, 3, 3, 3]])
ALONE = [(0, slice(0, 5)), (0, slice(5, 9)), (1, slice(0, 9))]


@pytest.fixture
def model(make_model):
    model = make_model(latent={"prior": "recurrent"})
    with torch.no_grad():
        model.latent.post_sampler.mul_(4)
        model.latent.prior.readout.weight.mul_(2)
    return model


@rejects(
    "model/transformer.py",
    "before = F.pad(hidden[:, :-1], (0, 0, 1, 0))",
    "before = hidden.clone()",
    "a recurrent prior that reads the state of the token itself",
)
def test_the_token_before_is_of_the_same_document():
    hidden = torch.arange(1.0, 10)[None, :, None].expand(2, -1, -1)
    before = token_before(hidden, DOCUMENTS)[..., 0]
    assert before[0].tolist() == [0, 1, 2, 3, 4, 0, 6, 7, 8]
    assert before[1].tolist() == token_before(hidden)[0, :, 0].tolist() == [0, *range(1, 9)]


@torch.no_grad()
def test_z_of_the_prior_is_drawn_after_the_z_before_it(model, make_tokens, rng):
    """Token by token, each after a whole pass over those before, without a cache."""
    tokens, noise = make_tokens(20, 6), torch.rand(20, 6, 3, generator=rng)
    out = model(tokens, prior_noise=noise)
    latent, codes = model.latent, torch.zeros(20, 0).long()
    before = torch.zeros(20, 16)
    for t in range(6):
        x = model.lower(tokens[:, : t + 1], model.positions(0, t + 1, tokens.device))[:, t]
        logits = latent.prior.readout(torch.cat((latent.prior.norm(x), before), -1))
        z = (noise[:, t] < logits.sigmoid()).long() @ torch.tensor([1, 2, 4])
        codes = torch.cat((codes, z[:, None]), dim=1)
        before = model(tokens[:, : t + 1], codes=codes).hidden[:, t]
    assert torch.equal(out.codes, codes)
    torch.testing.assert_close(out.hidden, model(tokens, codes=codes).hidden, **CLOSE)
    # with the first z forced to another one, later ones change though their noise does not
    noise[:, 0] = -(noise[:, 0] - 0.5).sign()
    other = model(tokens, prior_noise=noise).codes
    assert not torch.equal(other[:, 1:], codes[:, 1:])


@rejects(
    "model/transformer.py",
    "state = state * (documents[:, t] == documents[:, t - 1])[:, None]",
    "pass",
    "a recurrent prior that goes on from one document to the next",
)
@torch.no_grad()
def test_documents_in_a_row_are_as_if_they_stood_alone(model, make_tokens, rng):
    """Training's KL, bounds, filter and the measurements' KL."""
    tokens = make_tokens(2, 10)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    noise = torch.rand(4, 2, 9, 3, generator=rng)
    packed = model(inputs, noise[0], documents=DOCUMENTS)
    drawn = model(inputs, prior_noise=noise[0], documents=DOCUMENTS)
    bounds = latent_bounds(model, inputs, targets, 2, iter(noise).__next__, DOCUMENTS)
    filtered = filtering_bound(model, inputs, targets, 3, iter(noise).__next__, DOCUMENTS)
    o, kl = encode(model, inputs, noise[0], DOCUMENTS)
    torch.testing.assert_close(o, packed.bit_logits, **CLOSE)
    torch.testing.assert_close(kl, kl_per_bit(packed.bit_logits, packed.prior_logits), **CLOSE)
    for chunk, (row, part) in enumerate(ALONE):
        x, y, own = inputs[row, part][None], targets[row, part][None], noise[:, row, None, part]
        alone = model(x, own[0])
        torch.testing.assert_close(packed.prior_logits[row, part], alone.prior_logits[0], **CLOSE)
        expected = model(x, prior_noise=own[0])
        assert torch.equal(drawn.codes[row, part], expected.codes[0])
        torch.testing.assert_close(drawn.hidden[row, part], expected.hidden[0], **CLOSE)
        of_alone = latent_bounds(model, x, y, 2, iter(own).__next__)
        for name in ("iwae", "prior", "kl", "elbo"):
            pair = (getattr(b, name)[i] for b, i in ((bounds, chunk), (of_alone, 0)))
            torch.testing.assert_close(*pair, **CLOSE)
        nll = filtering_bound(model, x, y, 3, iter(own).__next__)[0]
        torch.testing.assert_close(filtered[chunk], nll, **CLOSE)


@rejects(
    "inference/filtering.py",
    "hidden[poor] = hidden[poor[:, None], ancestors]",
    "pass",
    "particles resampled without what their prior reads",
)
def test_the_filter_is_unbiased_when_it_resamples(make_model, make_tokens, rng):
    """At every token, by enumeration of every z."""
    model = make_model(latent_bits=1, n_layers=2, latent={"prior": "recurrent"}).eval()
    with torch.no_grad():
        model.latent.post_sampler.mul_(6)
        model.latent.prior.readout.weight.mul_(4)
    tokens = make_tokens(1, 9).expand(6000, -1)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    truth = Exact(model, inputs[0], targets[0])

    def draw():
        return torch.rand(6000, 8, 1, generator=rng)

    filtered = filtering_bound(model, inputs, targets, 4, draw, resample_below=1.0)
    assert_near((truth.nll - filtered).exp(), 1.0)


@rejects(
    "model/transformer.py",
    "documents = (index >= padding[:, None]).long()",
    "documents = (index >= 0 * padding[:, None]).long()",
    "a recurrent prior that begins with what padding left",
)
@torch.no_grad()
def test_padding_is_no_token_before(model, make_tokens, rng):
    tokens, noise = make_tokens(1, 5), torch.rand(1, 5, 3, generator=rng)
    expected = model(tokens, prior_noise=noise)
    padded = torch.cat((make_tokens(1, 3), tokens), dim=1)
    more = torch.cat((torch.rand(1, 3, 3, generator=rng), noise), dim=1)
    out = model(padded, prior_noise=more, padding=torch.tensor([3]))
    assert torch.equal(out.codes[:, 3:], expected.codes)
    torch.testing.assert_close(out.hidden[:, 3:], expected.hidden, **CLOSE)
    cache = model.new_cache(8)
    first = model(padded[:, :3], prior_noise=more[:, :3], padding=torch.tensor([3]), cache=cache)
    rest = model(
        tokens,
        prior_noise=noise,
        padding=torch.tensor([3]),
        cache=cache,
        before=first.hidden[:, -1],
    )
    torch.testing.assert_close(rest.hidden, expected.hidden, **CLOSE)


def test_texts_under_z_of_the_prior(model, make_tokens, rng):
    """In the swap the prior's codes are those that one pass after the other draws."""
    model.eval()
    texts = make_tokens(4, 8)
    donor = torch.tensor([1, 0, 3, 2])
    ce = swapped_ce(model, texts, donor, 400, 3, rng)
    noise = torch.rand(400, 4, 7, 3, generator=rng).flatten(0, 1)
    inputs, targets = (x.expand(400, -1, -1).flatten(0, 1) for x in (texts[:, :-1], texts[:, 1:]))
    with torch.no_grad():
        logits = model.logits(model(inputs, prior_noise=noise).hidden)
        nll = -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0].sum(1)
    nll = nll.view(400, 4).double()
    error = (2 / 400) ** 0.5 * nll.std(0)
    assert ((ce.prior - nll.mean(0)).abs() < 4 * error + 1e-4).all()
