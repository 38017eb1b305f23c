"""Chunks read after a cache, where each z comes from, and how tokens are drawn. Generation against
the full forward pass: test_designs.py, and without z test_fast_decoder.py and test_prefix.py.
"""

from itertools import product

import pytest
import torch

from ftmodel.cache import new_cache
from ftmodel.inference.decoder import FastDecoder
from ftmodel.inference.generate import draw_uniform, generate, sample_token
from ftmodel.inference.latent_source import Codes, FromPrior, Noise, Pinned
from ftmodel.model.free_transformer import Output
from tests.support.mutants import rejects
from tests.support.passes import given_codes

CLOSE = {"atol": 5e-5, "rtol": 1e-5}
BOTH = pytest.mark.parametrize("bits", [0, 3], ids=["baseline", "latent"])


@pytest.fixture
def recorded(monkeypatch):
    """Factory of recordings of a generation's passes: a list that fills with one Output for each,
    that over the prompt and those of a FastDecoder.
    """

    def record(model):
        outputs, upper = [], FastDecoder.upper

        def read_and_record(self, x, codes):
            hidden = upper(self, x, codes)
            outputs.append(Output(hidden[:, None], None if codes is None else codes[:, None]))
            return hidden

        monkeypatch.setattr(FastDecoder, "upper", read_and_record)
        codes, upper_half = [], model.upper

        def embed(z, whole=model.latent and model.latent.embed):
            codes.append(z)
            return whole(z)

        def whole_pass(*arguments):
            hidden = upper_half(*arguments)
            outputs.append(Output(hidden, codes[-1] if codes else None))
            return hidden

        monkeypatch.setattr(model, "upper", whole_pass)
        if model.latent:
            monkeypatch.setattr(model.latent, "embed", embed)
        return outputs

    return record


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def one_for_each_row():
    return [seeded(100 + row) for row in range(3)]


def codes_of(outputs):
    """z of all positions that the passes read: (B, P + N − 1)."""
    return torch.cat([out.codes for out in outputs], dim=1)


@rejects("cache.cached: «→max(»cache[0].length«→ - 1, 0)»", "tokens after a cache off by one")
@rejects("Attention.causal_mask: («past→»", "a chunk without its shift in the mask")
@pytest.mark.parametrize(("chunks", "n"), [([4, 3, 1, 2], 4), ([1, 9], 1)], ids=str)
@pytest.mark.parametrize(("bits", "inject"), [(0, "kv"), (3, "kv"), (3, "memory")])
@torch.no_grad()
def test_reading_in_chunks_equals_reading_at_once(
    make_model, make_tokens, rng, bits, inject, chunks, n
):
    """A chunk of several tokens after a filled cache needs a mask of its own; ``n`` layers, of
    which the last reads z, and heads.
    """
    shape = {"n_layers": n, "latent_block": n, "n_heads": n, "n_kv_heads": 1}
    model = make_model(latent_bits=bits, latent={"inject": inject}, **shape)
    tokens = make_tokens(2, 10)
    codes = torch.randint(8, (2, 10), generator=rng)
    z = codes.split(chunks, dim=1) if bits else [None] * len(chunks)
    cache = new_cache(model.config, 10)
    parts = [
        given_codes(model, part, c, cache=cache).hidden
        for part, c in zip(tokens.split(chunks, dim=1), z, strict=True)
    ]
    whole = given_codes(model, tokens, codes if bits else None).hidden
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, **CLOSE)


