"""Cached generation against the full forward pass, and where each z comes from."""

import pytest
import torch

from ftmodel.inference.fast_decoder import FastDecoder
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import Codes, FromPrior, Noise, Pinned
from ftmodel.inference.sampling import sample_token, token_draws
from ftmodel.model.mapper import pack_bits
from ftmodel.model.transformer import Output
from tests.support.mutants import rejects


@pytest.fixture
def recorded(monkeypatch):
    """Factory of recordings of a model's passes: a list that fills with one Output for each, be it
    of the model or of a FastDecoder.
    """

    def record(model):
        outputs, upper = [], FastDecoder.upper

        def read_and_record(self, x, codes):
            hidden = upper(self, x, codes)
            outputs.append(Output(hidden[:, None], None if codes is None else codes[:, None]))
            return hidden

        monkeypatch.setattr(FastDecoder, "upper", read_and_record)
        model.register_forward_hook(lambda _module, _args, out: outputs.append(out))
        return outputs

    return record


@pytest.fixture
def peaked(make_model):
    """A Free Transformer whose encoder is so sure of its bits that noise does not matter."""
    model = make_model()
    with torch.no_grad():
        model.latent.readout.weight.mul_(1e6)
    return model


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def codes_of(outputs):
    """z of all positions that the passes read: (B, P + N − 1)."""
    return torch.cat([out.codes for out in outputs], dim=1)


@rejects(
    "inference/fast_decoder.py",
    "rope, mask = self.rope[self.position], self.readable()\n        torch.index_select",
    "rope, mask = self.rope[self.position - 1], self.readable()\n        torch.index_select",
    "new tokens off by one position",
)
@pytest.mark.parametrize(
    ("bits", "reader"),
    [(0, None), (3, None), (3, 1), (3, 4)],
    ids=["baseline", "latent", "read by the first block", "read by the last block"],
)
@pytest.mark.parametrize("prompt_length", [1, 5])
@torch.no_grad()
def test_cached_generation_equals_the_full_forward_pass(
    make_model, make_tokens, recorded, rng, bits, reader, prompt_length
):
    """Step logits equal those of one pass over the finished sequences with the same z."""
    model = make_model(latent_bits=bits, latent_block=reader)
    outputs = recorded(model)
    tokens = generate(model, make_tokens(3, prompt_length), 8, generator=rng)
    stepwise = torch.cat([out.hidden for out in outputs], dim=1)
    full = model(tokens[:, :-1], codes=codes_of(outputs[:8]) if bits else None)
    torch.testing.assert_close(
        model.logits(stepwise), model.logits(full.hidden), atol=5e-5, rtol=1e-5
    )


@pytest.mark.parametrize("bits", [0, 3], ids=["baseline", "latent"])
@torch.no_grad()
def test_temperature_0_takes_the_most_probable_token_of_the_full_pass(
    make_model, make_tokens, recorded, rng, bits
):
    model = make_model(latent_bits=bits)
    outputs = recorded(model)
    tokens = generate(model, make_tokens(3, 4), 9, generator=rng, temperature=0)
    full = model(tokens[:, :-1], codes=codes_of(outputs[:9]) if bits else None)
    assert torch.equal(model.logits(full.hidden)[:, 3:].argmax(-1), tokens[:, 4:])


@rejects(
    "model/transformer.py",
    "start, length = cache[0].length if cache else 0, ",
    "start, length = max(cache[0].length - 1, 0) if cache else 0, ",
    "tokens after a cache off by one position",
)
@rejects(
    "model/layers.py",
    ".tril(past)",
    ".tril()",
    "a chunk read after others without their shift in the mask",
)
@pytest.mark.parametrize("chunks", [[4, 3, 1, 2], [1] * 10, [1, 9]], ids=str)
@pytest.mark.parametrize("bits", [0, 3], ids=["baseline", "latent"])
@torch.no_grad()
def test_reading_in_chunks_equals_reading_at_once(make_model, make_tokens, rng, bits, chunks):
    """A chunk of several tokens after a filled cache needs a mask of its own."""
    model, tokens = make_model(latent_bits=bits), make_tokens(2, 10)
    codes = torch.randint(8, (2, 10), generator=rng)
    z = codes.split(chunks, dim=1) if bits else [None] * len(chunks)
    cache = model.new_cache(10)
    parts = [
        model(part, codes=c, cache=cache).hidden
        for part, c in zip(tokens.split(chunks, dim=1), z, strict=True)
    ]
    whole = model(tokens, codes=codes if bits else None).hidden
    torch.testing.assert_close(
        model.logits(torch.cat(parts, dim=1)), model.logits(whole), atol=5e-5, rtol=1e-5
    )


