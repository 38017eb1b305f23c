"""One z for several tokens: against the paper's design with the same weights, which is given each
span's z at all of its tokens.
"""

from dataclasses import replace

import pytest
import torch

from ftmodel.model.latent_design import LatentDesign
from ftmodel.model.mapper import code_probabilities, pack_bits
from ftmodel.model.objective import LN2, free_bits, training_loss
from ftmodel.model.spans import mean_over_spans, span_starts
from ftmodel.model.transformer import FreeTransformer

SEQUENCE, EVERY = {"per": "sequence"}, {"per": "every", "every": 3}
DESIGNS = {
    "sequence": SEQUENCE,
    "every": EVERY,
    "sequence, learned prior": SEQUENCE | {"prior": "learned"},
    "every, learned prior": EVERY | {"prior": "learned"},
    "every, recurrent prior": EVERY | {"prior": "recurrent"},
}
DOCUMENTS = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 2, 2], [1, 2, 2, 3, 3, 3, 3, 3, 3]])
STARTS = {  # of rows of two to three documents, by hand
    "sequence": [[0, 0, 0, 0, 4, 4, 4, 4, 4], [0, 1, 1, 3, 3, 3, 3, 3, 3]],
    "every": [[0, 0, 0, 3, 4, 4, 4, 7, 7], [0, 1, 1, 3, 3, 3, 6, 6, 6]],
}


@pytest.fixture(params=DESIGNS.values(), ids=DESIGNS)
def design(request):
    return request.param


def per_token(model):
    """One z for each token, else the design of ``model``, and its weights."""
    design = LatentDesign(prior=model.config.latent.prior)
    twin = FreeTransformer(replace(model.config, latent=design), 11)
    twin.load_state_dict(model.state_dict())
    return twin


def drawn_at_starts(twin, tokens, noise, starts, documents=None, padding=None):
    """z (B, T) of the prior, token by token: ``twin`` reads all of them again for each, without a
    cache.
    """
    x = twin.lower(tokens, twin.positions(0, tokens.shape[1], tokens.device, documents, padding))
    codes = torch.zeros_like(tokens)
    for t in range(tokens.shape[1]):
        hidden = twin(tokens, codes=codes, documents=documents, padding=padding).hidden
        before = hidden[:, t - 1] if t else torch.zeros_like(x[:, 0])
        if documents is not None and t:
            before = before * (documents[:, t] == documents[:, t - 1])[:, None]
        if padding is not None:
            before = before * (padding < t)[:, None]
        logits = twin.latent.prior_logits(x[:, t], before)
        p = torch.tensor(0.5) if logits is None else logits.sigmoid()
        codes[:, t] = pack_bits(noise[:, t] < p)
        codes[:, t] = codes.gather(1, starts[:, t : t + 1])[:, 0]
    return codes


@pytest.mark.parametrize("design", [SEQUENCE, EVERY], ids=["sequence", "every"])
def test_where_spans_begin(design):
    where = LatentDesign(**design), 9, torch.device("cpu")
    assert span_starts(*where, documents=DOCUMENTS).tolist() == STARTS[design["per"]]
    row = [0] * 9 if design is SEQUENCE else [0, 0, 0, 3, 3, 3, 6, 6, 6]
    assert span_starts(*where).tolist() == [row]
    padded = span_starts(*where, padding=torch.tensor([0, 2]))
    after = [2] * 7 if design is SEQUENCE else [2, 2, 2, 5, 5, 5, 8]
    assert padded.tolist() == [row, [0, 1, *after]]
    assert span_starts(LatentDesign(), *where[1:], documents=DOCUMENTS) is None


@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["rows", "documents"])
@torch.no_grad()
def test_each_token_reads_the_z_of_the_first_of_its_span(
    make_model, make_tokens, design, rng, documents
):
    model, tokens = make_model(latent=design), make_tokens(2, 9)
    twin = per_token(model)
    starts = model.span_starts(9, tokens.device, documents).expand(2, -1)
    noise = torch.rand(2, 9, 3, generator=rng)

    out = model(tokens, noise, documents=documents)
    expected = twin(tokens, noise, documents=documents)
    codes = expected.codes.gather(1, starts)
    assert torch.equal(out.codes, codes)
    given = twin(tokens, codes=codes, documents=documents).hidden
    torch.testing.assert_close(out.hidden, given)
    begin = starts == torch.arange(9)
    torch.testing.assert_close(out.bit_logits[begin], expected.bit_logits[begin])
    assert not out.bit_logits[~begin].any()

    drawn = model(tokens, prior_noise=noise, documents=documents)
    z = drawn_at_starts(twin, tokens, noise, starts, documents)
    assert torch.equal(drawn.codes, z)
    torch.testing.assert_close(drawn.hidden, twin(tokens, codes=z, documents=documents).hidden)