def test_noise_by_its_source():
    """A seed gives every row the same, counted from its first token, whatever the generator; the
    generator gives neighbouring rows the same, by default none.
    """
    shape = (6, 9, 3)
    pinned = [Pinned(7).draws(shape, 4, seeded(s), None).noise for s in (1, 2)]
    assert torch.equal(*pinned) and (pinned[0] == pinned[0][:1]).all()
    assert not torch.equal(pinned[0], Pinned(8).draws(shape, 4, seeded(1), None).noise)
    padded = Pinned(7).draws(shape, 4, seeded(1), torch.tensor([0, 2] * 3)).noise
    assert torch.equal(padded[1, 2:], padded[0, :-2]) and torch.equal(padded[0], pinned[0][0])

    drawn = [FromPrior().draws(shape, 4, seeded(s), None).noise for s in (1, 1, 2)]
    assert torch.equal(drawn[0], torch.rand(shape, generator=seeded(1)))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    shared = FromPrior(3).draws(shape, 4, seeded(1), None).noise
    assert torch.equal(shared, shared[[0, 0, 0, 3, 3, 3]])
    assert not torch.equal(shared[0], shared[3])


@rejects("generate.generate: active.z_draws[«i→max(i - 1, 0)»", "pinned codes off by one")
@pytest.mark.parametrize("shape", [(6,), (1, 6), (3, 6), (9,)], ids=str)
def test_given_codes_are_used_in_order(make_model, make_tokens, recorded, rng, shape):
    """Those of new tokens, or also those of the prompt."""
    model, prompt, z = make_model(), make_tokens(3, 4), torch.randint(8, shape, generator=rng)
    outputs, expected = recorded(model), z[..., :6].expand(3, -1)
    generate(model, prompt, 7, generator=rng, z=Codes(z))
    assert torch.equal(codes_of(outputs[1:7]), expected)
    every = torch.cat((torch.randint(8, (3, 4), generator=rng), expected), dim=1)
    generate(model, prompt, 7, generator=rng, z=Noise(torch.rand(3, 10, 3, generator=rng), every))
    assert torch.equal(codes_of(outputs[7:]), every)


def test_what_the_generator_decides(make_model, make_tokens):
    model, prompt = make_model(), make_tokens(1, 4).expand(5, -1)
    runs = [generate(model, prompt, 8, generator=seeded(s), z=Pinned(7)) for s in (1, 1, 2)]
    usual = generate(model, prompt, 8, generator=seeded(1), z=Pinned(7), temperature=1.0)
    assert torch.equal(runs[0], runs[1]), "its seed reproduces everything"
    assert torch.equal(runs[0], usual), "at a temperature of 1"
    assert not torch.equal(runs[0], runs[2]), "with z pinned the tokens are still drawn"
    assert len(runs[0].unique(dim=0)) > 1, "for each row"
    runs = [
        generate(model, prompt, 8, generator=seeded(s), z=Pinned(7), temperature=0) for s in (1, 2)
    ]
    assert torch.equal(*runs), "nothing, with the most probable tokens and z pinned"


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_spread_evenly_take_each_token_as_often_as_it_is_probable(temperature):
    """10 000 of them, in float32 and float64 to within two of what is expected."""
    logits, n = torch.tensor([0.3, -0.5, 1.0, -torch.inf, 0.7]), 10000
    draws = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    counts = sample_token(logits.expand(n, -1), temperature, draws).bincount(minlength=5)
    expected = n * (logits.double() / temperature).softmax(-1)
    torch.testing.assert_close(counts.double(), expected, atol=2, rtol=0)


def test_a_token_of_probability_0_is_not_drawn_by_the_least_or_greatest_number():
    """Nor is one outside the vocabulary: the probabilities' sum is 1 but for rounding."""
    logits = torch.full((3, 5), -torch.inf)
    logits[:, [1, 3]] = torch.tensor([0.0, 1e-7])
    draws = torch.tensor([0, 0.5**53, 1 - 0.5**53], dtype=torch.float64)
    assert sample_token(logits, 1.0, draws).tolist() == [3, 3, 1]
    logits = torch.arange(50.0).sin()[:, None] * torch.arange(5)
    assert (logits.softmax(1).double().sum(1) < 1).any(), "a sum of 1 or more tests nothing"
    assert (sample_token(logits, 1.0, torch.zeros(50).double()) == 4).all()