@rejects(
    "inference/generate.py",
    "model(prompt, noise=noise, cache",
    "model(prompt, prior_noise=noise, cache",
    "z of the prompt from the prior",
)
def test_z_of_the_prompt_comes_from_the_encoder_reading_the_prompt_alone(
    peaked, make_tokens, recorded, rng
):
    prompt = make_tokens(4, 6)
    o = peaked(prompt, noise=torch.full((4, 6, 3), 0.5)).bit_logits
    expected = sum((o[..., h] > 0).long() << h for h in range(3))
    outputs = recorded(peaked)
    generate(peaked, prompt, 5, generator=rng)
    assert torch.equal(outputs[0].codes, expected)
    assert all(out.bit_logits is None for out in outputs[1:])


def test_z_of_the_prompt_is_sampled_not_thresholded(make_model, make_tokens, recorded, rng):
    """Bits follow the encoder's probabilities: over 2000 rows, within 4 standard errors."""
    model, prompt = make_model(), make_tokens(1, 3)
    outputs = recorded(model)
    generate(model, prompt.expand(2000, -1), 1, generator=rng)
    p = outputs[0].bit_logits[0].sigmoid()  # (3, 3), the same in all rows
    bits = outputs[0].codes[..., None] >> torch.arange(3) & 1
    error = (p * (1 - p) / 2000).sqrt()
    assert ((bits.float().mean(0) - p).abs() < 4 * error).all()


@rejects("model/latent.py", "0.5 if logits", "0.4 if logits", "prior not uniform")
def test_new_z_is_uniform_over_all_codes(make_model, make_tokens, recorded, rng):
    """χ² of 4400 codes over 8 values; 24.3 is its 0.999 quantile at 7 degrees of freedom."""
    model = make_model()
    outputs = recorded(model)
    generate(model, make_tokens(400, 2), 12, generator=rng)
    counts = codes_of(outputs[1:]).flatten().bincount(minlength=8)
    assert counts.sum() == 4400 and len(counts) == 8
    assert ((counts - 550.0) ** 2 / 550).sum() < 24.3


def test_new_z_is_independent_from_token_to_token(make_model, make_tokens, recorded, rng):
    """χ² of 2000 pairs of neighbours over 16 values; 37.7 is its 0.999 quantile at 15 degrees."""
    model = make_model(latent_bits=2)
    outputs = recorded(model)
    generate(model, make_tokens(2000, 1), 3, generator=rng)
    first, second = (out.codes.flatten() for out in outputs[1:])
    counts = (4 * first + second).bincount(minlength=16)
    assert ((counts - 125.0) ** 2 / 125).sum() < 37.7


def test_a_seed_gives_every_row_the_same_z_whatever_the_generator(
    make_model, make_tokens, recorded
):
    model, prompt = make_model(), make_tokens(1, 4).expand(5, -1)
    outputs = recorded(model)
    runs = [generate(model, prompt, 8, generator=seeded(s), z=Pinned(7)) for s in (1, 2)]
    first, second = codes_of(outputs[:8]), codes_of(outputs[8:])
    assert torch.equal(first, second)
    assert torch.equal(first, first[:1].expand(5, -1))
    assert not torch.equal(*runs), "the tokens are still drawn by the generator"
    assert len(runs[0].unique(dim=0)) > 1