@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["rows", "documents"])
def test_loss_and_gradients_are_those_of_the_dense_form(
    make_model, make_tokens, design, rng, documents
):
    """Y + G − detach(G) over all codes, at the first token of each span alone."""
    model, tokens = make_model(latent=design), make_tokens(2, 10)
    inputs, targets, noise = tokens[:, :-1], tokens[:, 1:], torch.rand(2, 9, 3, generator=rng)
    kappa = 0.02
    loss = training_loss(model, inputs, targets, noise, kappa, documents)
    loss.total.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()

    twin = per_token(model)
    positions = twin.positions(0, 9, inputs.device, documents)
    x = twin.lower(inputs, positions)
    o = twin.encode(inputs, x, positions)
    ids = torch.ones(2, 9) if documents is None else documents
    r, kl, hinge, fit = torch.zeros_like(x), 0.0, 0.0, 0.0
    spans = [
        (row, span)
        for row in range(2)
        for document in ids[row].unique()
        for span in (ids[row] == document).nonzero()[:, 0].split(design.get("every", 9))
    ]
    for row, span in spans:
        q = o[row, span[0]].sigmoid()
        g = code_probabilities(q)
        code = ((noise[row, span[0]] < q).long() * torch.tensor([1, 2, 4])).sum()
        y = torch.nn.functional.one_hot(code, 8) + g - g.detach()
        r = r.index_put((torch.tensor(row), span), y @ twin.latent.post_sampler)
    hidden = twin.upper(x, r, positions)
    for row, span in spans:
        at = int(span[0])
        follows = at > 0 and ids[row, at - 1] == ids[row, at]
        before = hidden[row, at - 1] if follows else torch.zeros_like(x[0, 0])
        prior = twin.latent.prior_logits(x[row, at], before)
        q, p = o[row, at].sigmoid(), torch.tensor(0.5) if prior is None else prior.sigmoid()
        of_z, of_prior = (
            (q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()).sum()
            for q, p in ((q, p.detach()), (q.detach(), p))
        )
        kl, fit = kl + of_z, fit + of_prior
        hinge = hinge + (of_z - len(span) * kappa * LN2).clamp(min=0)
    logits = twin.logits(hidden)
    ce = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    total = ce + hinge / 18 + (fit - fit.detach()) / 18
    assert hinge > 0, "a hinge that is never open would test nothing"
    for ours, dense in ((loss.ce, ce), (loss.kl, kl / 18), (loss.total, total)):
        torch.testing.assert_close(ours, dense)
    total.backward()
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-6, rtol=1e-4)


def test_the_hinge_gives_a_z_the_budget_of_its_tokens():
    """κ = 1/2 bit a token is 2 bits for a z of 4 tokens and 1 bit for one of 2."""
    starts = torch.tensor([[0, 0, 0, 0, 4, 4]])
    kl = torch.tensor([[3.0, 0, 0, 0, 0.5, 0]]) * LN2
    each = mean_over_spans(kl, starts)
    torch.testing.assert_close(each, torch.tensor([[0.75] * 4 + [0.25] * 2]) * LN2)
    torch.testing.assert_close(free_bits(each, 0.5), torch.tensor(4 * 0.25 / 6 * LN2))


@pytest.mark.parametrize(
    ("latent", "bits"),
    [({}, 6), (SEQUENCE, 6 / 16), (EVERY, 2)],
    ids=["token", "sequence", "every"],
)
def test_how_much_a_z_can_tell_of_a_token(make_model, latent, bits):
    assert make_model(latent_bits=6, latent=latent).config.latent_capacity == bits


@pytest.mark.parametrize(
    ("latent", "message"),
    [
        ({"per": "every"}, "latent.every: how many tokens read one z is missing"),
        ({"every": 4}, "latent.every: 4, but there is one z per token"),
        ({"per": "sequence", "every": 4}, "latent.every: 4, but there is one z per sequence"),
        ({"per": "every", "every": 1}, "latent.every: 1 must be at least 2"),
        ({"per": "every", "every": 16}, "latent.every: 16 is not below the context of 16"),
        ({"per": "sequence", "prior": "recurrent"}, "latent.prior: recurrent, but one z a seq"),
        ({"per": "text"}, "per: 'text' is not one of token, sequence, every"),
    ],
)
def test_spans_that_there_are_not(make_model, latent, message):
    with pytest.raises(ValueError, match=message):
        make_model(latent=latent)
