"""One z for several tokens, against the paper's design given that z at all tokens of the span."""

from dataclasses import replace

import pytest
import torch

from ftmodel.config import LatentDesign
from ftmodel.designs.noise import Draws
from ftmodel.inference.passes import from_prior, with_codes
from ftmodel.mapper import pack_bits
from ftmodel.positions import span_starts
from tests.support.dense_form import per_token
from tests.support.mutants import rejects

SEQUENCE, EVERY = {"per": "sequence"}, {"per": "every", "every": 3}
DESIGNS = {
    "sequence": SEQUENCE,
    "every": EVERY,
    "sequence, learned prior": SEQUENCE | {"prior": "learned"},
    "every, learned prior": EVERY | {"prior": "learned"},
    "every, recurrent prior": EVERY | {"prior": "recurrent"},
}
EACH_DESIGN = pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
DOCUMENTS = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 2, 2], [1, 2, 2, 3, 3, 3, 3, 3, 3]])
STARTS = {  # of rows of two to three documents, by hand
    "sequence": [[0, 0, 0, 0, 4, 4, 4, 4, 4], [0, 1, 1, 3, 3, 3, 3, 3, 3]],
    "every": [[0, 0, 0, 3, 4, 4, 4, 7, 7], [0, 1, 1, 3, 3, 3, 6, 6, 6]],
}


def drawn_at_starts(twin, tokens, noise, starts, documents=None, padding=None):
    """z (B, T) of the prior, token by token; ``twin`` reads all of them again for each."""
    at = twin.positions(tokens, documents=documents, padding=padding)
    x = twin.lower(tokens, at)
    codes = torch.zeros_like(tokens)
    for t in range(tokens.shape[1]):
        hidden = with_codes(twin, tokens, codes, at).hidden
        before = hidden[:, t - 1] if t else torch.zeros_like(x[:, 0])
        if documents is not None and t:
            before = before * (documents[:, t] == documents[:, t - 1])[:, None]
        if padding is not None:
            before = before * (padding < t)[:, None]
        logits = twin.latent.prior(x[:, t], before)
        p = torch.tensor(0.5) if logits is None else logits.sigmoid()
        codes[:, t] = pack_bits(noise[:, t] < p)
        codes[:, t] = codes.gather(1, starts[:, t : t + 1])[:, 0]
    return codes


@rejects(
    "positions.span_starts: «begin = document_starts(documents)→pass»", "spans across documents"
)
@rejects(
    "positions.span_starts: «index - (index - begin) % design.every→torch.maximum(begin, "
    "index - index % design.every)»",
    "spans counted from a row's first token, not its document's",
)
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


@rejects("FreeTransformer.encode: «at.span_starts→None»", "KL of unread z")
@rejects("FreeTransformer.upper: r, «at.span_starts→None»", "a z for each token of a span")
@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["rows", "documents"])
@EACH_DESIGN
@torch.no_grad()
def test_each_token_reads_the_z_of_the_first_of_its_span(
    make_model, make_tokens, design, rng, documents
):
    model, tokens = make_model(latent=design), make_tokens(2, 9)
    twin = per_token(model)
    starts = span_starts(model.config.latent, 9, tokens.device, documents).expand(2, -1)
    noise = torch.rand(2, 9, 3, generator=rng)

    at, of_twin = (each.positions(tokens, documents=documents) for each in (model, twin))
    out, expected = model(tokens, noise, at), twin(tokens, noise, of_twin)
    codes = expected.codes.gather(1, starts)
    assert torch.equal(out.codes, codes)
    given = with_codes(twin, tokens, codes, of_twin).hidden
    torch.testing.assert_close(out.hidden, given)
    begin = starts == torch.arange(9)
    torch.testing.assert_close(out.bit_logits[begin], expected.bit_logits[begin])
    assert not out.bit_logits[~begin].any()

    drawn = from_prior(model, tokens, noise, at)
    z = drawn_at_starts(twin, tokens, noise, starts, documents)
    assert torch.equal(drawn.codes, z)
    torch.testing.assert_close(drawn.hidden, with_codes(twin, tokens, z, of_twin).hidden)


@pytest.mark.parametrize(
    ("latent", "bits"),
    [({}, 6), (SEQUENCE, 6 / 16), (EVERY, 2)],
    ids=["token", "sequence", "every"],
)
def test_how_much_a_z_can_tell_of_a_token(make_model, latent, bits):
    """Of 16 tokens, all of which read one z or every 3 of which do."""
    assert make_model(latent_bits=6, latent=latent).config.latent_capacity == bits


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"per": "every"}, "every: required"),
        ({"every": 4}, "every: 4, but there is one latent code per token"),
        ({"per": "sequence", "every": 4}, "every: 4, but there is one latent code per sequence"),
        ({"per": "every", "every": 1}, "every: 1 must be at least 2; 1 is per: token$"),
        ({"per": "every", "every": 16}, "every: 16 is not below the context of 16"),
        ({"per": "sequence", "prior": "recurrent"}, "prior: recurrent needs several latent codes"),
        ({"per": "text"}, "'text' is not one of token, sequence, every"),
        ({"encoder": "own"}, "encoder: 'own' is not one of shared, separate"),
        ({"inject": "queries"}, "'queries' is not one of kv, residual, kv_all, "),
        ({"inject": "embedding", "latent_block": 2}, "embedding is before block 1"),
        ({"map": "linear", "latent_bits": 65}, "0 … 64 of latent.map linear$"),
        ({"latent_bits": 25}, "25 is outside 0 … 24$"),
    ],
)
def test_designs_that_there_are_not(make_model, changes, message):
    of_model = {key: value for key, value in changes.items() if key.startswith("latent_")}
    latent = {key: value for key, value in changes.items() if key not in of_model}
    with pytest.raises(ValueError, match=message):
        make_model(latent=latent, **of_model)


def test_a_changed_design_keeps_no_setting_of_what_was_replaced():
    separate, every = LatentDesign("separate", 3), LatentDesign(**EVERY)
    assert separate.changed({"encoder": "shared"}) == LatentDesign()
    assert every.changed({"per": "token"}) == LatentDesign()
    for design in (separate, every):
        assert design.changed({"map": "linear"}) == replace(design, map="linear")


@rejects("Draws.choose: «index.cummax(1).values→index»", "one of several kept codes in a row")
def test_codes_are_drawn_given_or_kept_from_the_token_before():
    drawn, keep = torch.tensor([[1, 0, 5, 2, 4]]), torch.tensor([[True, False, True, True, False]])
    draws = Draws(torch.zeros(1, 5, 3), keep=keep)
    assert draws.choose(drawn).tolist() == [[1, 0, 0, 0, 4]]
    assert draws.choose(drawn, torch.tensor([7])).tolist() == [[7, 0, 0, 0, 4]]
    codes, given = torch.tensor([[3, 6, 3, 3, 3]]), torch.tensor([[False, True, True, False, True]])
    draws = Draws(torch.zeros(1, 5, 3), codes, given, keep)
    assert draws.choose(drawn).tolist() == [[1, 6, 6, 6, 3]]
    last = draws[:, 2], draws[:, 4]
    assert [each.choose(drawn[:, 0], torch.tensor([7])).item() for each in last] == [7, 3]
    assert Draws(draws.noise, codes).choose(drawn).tolist() == codes.tolist()