def test_different_seeds_give_different_z(make_model, make_tokens, recorded):
    model, prompt = make_model(), make_tokens(1, 4)
    outputs = recorded(model)
    for z in (7, 8):
        generate(model, prompt, 12, generator=seeded(1), z=Pinned(z))
    assert not torch.equal(codes_of(outputs[1:12]), codes_of(outputs[13:]))


def test_a_seed_samples_the_encoders_bits_of_the_prompt(peaked, make_tokens, recorded, rng):
    """Pinning fixes the noise, not the codes: prompts that differ keep their own z."""
    prompt = make_tokens(6, 4)
    outputs = recorded(peaked)
    generate(peaked, prompt, 1, generator=rng, z=Pinned(7))
    o = outputs[0].bit_logits
    assert torch.equal(outputs[0].codes, sum((o[..., h] > 0).long() << h for h in range(3)))
    assert len(outputs[0].codes.unique(dim=0)) > 1


@rejects(
    "inference/generate.py", "rows.noise[i]", "rows.noise[max(i - 1, 0)]", "pinned codes off by one"
)
@pytest.mark.parametrize("per_row", [False, True], ids=["(N,)", "(B, N)"])
@pytest.mark.parametrize("spare", [0, 3], ids=["just enough", "more than needed"])
def test_given_codes_are_used_in_order(make_model, make_tokens, recorded, rng, per_row, spare):
    model = make_model()
    z = torch.randint(8, (3, 6 + spare) if per_row else (6 + spare,), generator=rng)
    outputs = recorded(model)
    generate(model, make_tokens(3, 4), 7, generator=rng, z=Codes(z))
    assert torch.equal(codes_of(outputs[1:]), z[..., :6].expand(3, -1))


def test_neighbouring_rows_share_z(make_model, make_tokens, recorded, rng):
    """Six rows of one prompt, shared by three: two different z, the prompt's included."""
    model = make_model()
    outputs = recorded(model)
    generate(model, make_tokens(1, 4).expand(6, -1), 8, generator=rng, z=FromPrior(3))
    for codes in (outputs[0].codes, codes_of(outputs[1:])):
        assert torch.equal(codes, codes[[0, 0, 0, 3, 3, 3]])
        assert not torch.equal(codes[0], codes[3])


def test_rows_do_not_share_z_by_default(make_model, make_tokens, recorded, rng):
    model = make_model()
    outputs = recorded(model)
    generate(model, make_tokens(1, 4).expand(6, -1), 12, generator=rng)
    assert len(codes_of(outputs[1:]).unique(dim=0)) == 6


def test_at_temperature_0_with_z_pinned_the_generator_decides_nothing(make_model, make_tokens):
    model, prompt = make_model(), make_tokens(3, 4)
    runs = [
        generate(model, prompt, 8, generator=seeded(s), z=Pinned(7), temperature=0) for s in (1, 2)
    ]
    assert torch.equal(*runs)