def test_each_row_is_drawn_by_its_own_number(rng):
    logits, draws = torch.randn(50, 7, generator=rng), draw_uniform(rng, 50, 1)[0]
    alone = [sample_token(logits[i : i + 1], 1.0, draws[i : i + 1]).item() for i in range(50)]
    assert sample_token(logits, 1.0, draws).tolist() == alone
    equals = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 1.0]])
    assert sample_token(equals, 0, None).tolist() == [1, 0], "the first of equally probable ones"


@rejects("generate.generate: «check_tokens→»(token", "a token beyond the vocabulary from NaN")
@pytest.mark.parametrize("place", ["embedding", "readout"])
def test_nan_logits_are_refused_and_no_token_is_made_of_them(make_model, rng, place):
    """Of one row of two, by its prompt, or of both."""
    model = make_model(tied=False, latent_bits=0)
    with torch.no_grad():
        getattr(model, place).weight[5] = torch.nan
    prompt = torch.tensor([[1, 2], [1, 5]])

    def never_outside(new):
        assert (new < 11).all(), "a token outside the vocabulary was read"
        return torch.zeros(len(new), dtype=torch.bool)

    for temperature, new, until in product((0, 1.0), (1, 3), (None, never_outside)):
        settings = {"generator": rng, "temperature": temperature, "until": until}
        with pytest.raises(ValueError, match="no token can be drawn"):
            generate(model, prompt, new, **settings)


@pytest.mark.parametrize(
    ("prompt", "padding", "most"),
    [(6, None, 11), (10, [4, 6], 11)],
    ids=["a whole prompt", "the tokens of a padded one"],
)
def test_a_sequence_may_fill_the_context_and_one_token_more(
    make_model, make_tokens, rng, prompt, padding, most
):
    """The last token is never read, so it needs no position."""
    model, prompt = make_model(context=16), make_tokens(2, prompt)
    settings = {"generator": rng, "padding": None if padding is None else torch.tensor(padding)}
    assert generate(model, prompt, most, **settings).shape == (2, prompt.shape[1] + most)
    with pytest.raises(ValueError, match="6 prompt tokens and 12 new ones exceed the context"):
        generate(model, prompt, most + 1, **settings)


ZEROS = torch.zeros(4, dtype=torch.long)
BASELINE = {"latent_bits": 0}
REFUSED = {
    "seed, baseline": (BASELINE, {"z": Pinned(7)}, "baseline"),
    "too few codes": ({}, {"z": Codes(ZEROS[:3])}, "3 codes cannot pin 5 new tokens"),
    "rows of rows": ({}, {"z": Codes(ZEROS.expand(1, 2, 4))}, "codes must be"),
    "code 8 of 8": ({}, {"z": Codes(ZEROS + 8)}, "outside 0 … 7$"),
    "code -1": ({}, {"z": Codes(ZEROS - 1)}, "outside 0 … 7$"),
    "code -1 of 63 bits": (
        {"latent_bits": 63, "latent": {"map": "linear"}},
        {"z": Codes(ZEROS - 1)},
        "outside",
    ),
    "3 rows for 2": ({}, {"z": Codes(ZEROS.expand(3, 4))}, "codes must be"),
    "not integers": ({}, {"z": Codes(torch.zeros(4))}, "codes must be integers"),
    "noise too short": ({}, {"z": Noise(torch.rand(2, 7, 3))}, "noise must be"),
    "noise of one row for 2": ({}, {"z": Noise(torch.rand(1, 9, 3))}, "noise must be"),
    "noise of 2 bits for 3": ({}, {"z": Noise(torch.rand(2, 9, 2))}, "noise must be"),
    "groups of 3 in 2 rows": ({}, {"z": FromPrior(3)}, "in groups of 3"),
    "one generator for 2 rows": ({}, {"generator": [seeded(0)]}, "1 generators"),
    "z by generators of rows": ({}, {"generator": [seeded(0)] * 2}, "needs a seed or noise"),
    "-1 tokens": ({}, {"n_new": -1}, "n_new: -1 is negative"),
    "a negative temperature": ({}, {"temperature": -1.0}, "negative"),
    "too small to divide by": ({}, {"temperature": 1e-60}, "after the temperature"),
    "codes of spans": ({"latent": {"per": "sequence"}}, {"z": Codes(ZEROS)}, "pin noise instead"),
}


