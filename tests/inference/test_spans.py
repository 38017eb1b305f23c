"""One z for several tokens in inference: against enumeration of the z of spans, and against the
paper's design with the same weights, which is given each span's z at all of its tokens.
"""

from itertools import product
from math import log

import pytest
import torch

from ftmodel.inference import prompt_spans
from ftmodel.inference import sequence_bound as sequence_bounds
from ftmodel.inference.answers import score_answers
from ftmodel.inference.bounds import latent_bounds
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import Codes, FromPrior, Noise, Pinned
from ftmodel.inference.prompt_spans import candidate_noise, settled_noise
from ftmodel.inference.sequence_bound import (
    enumerable,
    enumerated_nll,
    nll_bound,
    sequence_bound,
)
from ftmodel.model.mapper import pinned_noise
from tests.model.test_spans import DESIGNS, SEQUENCE, drawn_at_starts
from tests.support.dense_form import per_token
from tests.support.enumeration import assert_near
from tests.support.mutants import rejects

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
ROWS = 4000


@pytest.fixture(params=DESIGNS.values(), ids=DESIGNS)
def design(request):
    return request.param


def log_p(model, tokens, codes):
    """log p(x | z) of each token but the first, nats, (B, T − 1), by the paper's design."""
    logits = per_token(model)(tokens[:, :-1], codes=codes[:, : tokens.shape[1] - 1]).hidden
    log_p = model.logits(logits).double().log_softmax(-1)
    return log_p.gather(-1, tokens[:, 1:, None])[..., 0]


def log_prior(model, tokens, codes, starts):
    """log p(z) of the ``codes`` (B, T) at ``starts``, given the z before, nats, (B, starts)."""
    twin, before = per_token(model), torch.zeros(len(tokens), 1, model.config.d_model)
    x = twin.lower(tokens, twin.positions(0, tokens.shape[1], tokens.device))
    hidden = torch.cat((before, twin(tokens, codes=codes).hidden), dim=1)
    logits = twin.latent.prior_logits(x[:, starts], hidden[:, starts])
    if logits is None:
        return torch.full((len(tokens), len(starts)), -log(2) * model.config.latent_bits)
    signs = pinned_noise(codes[:, starts], model.config.latent_bits)  # −1 for bits that are set
    return torch.nn.functional.logsigmoid(-signs * logits).sum(-1).double()