def test_the_generators_seed_reproduces_everything(make_model, make_tokens):
    model, prompt = make_model(), make_tokens(3, 4)
    runs = [generate(model, prompt, 8, generator=seeded(s)) for s in (1, 1, 2)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_follow_softmax_of_logits_over_temperature(rng, temperature):
    """χ² of 5000 tokens; 18.5 is its 0.999 quantile at 4 degrees of freedom."""
    logits = torch.tensor([0.3, -0.5, 1.0, 0.0, 0.7])
    tokens = sample_token(logits.expand(5000, -1), temperature, token_draws(rng, 5000, 1)[0])
    weights = torch.tensor([2.718281828 ** (x / temperature) for x in logits.tolist()])
    expected = 5000 * weights / weights.sum()
    counts = tokens.bincount(minlength=5)
    assert tokens.shape == (5000,)
    assert ((counts - expected) ** 2 / expected).sum() < 18.5


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_draws_spread_evenly_take_each_token_as_often_as_it_is_probable(temperature):
    """10 000 of them, in float32 and float64 to within two of what is expected."""
    logits, n = torch.tensor([0.3, -0.5, 1.0, -torch.inf, 0.7]), 10000
    draws = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    counts = sample_token(logits.expand(n, -1), temperature, draws).bincount(minlength=5)
    expected = n * (logits.double() / temperature).softmax(-1)
    torch.testing.assert_close(counts.double(), expected, atol=2, rtol=0)


@rejects("inference/sampling.py", "(1 - draws)[:,", "draws[:,", "a token of probability 0 drawn")
def test_a_token_of_probability_0_is_not_drawn_by_the_least_or_greatest_number():
    """Nor is one outside the vocabulary: the probabilities' sum is 1 but for rounding."""
    logits = torch.full((3, 5), -torch.inf)
    logits[:, [1, 3]] = torch.tensor([0.0, 1e-7])
    draws = torch.tensor([0, 0.5**53, 1 - 0.5**53], dtype=torch.float64)
    assert sample_token(logits, 1.0, draws).tolist() == [3, 3, 1]


def never_outside(new):
    """An ``until`` that ends nothing, for a vocabulary of 11."""
    assert (new < 11).all(), "a token outside the vocabulary was read"
    return torch.zeros(len(new), dtype=torch.bool)


@rejects(
    "inference/generate.py",
    "check_tokens(token, vocabulary)",
    "pass",
    "a token outside the vocabulary shown where logits are NaN",
)
@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize("until", [None, never_outside], ids=["alone", "until"])
@pytest.mark.parametrize("place", ["embedding", "readout"])
def test_nan_logits_are_refused_and_no_token_is_made_of_them(
    make_model, rng, place, temperature, new, until
):
    """Of one row of two, by its prompt, or of both."""
    model = make_model(tied=False, latent_bits=0)
    with torch.no_grad():
        getattr(model, place).weight[5] = torch.nan
    prompt = torch.tensor([[1, 2], [1, 5]])
    settings = {"generator": rng, "temperature": temperature, "until": until}
    with pytest.raises(ValueError, match="no token can be drawn"):
        generate(model, prompt, new, **settings)


def test_a_temperature_too_small_to_divide_by_is_refused(make_model, make_tokens, rng):
    with pytest.raises(ValueError, match="over the temperature"):
        generate(make_model(), make_tokens(3, 4), 5, generator=rng, temperature=1e-60)


def test_each_row_is_drawn_by_its_own_number(rng):
    logits, draws = torch.randn(50, 7, generator=rng), token_draws(rng, 50, 1)[0]
    tokens = sample_token(logits, 1.0, draws)
    for row in range(50):
        alone = sample_token(logits[row : row + 1], 1.0, draws[row : row + 1])
        assert tokens[row] == alone


def test_the_first_of_equally_probable_tokens_is_taken_at_temperature_0():
    logits = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 1.0]])
    assert sample_token(logits, 0, None).tolist() == [1, 0]


@pytest.mark.parametrize("bits", [0, 3], ids=["baseline", "latent"])
def test_with_one_generator_too_a_rows_tokens_do_not_depend_on_when_others_end(
    make_model, make_tokens, bits
):
    model, prompt = make_model(latent_bits=bits), make_tokens(3, 4)
    whole = generate(model, prompt, 8, generator=seeded(1))
    tokens = generate(
        model,
        prompt,
        8,
        generator=seeded(1),
        until=lambda new: torch.tensor([new.shape[1] == 2, False, False]),
    )
    assert torch.equal(tokens[1:], whole[1:])
    assert torch.equal(tokens[0, :6], whole[0, :6]) and (tokens[0, 6:] == tokens[0, 5]).all()


def test_a_sequence_may_fill_the_context_and_one_token_more(make_model, make_tokens, rng):
    """The last token is never read, so it needs no position."""
    model, prompt = make_model(context=16), make_tokens(1, 6)
    assert generate(model, prompt, 11, generator=rng).shape == (1, 17)
    with pytest.raises(ValueError, match="context"):
        generate(model, prompt, 12, generator=rng)