@pytest.mark.parametrize(("changes", "arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_generated_is_refused(
    make_model, make_tokens, rng, changes, arguments, message
):
    with pytest.raises(ValueError, match=message):
        arguments = {"n_new": 5, "generator": rng} | arguments
        generate(make_model(**changes), make_tokens(2, 4), **arguments)


def test_no_new_tokens_leave_the_prompt(make_model, make_tokens, rng):
    prompt = make_tokens(2, 4)
    assert torch.equal(generate(make_model(), prompt, 0, generator=rng), prompt)


@pytest.fixture
def three(rng):
    """Prompts of unlike length, these as the rows of one tensor (3, 6), padded on the left with 7s,
    how many are in each, and noise for the positions of each and 8 more.
    """
    prompts = [torch.randint(11, (n,), generator=rng) for n in (4, 1, 6)]
    batch = torch.nn.utils.rnn.pad_sequence(prompts, True, 7, "left")
    noise = torch.rand(3, 14, 3, generator=rng)
    return prompts, batch, torch.tensor([2, 5, 0]), noise


@BOTH
@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("source", ["noise", "a seed"])
def test_padded_prompts_go_on_as_each_would_alone(make_model, three, bits, temperature, source):
    """Greedy or drawn by a generator a row; what stands at padding is never seen."""
    model, (prompts, batch, padding, noise) = make_model(latent_bits=bits), three

    def continued(prompt, generator, noise, padding=None):
        z = FromPrior() if not bits else Pinned(7) if source == "a seed" else Noise(noise)
        given = {"temperature": temperature, "padding": padding, "z": z}
        return generate(model, prompt, 8, generator=generator, **given)

    together = continued(batch, one_for_each_row(), noise, padding)
    assert torch.equal(together[:, :6], batch)
    for row, prompt in enumerate(prompts):
        own = noise[row : row + 1, padding[row] :]
        alone = continued(prompt[None], one_for_each_row()[row : row + 1], own)
        assert torch.equal(together[row, 6:], alone[0, len(prompt) :])


@pytest.mark.parametrize("generators", [one_for_each_row, lambda: seeded(1)], ids=["three", "one"])
@BOTH
def test_a_finished_row_repeats_its_last_token_and_the_others_go_on(
    make_model, three, recorded, bits, generators
):
    """As they would without it. Rows end after 5, 2 and 3 tokens: each pass reads the rows that are
    left, and no more.
    """
    model, (_, batch, padding, noise) = make_model(latent_bits=bits), three
    given = {"padding": padding} | ({"z": Noise(noise)} if bits else {})
    whole = generate(model, batch, 8, generator=generators(), **given)
    outputs, ends, seen = recorded(model), torch.tensor([5, 2, 3]), []

    def until(new):
        seen.append(new)
        return ends == new.shape[1]  # said once: a finished row stays finished

    tokens = generate(model, batch, 8, generator=generators(), until=until, **given)
    assert tokens.shape == (3, 6 + 5)
    for row, end in enumerate(ends.tolist()):
        assert torch.equal(tokens[row, : 6 + end], whole[row, : 6 + end])
        assert (tokens[row, 6 + end :] == tokens[row, 5 + end]).all()
    assert [len(out.hidden) for out in outputs] == [3, 3, 2, 1, 1]
    assert all(torch.equal(new, tokens[:, 6 : 6 + n]) for n, new in enumerate(seen, 1))
    assert len(seen) == 5