@rejects(
    "inference/sequence_bound.py",
    "log_p.append(ratio - sums(",
    "log_p.append(-sums(",
    "values of one z per sequence summed as if they were equally probable",
)
@rejects(
    "inference/sequence_bound.py",
    "bits = draw() < (q if k % 2 else p)",
    "bits = draw() < (q if k % 2 else 0.5)",
    "samples of one z per sequence drawn from the uniform prior, whatever the prior is",
)
@rejects(
    "inference/filtering.py",
    "torch.where(here, new, z[:n]), log_ratio * here",
    "torch.where(here, new, z[:n]), log_ratio",
    "a span's z weighed again at each of its tokens",
)
@rejects(
    "inference/filtering.py",
    "z, log_ratio = torch.where(here, new, z[:n]),",
    "z, log_ratio = new,",
    "a filter that draws a z at every token of a span",
)
@rejects(
    "inference/filtering.py",
    "            z[poor] = z[poor[:, None], ancestors]\n",
    "",
    "resampled particles that keep the z of those that they replace",
)
@rejects(
    "inference/sequence_bound.py",
    "mixture = (share * log_q.exp() + 1 - share).log()",
    "mixture = log_q",
    "z of one sequence weighed by the encoder alone",
)
@rejects(
    "inference/sequence_bound.py",
    "return log(len(bits)) - torch.stack(log_p).logsumexp(0)",
    "return -torch.stack(log_p).logsumexp(0)",
    "every z of a sequence summed over as if it were certain",
)
@rejects(
    "model/transformer.py",
    "return logits * is_start(starts)[..., None]",
    "return logits",
    "KL of z that nothing reads to the prior of their tokens",
)
@torch.no_grad()
def test_bounds_and_filter_are_those_of_the_z_of_spans(make_model, make_tokens, design, rng):
    model = make_model(latent_bits=2, n_layers=2, latent=design)
    one = make_tokens(1, 9)  # 8 inputs: one span, or 3, 3 and 2 tokens
    width = design.get("every", 8)
    z = torch.tensor([*product(range(4), repeat=-(-8 // width))])
    codes = z.repeat_interleave(width, dim=1)[:, :8]
    every = one.expand(len(z), -1)
    prior = log_prior(model, every[:, :-1], codes, [*range(0, 8, width)]).sum(1)
    nll = -(prior + log_p(model, every, codes).sum(1)).logsumexp(0).item()
    tokens = one.expand(ROWS, -1)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]

    def draw():
        return torch.rand(ROWS, 8, 2, generator=rng)

    if enumerable(model.config):
        exact = enumerated_nll(model, inputs[:3], targets[:3])
        torch.testing.assert_close(exact, torch.full_like(exact, nll), **CLOSE)
    assert enumerable(model.config) == (design["per"] == "sequence")
    bounds = latent_bounds(model, inputs, targets, 1, draw)
    assert_near((nll - bounds.iwae).exp(), 1.0)
    assert_near((nll - bounds.prior).exp(), 1.0)
    assert bounds.elbo.mean() > nll
    spread = []
    for proposal, below in ((0.0, 1.1), (0.0, 0.5), (0.7, 1.1)):
        filtered = nll_bound(model, inputs, targets, 4, draw, None, below, proposal)
        assert_near((nll - filtered).exp(), 1.0)
        spread.append(filtered.std().item())
    alone = nll_bound(model, inputs, targets, 1, draw)
    assert max(spread) < alone.std(), "several particles are better than one"


@torch.no_grad()
def test_chunks_packed_into_rows_are_bounded_as_if_each_were_alone(
    make_model, make_tokens, design, rng
):
    model, tokens = make_model(latent=design), make_tokens(1, 10)
    inputs, targets, noise = tokens[:, :-1], tokens[:, 1:], torch.rand(9, 1, 9, 3, generator=rng)
    ids = torch.tensor([[1, 1, 1, 1, 1, 2, 2, 2, 2]])
    parts = slice(0, 5), slice(5, 9)

    def by(measure, part, segments=None):
        draws = iter(noise[:, :, part])
        return measure(model, inputs[:, part], targets[:, part], lambda: next(draws), segments)

    def bound(model, inputs, targets, draw, segments):
        return nll_bound(model, inputs, targets, 4, draw, segments, 0.9, 0.3)

    def exact(model, inputs, targets, draw, segments):
        return enumerated_nll(model, inputs, targets, segments)

    for measure in (bound, exact) if enumerable(model.config) else (bound,):
        alone = torch.cat([by(measure, part) for part in parts])
        torch.testing.assert_close(by(measure, slice(0, 9), ids), alone, **CLOSE)


@torch.no_grad()
def test_an_encoder_that_is_surer_than_it_should_be_does_little_harm(make_model, make_tokens, rng):
    """Half of the samples are the prior's: no weight is more than twice its p(x | z)."""
    model = make_model(latent_bits=6, n_layers=2, latent=SEQUENCE)
    model.latent.readout.weight.mul_(30)
    tokens = make_tokens(1, 7).expand(ROWS, -1)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]

    def draw():
        return torch.rand(ROWS, 6, 6, generator=rng)

    nll = enumerated_nll(model, inputs[:1], targets[:1]).item()
    for k in (1, 7, 8):
        bound = sequence_bound(model, inputs, targets, k, draw)
        assert_near((nll - bound).exp(), 1.0)
    surely = latent_bounds(model, inputs, targets, 8, draw).iwae
    assert bound.mean() < surely.mean() - 0.01


@rejects(
    "inference/prompt_spans.py",
    "prior_probability(prior, x).expand_as(o)[rows, last]",
    "torch.full_like(own, 0.5, dtype=torch.float64)",
    "a prompt's last z weighed by the uniform prior, whatever the prior is",
)
@rejects(
    "inference/prompt_spans.py",
    "if model.latent.recurrent:",
    "if False:",
    "a prompt's last z by a recurrent prior that reads no z before",
)
@rejects(
    "inference/prompt_spans.py",
    "-mixture - (nll * inside[:, first:]).sum(1)",
    "-mixture",
    "z of a prompt's span that its tokens do not weigh",
)
@rejects(
    "inference/prompt_spans.py",
    "-mixture - (nll",
    "-(nll",
    "candidates of the encoder weighed as if the prior had proposed them",
)
@rejects(
    "inference/prompt_spans.py",
    "uniform < (q if c % 2 else p)",
    "uniform < (p if c % 2 else q)",
    "z from an encoder that has seen one token of a span",
)
@torch.no_grad()
def test_the_z_that_a_prompt_leaves_open_is_that_of_the_models_posterior(
    make_model, make_tokens, monkeypatch, design, rng
):
    """By enumeration; a prompt of one token says nothing, whatever the encoder makes of it."""
    monkeypatch.setattr(prompt_spans, "CANDIDATES", 64)  # its bias goes with their number
    model = make_model(latent_bits=2, n_layers=2, latent=design)
    model.latent.readout.weight.mul_(2)
    model.latent.post_sampler.mul_(5)
    for length in (1, 6):
        prompt = make_tokens(1, length).expand(ROWS, -1)
        noise = torch.rand(ROWS, length, 2, generator=rng)
        first = 0 if design["per"] == "sequence" else (length - 1) // 3 * 3
        earlier = model(prompt, noise=noise).codes
        codes = model(prompt, noise=settled_noise(model, prompt, noise, None)).codes
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


@rejects(
    "model/transformer.py",
    "positions.span_starts = self.span_starts(length, device, documents, padding)",
    "positions.span_starts = self.span_starts(length, device, documents)",
    "a learned prior of padded prompts by their padding",
)
@torch.no_grad()
def test_padding_changes_nothing_for_the_z_that_a_prompt_leaves_open(
    make_model, make_tokens, design, rng
):
    model, prompt, noise = make_model(latent=design), make_tokens(40, 7), torch.rand(40, 7, 3)
    model.latent.post_sampler.mul_(5)
    padded = settled_noise(model, prompt, noise, torch.full((40,), 2))
    alone = settled_noise(model, prompt[:, 2:], noise[:, 2:], None)
    torch.testing.assert_close(padded[:, 2:], alone)


@rejects(
    "inference/prompt_spans.py",
    "torch.where(pinned, p, sampled_probability(o[rows, last]))",
    "sampled_probability(o[rows, last])",
    "pinned bits weighed as if they had been drawn",
)
@torch.no_grad()
def test_bits_that_are_not_pinned_are_drawn_given_those_that_are(
    make_model, make_tokens, monkeypatch, rng
):
    monkeypatch.setattr(prompt_spans, "CANDIDATES", 64)
    model = make_model(seed=4, latent_bits=2, n_layers=2, latent=SEQUENCE)
    model.latent.readout.weight.mul_(12)
    prompt = make_tokens(1, 6).expand(ROWS, -1)
    noise = torch.rand(ROWS, 6, 2, generator=rng)
    q = model(prompt[:1], noise=noise[:1]).bit_logits[0, 0].sigmoid()
    assert abs(q[0] - 0.5) > 0.2 < abs(q[1] - 0.5), "an encoder that says nothing tests nothing"
    pinned = int(q[1] < 0.5)  # to what the encoder holds improbable
    noise[:, 0, 1] = 1 - 2 * pinned
    codes = model(prompt, noise=settled_noise(model, prompt, noise, None)).codes[:, 0]
    given = torch.tensor([2 * pinned, 2 * pinned + 1])[:, None].expand(-1, 6)
    expected = log_p(model, prompt[:2], given).sum(1).softmax(0)
    assert set(codes.tolist()) == set(given[:, 0].tolist())
    assert_near((codes == 2 * pinned + 1).double(), expected[1].item())


def test_candidates_are_uniform_and_pins_remain(rng):
    noise = torch.rand(5000, 3, generator=rng)
    noise[:, 1] = -1
    candidates = candidate_noise(noise)
    assert torch.equal(candidates[0], noise) and (candidates[..., 1] == -1).all()
    free = candidates[1:, :, ::2]
    assert free.min() >= 0 and free.max() < 1
    deviation = (free.mean(1) - 0.5) / (5000 * 12) ** -0.5
    assert deviation.abs().max() < 4.5
    assert free.std(0).min() > 0.1, "candidates differ"


@rejects(
    "inference/fast_decoder.py",
    "return kept(drawn[:, None], noise[:, None], codes)[:, 0]",
    "return drawn",
    "new tokens of a span that do not keep its z",
)
@rejects(
    "inference/generate.py",
    "codes = None if self.decoder.codes is None else self.decoder.codes[rows]",
    "codes = None",
    "rows that go on without the z of their span when others end",
)
@rejects(
    "inference/prompt_spans.py",
    "noise_at_starts(every, starts))",
    "at_starts(every, starts))",
    "a span's z, drawn in the answer, drawn again by its next token",
)
@rejects(
    "inference/prompt_spans.py",
    "return of_spans[:, codes.shape[1] :]",
    "return noise",
    "new tokens of a span with a z of their own, not the prompt's",
)
@rejects(
    "inference/prompt_spans.py",
    "starts = model.span_starts(length, codes.device, padding=padding)",
    "starts = model.span_starts(length, codes.device)",
    "spans of padded prompts counted from the padding",
)
@torch.no_grad()
def test_generation_goes_on_with_the_z_of_the_prompts_span(make_model, make_tokens, design, rng):
    """The z of the prompt is pinned; padded rows, too, and rows that end at a span's end."""
    model, prompt = make_model(latent=design), make_tokens(24, 6)
    model.latent.post_sampler.mul_(5)
    padding = torch.tensor([0, 1, 2]).repeat(8)
    begin = padding[:, None]
    starts = begin + (torch.arange(10) - begin) // design.get("every", 10) * design.get("every", 10)
    noise = torch.rand(24, 10, 3, generator=rng)
    noise[:, :6] = noise[:, :6].round() * 2 - 1
    starts = starts.maximum(torch.arange(10).minimum(begin))  # padding reads its own
    width, twin = design.get("every", 10), per_token(model)
    unpadded = (torch.arange(10) // width * width).expand(24, -1)
    for pad, of in ((None, unpadded), (padding, starts)):
        written = generate(
            model, prompt, 4, generator=rng, z=Noise(noise), temperature=0, padding=pad
        )
        codes = drawn_at_starts(twin, written, noise, of, padding=pad)
        stopped = generate(
            model,
            prompt,
            4,
            generator=rng,
            z=Noise(noise),
            temperature=0,
            padding=pad,
            until=lambda new: torch.arange(24) % 2 * new.shape[1] == 2,
        )
        assert torch.equal(stopped[::2], written[::2])  # the others end after their second token
        out = twin(written[:, :-1], codes=codes[:, :9], padding=pad)
        assert torch.equal(model.logits(out.hidden)[:, 5:].argmax(-1), written[:, 6:])
        rows, lengths = torch.arange(24), torch.full((24,), 4)
        scores = score_answers(model, prompt, pad, written[:, 6:], lengths, rows, [noise[:, :9]])
        log_p = model.logits(out.hidden)[:, 5:].double().log_softmax(-1)
        expected = log_p.gather(-1, written[:, 6:, None]).sum((1, 2))
        torch.testing.assert_close(scores.log_probs[0], expected, **CLOSE)
        alone = drawn_at_starts(twin, written, noise, torch.arange(10).expand(24, -1), padding=pad)
        assert not torch.equal(codes, alone), "z that are not shared would be others"


@torch.no_grad()
def test_rows_that_share_noise_share_z_and_codes_of_new_tokens_are_refused(
    make_model, make_tokens, design, rng
):
    model, prompt = make_model(latent=design), make_tokens(1, 4).expand(6, -1)
    model.latent.post_sampler.mul_(5)
    for source in (Pinned(3), FromPrior(6)):
        written = generate(model, prompt, 9, generator=rng, z=source, temperature=0)
        assert (written == written[0]).all()
    with pytest.raises(ValueError, match="several read one z: pin it by noise"):
        generate(model, prompt, 3, generator=rng, z=Codes(torch.zeros(3, dtype=torch.long)))


@torch.no_grad()
def test_neither_answers_nor_new_tokens_reach_the_encoder(make_model, make_tokens, design, rng):
    """What the encoder's read-out is given has the prompt's 5 positions, and the probability of an
    answer's first token is that of the prompt's z alone.
    """
    model, prompts = make_model(latent=design), make_tokens(3, 5)
    seen = []
    model.latent.readout.register_forward_hook(lambda *call: seen.append(call[-1].shape[1]))
    noise, lengths = torch.rand(3, 8, 3, generator=rng), torch.full((3,), 4)
    answers = make_tokens(3, 4)
    generate(model, prompts, 4, generator=rng)
    scores = score_answers(model, prompts, None, answers, lengths, torch.arange(3), [noise])
    first = score_answers(
        model, prompts, None, answers[:, :1], torch.ones(3).long(), torch.arange(3), [noise]
    )
    assert set(seen) == {5}
    codes = model(prompts, noise=settled_noise(model, prompts, noise[:, :5], None)).codes
    predicted = model.logits(per_token(model)(prompts, codes=codes).hidden[:, -1]).log_softmax(-1)
    expected = predicted.gather(-1, answers[:, :1])[:, 0].double()
    torch.testing.assert_close(first.log_probs[0], expected, **CLOSE)
    assert (scores.log_probs < first.log_probs).all()


def test_pins_of_a_span_are_those_of_its_first_token(make_model, make_tokens, rng):
    model, prompts = make_model(latent=SEQUENCE), make_tokens(5, 6)
    z = torch.arange(5)
    noise = torch.rand(5, 6, 3, generator=rng)
    noise[:, 0] = pinned_noise(z, 3)
    settled = settled_noise(model, prompts, noise, None)
    assert torch.equal(settled, noise)
    assert torch.equal(model(prompts, noise=settled).codes, z[:, None].expand(-1, 6))


@rejects(
    "inference/sequence_bound.py",
    "proposal = default_proposal(model.config.latent)",
    "proposal = 0.0",
    "spans proposed by the prior alone",
)
@pytest.mark.parametrize(("latent", "share"), [({}, 0), ({"per": "every", "every": 3}, 0.25)])
def test_where_several_tokens_read_a_z_the_encoder_has_a_part_in_the_proposal(
    make_model, make_tokens, monkeypatch, latent, share
):
    proposals = []
    monkeypatch.setattr(sequence_bounds, "filtering_bound", lambda *a: proposals.append(a[-1]))
    tokens = make_tokens(2, 7)
    nll_bound(make_model(latent=latent), tokens[:, :-1], tokens[:, 1:], 2, lambda: None)
    assert proposals == [share]