@pytest.mark.parametrize(
    ("bits", "z", "message"),
    [
        (0, Pinned(7), "baseline"),
        (0, Codes(torch.zeros(5, dtype=torch.long)), "baseline"),
        (0, Noise(torch.rand(2, 9, 3)), "baseline"),
        (3, Codes(torch.zeros(3, dtype=torch.long)), "cannot pin"),
        (3, Codes(torch.tensor([0, 0, 8, 0])), "outside"),
        (3, Codes(torch.tensor([0, -1, 0, 0])), "outside"),
        (3, Codes(torch.zeros(3, 4, dtype=torch.long)), "codes must be"),
        (3, Codes(torch.zeros(4)), "codes must be integers"),
        (3, Noise(torch.rand(2, 7, 3)), "noise must be"),
        (3, Noise(torch.rand(1, 9, 3)), "noise must be"),
        (3, Noise(torch.rand(2, 9, 2)), "noise must be"),
        (3, FromPrior(3), "in groups of 3"),
    ],
    ids=[
        "seed, baseline",
        "codes, baseline",
        "noise, baseline",
        "too few codes",
        "code 8 of 8",
        "code -1",
        "3 rows for 2",
        "not integers",
        "noise too short",
        "noise of one row for 2",
        "noise of 2 bits for 3",
        "groups of 3 in 2 rows",
    ],
)
def test_z_that_cannot_be_used_is_refused(make_model, make_tokens, rng, bits, z, message):
    with pytest.raises(ValueError, match=message):
        generate(make_model(latent_bits=bits), make_tokens(2, 4), 5, generator=rng, z=z)


def test_a_negative_temperature_is_refused(make_model, make_tokens, rng):
    with pytest.raises(ValueError, match="negative"):
        generate(make_model(), make_tokens(3, 4), 5, generator=rng, temperature=-1.0)


LENGTHS = (4, 1, 6)


def padded(prompts):
    """Prompts as the rows of one tensor, padded on the left with 7s, and how many in each."""
    longest = max(map(len, prompts))
    padding = [longest - len(prompt) for prompt in prompts]
    rows = [torch.cat((torch.full((n,), 7), x)) for n, x in zip(padding, prompts, strict=True)]
    return torch.stack(rows), torch.tensor(padding)


@pytest.fixture
def three(rng):
    """Prompts of unlike length, and noise for their positions and 8 more."""
    prompts = [torch.randint(11, (n,), generator=rng) for n in LENGTHS]
    return prompts, [torch.rand(n + 8, 3, generator=rng) for n in LENGTHS]


def generators():
    return [seeded(100 + row) for row in range(3)]


@pytest.mark.parametrize("bits", [0, 3], ids=["baseline", "latent"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_padded_prompts_go_on_as_each_would_alone(make_model, three, bits, temperature):
    """Greedy or drawn by a generator a row; what stands at padding is never seen."""
    model, (prompts, noise) = make_model(latent_bits=bits), three
    batch, padding = padded(prompts)
    z = torch.stack([torch.cat((x.new_zeros(14 - len(x), 3), x)) for x in noise])
    given = {"z": Noise(z)} if bits else {}
    together = generate(
        model, batch, 8, generator=generators(), temperature=temperature, padding=padding, **given
    )
    assert torch.equal(together[:, :6], batch)
    for row, prompt in enumerate(prompts):
        given = {"z": Noise(noise[row][None])} if bits else {}
        own = generators()[row]
        alone = generate(model, prompt[None], 8, generator=own, temperature=temperature, **given)
        assert torch.equal(together[row, 6:], alone[0, len(prompt) :])


@rejects(
    "inference/latent_source.py",
    "torch.arange(length) - padding.cpu()[:, None]",
    "torch.arange(length) - 0 * padding.cpu()[:, None]",
    "z pinned by a seed shifted by padding",
)
def test_a_seed_pins_z_of_tokens_not_of_padding(make_model, three):
    """A padded prompt goes on as it would alone, its first token having the seed's first noise."""
    model, (prompts, _) = make_model(), three
    batch, padding = padded(prompts)
    together = generate(model, batch, 8, generator=generators(), z=Pinned(7), padding=padding)
    for row, prompt in enumerate(prompts):
        alone = generate(model, prompt[None], 8, generator=generators()[row], z=Pinned(7))
        assert torch.equal(together[row, 6:], alone[0, len(prompt) :])


def test_padding_of_nothing_is_none(make_model, make_tokens):
    model, prompt = make_model(), make_tokens(3, 4)
    runs = [
        generate(model, prompt, 8, generator=seeded(1), padding=padding)
        for padding in (None, torch.zeros(3, dtype=torch.long))
    ]
    assert torch.equal(*runs)


def test_noise_fixes_z_of_all_positions(make_model, make_tokens, recorded, rng):
    """That which one generator would have drawn gives the same codes."""
    model, prompt = make_model(), make_tokens(3, 4)
    outputs = recorded(model)
    drawn = generate(model, prompt, 8, generator=seeded(5), temperature=0)
    noise = torch.rand(3, 12, 3, generator=seeded(5))
    given = generate(model, prompt, 8, generator=rng, z=Noise(noise), temperature=0)
    assert torch.equal(drawn, given)
    assert torch.equal(codes_of(outputs[:8]), codes_of(outputs[8:]))


def test_noise_below_and_above_all_probabilities_gives_any_codes(
    peaked, make_tokens, recorded, rng
):
    """At the prompt's positions too, of an encoder that is sure of others."""
    bits = torch.randint(2, (5, 11, 3), generator=rng)
    outputs = recorded(peaked)
    generate(peaked, make_tokens(5, 4), 8, generator=rng, z=Noise(1 - 2 * bits.float()))
    assert torch.equal(codes_of(outputs), pack_bits(bits))


@pytest.mark.parametrize("bits", [0, 3], ids=["baseline", "latent"])
def test_a_finished_row_repeats_its_last_token_and_the_others_go_on(
    make_model, three, recorded, bits
):
    """Rows end after 5, 2 and 3 tokens: each pass reads the rows that are left, and no more."""
    model, (prompts, noise) = make_model(latent_bits=bits), three
    batch, padding = padded(prompts)
    z = torch.stack([torch.cat((x.new_zeros(14 - len(x), 3), x)) for x in noise])
    given = {"z": Noise(z)} if bits else {}
    whole = generate(model, batch, 8, generator=generators(), padding=padding, **given)
    outputs, ends, seen = recorded(model), torch.tensor([5, 2, 3]), []

    def until(new):
        seen.append(new)
        return ends == new.shape[1]  # said once: a finished row stays finished

    tokens = generate(
        model, batch, 8, generator=generators(), padding=padding, until=until, **given
    )
    assert tokens.shape == (3, 6 + 5)
    for row, end in enumerate(ends.tolist()):
        assert torch.equal(tokens[row, : 6 + end], whole[row, : 6 + end])
        assert (tokens[row, 6 + end :] == tokens[row, 5 + end]).all()
    assert [len(out.hidden) for out in outputs] == [3, 3, 2, 1, 1]
    assert all(torch.equal(new, tokens[:, 6 : 6 + n]) for n, new in enumerate(seen, 1))
    assert len(seen) == 5


def test_only_the_prompts_own_tokens_need_room_in_the_context(make_model, make_tokens, rng):
    model, prompt = make_model(context=16), make_tokens(2, 10)
    settings = {"generator": rng, "padding": torch.tensor([4, 6])}
    assert generate(model, prompt, 11, **settings).shape == (2, 21)
    with pytest.raises(ValueError, match="6 prompt tokens and 12 new ones exceed the context"):
        generate(model, prompt, 12, **settings)


@pytest.mark.parametrize(
    ("bits", "generators", "message"),
    [(0, 1, "1 generators"), (3, 1, "1 generators"), (3, 2, "needs a seed or noise")],
)
@pytest.mark.parametrize("z", [FromPrior(), Codes(torch.zeros(4, dtype=torch.long))], ids=str)
def test_generators_that_cannot_be_used_are_refused(
    make_model, make_tokens, bits, generators, message, z
):
    each = [seeded(i) for i in range(generators)]
    z = z if bits else FromPrior()
    with pytest.raises(ValueError, match=message):
        generate(make_model(latent_bits=bits), make_tokens(2, 4), 5, generator=each, z=z)
