"""Designs of the latent: each consumer of z against enumeration of all codes, and against a model
with the same weights and one z per token, which is given each span's z at all of its tokens.
"""

from functools import partial
from math import log, sqrt

import pytest
import torch

from ftmodel.analysis.calibration import calibrate, merged
from ftmodel.cache import new_cache
from ftmodel.config import ModelConfig
from ftmodel.designs.noise import Draws
from ftmodel.inference.answers import score_answers
from ftmodel.inference.bounds import encode, latent_bounds
from ftmodel.inference.filtering import FilterSettings, filtering_bound
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import Codes, Noise
from ftmodel.inference.passes import from_prior, upper_from_prior, with_codes
from ftmodel.inference.sequence_bound import enumerable, enumerated_nll, nll_bound
from ftmodel.inference.swap import swapped_ce
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.positions import span_starts
from tests.designs.test_sharing import drawn_at_starts
from tests.support.dense_form import per_token
from tests.support.designs import EVERY, all_pairs, title
from tests.support.enumeration import Exact, assert_near
from tests.support.mutants import rejects
from tests.support.passes import drawing, pinned_noise, settled

CLOSE = {"atol": 2e-5, "rtol": 1e-4}
ROWS = 1000  # independent estimates
CHUNKS = torch.tensor([[1, 1, 1, 1, 1, 2, 2, 2, 0], [3, 3, 3, 3, 3, 3, 3, 3, 3]])  # 0: padding
ALONE = [(0, slice(0, 5)), (0, slice(5, 8)), (1, slice(0, 9))]  # row and tokens of each chunk

# any two values of two settings; no gradient, hence no hinge, in inference
DESIGNS = {
    title(design): design
    for design in (
        {key: value for key, value in each.items() if key not in ("gradient", "free_bits")}
        for each in all_pairs()
    )
} | {"paper": {}}


@pytest.fixture(params=DESIGNS.values(), ids=DESIGNS)
def design(request):
    return request.param


def log_p(model, tokens, codes):
    """log p(x | z) of each token but the first, nats, (B, T − 1), given z at every token."""
    out = with_codes(per_token(model), tokens[:, :-1], codes[:, : tokens.shape[1] - 1])
    log_p = model.logits(out.hidden).double().log_softmax(-1)
    return log_p.gather(-1, tokens[:, 1:, None])[..., 0]


def length_of(model):
    """Tokens of texts of which every z is enumerated: of three tokens or of two spans."""
    return 3 if model.config.latent.per == "token" else 5


@rejects(
    "bounds.latent_bounds: «p→torch.full_like(q, 0.5)»),",
    "KL to the uniform prior, whatever the prior is",
    case="separate memory token linear learned",
)
@rejects(
    "bounds.latent_bounds: «→0 * »hidden),",
    "bounds whose prior does not follow the z before",
    case="shared embedding token linear recurrent",
)
@rejects(
    "filtering.propose: , «p→torch.full_like(p, 0.5)»,",
    "weights of a proposal against the uniform prior",
    case="separate memory token linear learned",
)
@rejects(
    "sequence_bound.enumerated_nll: («ratio→»",
    "values of one z per sequence summed as if they were equally probable",
    case="shared kv sequence table learned",
)
@rejects(
    "bounds.latent_bounds: «log_density_ratio(bits, p, q)→torch.where(bits, p, (1 - "
    "p).expand_as(q)).log().sum(-1)»",
    "IWAE without the posterior's density",
    case="paper",
)
@rejects(
    "filtering.filtering_bound: «torch.where(here, new, z[:n])→new»",
    "a filter that draws a z at every token of a span",
    case="separate kv_all every linear learned 3",
)
@rejects(
    "filtering.filtering_bound: «z[poor] = z[poor[:, None], ancestors]→»",
    "resampled particles that keep the z of those that they replace",
    case="separate kv every table recurrent 3",
)
@rejects(
    "sequence_bound.sequence_bound: «(share * log_q.exp() + 1 - share).log()→log_q»",
    "z of one sequence weighed by the encoder alone",
    case="shared kv sequence table learned",
)
@rejects(
    "FreeTransformer.prior_logits: «only_starts(logits, at.span_starts)→logits»",
    "KL of z that nothing reads to the prior of their tokens",
    case="shared kv sequence table learned",
)
@torch.no_grad()
def test_bounds_are_those_of_every_z_enumerated(make_model, make_tokens, design, rng):
    """Of the z of three tokens, or of a first and a second span, or of a sequence."""
    model = make_model(latent_bits=2, n_layers=2, latent=design)
    length = length_of(model)
    tokens = make_tokens(1, length + 1).expand(ROWS, -1)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    truth = Exact(model, inputs[0], targets[0])
    nll = truth.nll
    assert truth.prior_ce > nll + 0.02, "z that changes nothing would test nothing"

    draw = drawing(rng, ROWS, length, 2)
    bounds = latent_bounds(model, inputs, targets, 2, draw)
    torch.testing.assert_close(bounds.kl_bits.sum(-1), bounds.kl)
    torch.testing.assert_close(bounds.iwae, log(2) - bounds.log_weights.logsumexp(0))
    assert_near((nll - bounds.iwae).exp(), 1.0)
    assert_near((nll - bounds.prior).exp(), 1.0)
    assert bounds.elbo.mean() > nll
    assert_near(bounds.ce, truth.posterior_ce)
    assert_near(bounds.elbo, truth.posterior_ce + truth.kl)
    assert_near(bounds.kl, truth.kl)  # to a recurrent prior it depends on z
    assert enumerable(model.config) == (model.config.latent.per == "sequence")
    if enumerable(model.config):
        exact = enumerated_nll(model, inputs[:3], targets[:3])
        torch.testing.assert_close(exact, torch.full_like(exact, nll), **CLOSE)
    means = []
    for particles, below, proposal in ((1, 0.0, 0.0), (4, 0.5, 0.0), (4, 1.1, 0.7)):
        settings = FilterSettings(below, proposal)
        filtered = nll_bound(model, inputs, targets, particles, draw, None, settings)
        assert_near((nll - filtered).exp(), 1.0)
        means.append(filtered.mean())
    assert means[0] > means[1] > nll, "several particles are better than one"
    assert_near(encode(model, inputs, draw())[1].sum((1, 2)), truth.kl)


@torch.no_grad()
def test_a_calibrated_bound_is_the_enumerated_nll(make_model, make_tokens, design, rng):
    """Within its own error, of 24 texts that are others than those of the calibration."""
    model = make_model(latent_bits=2, n_layers=2, latent=design)
    length = length_of(model)
    others, texts = make_tokens(32, length + 1), make_tokens(24, length + 1)
    truth = torch.tensor(
        [Exact(model, each[:-1], each[1:]).nll for each in texts], dtype=torch.float64
    )

    def filters(tokens, number, particles, share):
        draw = drawing(rng, len(tokens), length, 2)
        common = model, tokens[:, :-1], tokens[:, 1:], particles, draw, None
        settings = FilterSettings(0.5, share, stratify=True)
        return torch.stack([nll_bound(*common, settings) for _ in range(number)])

    lengths = torch.full((len(others),), length)
    found = calibrate(partial(filters, others, 4), lengths, texts[:, 1:].numel(), 512)
    nll = filters(texts, 2, found.particles, found.proposal)
    variance = nll.var(0).sum().item()
    above = (merged(nll) - truth).sum().item()
    assert found.converged
    assert abs(above) < 4 * sqrt(variance / 2) + variance / 4
    assert above < 0.5 * len(texts) ** 0.5 * truth.std().item(), "half an error over documents"


@rejects("sharing.token_before: «:-1], (0, 0, 1→:], (0, 0, 0»", "a prior that reads its own token")
@rejects(
    "passes.upper_from_prior: «state = state * (at.documents[:, t] == at.documents[:, t - "
    "1])[:, None]→pass»",
    "a recurrent prior that goes on from one document to the next",
)
@rejects("bounds.lower_half: «, documents=segment_ids→») return", "chunks of a row scored as one")
@rejects("filtering.filtering_bound: return «→nll; »torch", "bounds in the order of lengths")
@torch.no_grad()
def test_chunks_in_a_row_are_measured_as_if_each_stood_alone(make_model, make_tokens, design, rng):
    """Chunks that end at different tokens, and padding; each has its own noise."""
    model, tokens = make_model(latent=design), make_tokens(2, 10)
    noise = torch.rand(9, 2, 9, 3, generator=rng)

    def measured(rows, part, ids=None):
        """Everything that is known of each chunk, (chunks, …), and of each token."""
        inputs, targets = tokens[rows, :-1][:, part], tokens[rows, 1:][:, part]
        noises = noise[:, rows, part]
        bounds = latent_bounds(model, inputs, targets, 2, iter(noises).__next__, ids)
        common = model, inputs, targets
        settings = FilterSettings(0.9, 0.3)
        nll = [nll_bound(*common, 4, iter(noises).__next__, ids, settings)]
        if enumerable(model.config):
            nll.append(enumerated_nll(model, inputs, targets, ids))
        sums = (*bounds.log_weights, *bounds.kl_bits.T, bounds.ce, bounds.kl, bounds.elbo)
        if model.config.latent.per != "sequence":  # one particle is one sample
            of_encoder = FilterSettings(0, 1.0)
            one = filtering_bound(*common, 1, iter(noises).__next__, ids, of_encoder)
            torch.testing.assert_close(one, -bounds.log_weights[0], **CLOSE)
        both = encode(model, inputs, noises[0], ids)
        return torch.stack((*sums, bounds.iwae, bounds.prior, *nll), 1), torch.cat(both, -1)

    packed, of_tokens = measured(slice(0, 2), slice(0, 9), CHUNKS)
    for chunk, (row, part) in enumerate(ALONE):
        alone, of_token = measured(slice(row, row + 1), part)
        torch.testing.assert_close(packed[chunk], alone[0], **CLOSE)
        torch.testing.assert_close(of_tokens[row, part], of_token[0], **CLOSE)


PADDED = pytest.mark.parametrize(
    "padding", [None, torch.tensor([0, 1, 2]).repeat(8)], ids=["not padded", "padded"]
)


def starts_of(model, length, padding):
    """The first token of each token's span, (24, T)."""
    starts = span_starts(model.config.latent, length, torch.device("cpu"), padding=padding)
    return (torch.arange(length)[None] if starts is None else starts).expand(24, -1)


@rejects("Positions.read_after: documents = «→1 | »real", "a recurrent prior that reads padding")
@PADDED
@torch.no_grad()
def test_z_of_the_prior_is_drawn_token_by_token(make_model, make_tokens, design, rng, padding):
    model, tokens = make_model(latent=design), make_tokens(24, 8)
    noise, twin = torch.rand(24, 8, 3, generator=rng), per_token(model)
    real = torch.arange(8) >= (torch.zeros(24) if padding is None else padding)[:, None]
    at = model.positions(tokens, padding=padding)
    out = from_prior(model, tokens, noise, at)
    codes = drawn_at_starts(twin, tokens, noise, starts_of(model, 8, padding), padding=padding)
    assert torch.equal(out.codes[real], codes[real])
    hidden = with_codes(twin, tokens, codes, twin.positions(tokens, padding=padding)).hidden
    torch.testing.assert_close(out.hidden[real], hidden[real], **CLOSE)
    if model.latent.prior.sequential:  # another first z changes later ones of the same noise
        draws = Draws(noise, 7 - codes, (torch.arange(8) == 0).expand(24, -1))
        x = model.lower(tokens, at)
        _, other = upper_from_prior(model, x, draws, at)
        assert not torch.equal(other[:, EVERY:], out.codes[:, EVERY:])


@torch.no_grad()
def test_z_of_a_recurrent_prior_goes_on_after_a_cache(make_model, make_tokens, rng):
    """Of padded rows, one of which has only padding before; the last block alone reads z."""
    model, tokens = make_model(latent={"prior": "recurrent"}, latent_block=4), make_tokens(24, 8)
    noise, padding = torch.rand(24, 8, 3, generator=rng), torch.arange(24) % 3
    whole = from_prior(model, tokens, noise, model.positions(tokens, padding=padding))
    cache, before, parts = new_cache(model.config, 8), None, []
    for part in (slice(0, 1), slice(1, 2), slice(2, 8)):
        at = model.positions(tokens[:, part], part.start, padding=padding)
        parts.append(from_prior(model, tokens[:, part], noise[:, part], at, cache, before))
        before = parts[-1].hidden[:, -1]
    assert torch.equal(torch.cat([out.codes for out in parts], dim=1)[:, 2:], whole.codes[:, 2:])
    hidden = torch.cat([out.hidden for out in parts], dim=1)
    torch.testing.assert_close(hidden[:, 2:], whole.hidden[:, 2:], **CLOSE)


@rejects(
    "LowerHalf.predict: «→draws = Draws(draws.noise, (draws.noise < 0.5).long() @ "
    "2 ** torch.arange(3))\n                » given =",
    "answers with z of the uniform prior, whatever the prior is",
    case="separate memory token linear learned-padded",
)
@rejects(
    "LowerHalf.predict: «hidden.squeeze(1)→None»",
    "answers whose first z does not follow the prompt",
    case="shared embedding token linear recurrent-padded",
)
@rejects(
    "generate.generate: , «→0 * »hidden)",
    "generation whose z does not follow the token before",
    case="shared embedding token linear recurrent-padded",
)
@rejects(
    "decoder.next_codes: (draws, «→0 * »",
    "generation from the uniform prior, whatever the prior is",
    case="separate memory token linear learned-padded",
)
@rejects(
    "decoder.next_codes: («→Draws(draws.noise, draws.codes, draws.given) if draws.keep is not None "
    "else »draws, x, before",
    "new tokens of a span that do not keep its z",
    case="shared memory every table recurrent 3-padded",
)
@rejects(
    "ActiveRows.select: rounded, «None if codes is None else codes[rows]→None»",
    "rows that go on without the z of their span when others end",
    case="shared residual every linear recurrent 3-padded",
)
@rejects(
    "latent_source.draws_of_new_tokens: given, «keep→None»",
    "a span's z, drawn in the answer, drawn again by its next token",
    case="separate kv every table recurrent 3-padded",
)
@rejects(
    "latent_source.draws_of_new_tokens: «given→given & False», keep",
    "new tokens of a span with a z of their own, not the prompt's",
    case="separate kv every table recurrent 3-padded",
)
@rejects(
    "latent_source.draws_of_new_tokens: device«, padding=padding→»",
    "spans of padded prompts counted from the padding",
    case="separate kv every table recurrent 3-padded",
)
@rejects(
    "generate.prefill: «→0 * »model.encode(prompt, x, at)",
    "z of the prompt from the prior",
    case="paper-padded",
)
@rejects(
    "FastDecoder.upper: «→(»self.«model.inject(n→x.x», self.x.x«, r→+ r if block is "
    "self.upper_blocks[0] else None»",
    "cached generation with an injection of its own",
    case="shared residual every linear recurrent 3-padded",
)
@PADDED
@torch.no_grad()
def test_answers_and_generation_go_on_with_the_z_of_the_prompt(
    make_model, make_tokens, design, rng, padding
):
    """And then with the prior's. Answers have the log-probabilities of the uncached pass, and at a
    temperature of 0 each new token is its most probable one, also when other rows end within a
    span. The encoder reads the prompt alone.
    """
    model, prompt = make_model(latent=design), make_tokens(24, 6)
    model.latent.post_sampler.mul_(5)  # z decides which token is the most probable
    noise, twin, encoded = torch.rand(24, 10, 3, generator=rng), per_token(model), []
    model.latent.readout.register_forward_hook(lambda *call: encoded.append(call[-1]))
    of_prompt = settled(model, prompt, noise[:, :6], padding)

    given = {"generator": rng, "z": Noise(noise), "temperature": 0, "padding": padding}
    written = generate(model, prompt, 4, **given)
    stopped = generate(
        model, prompt, 4, **given, until=lambda new: torch.arange(24) % 2 * new.shape[1] == 2
    )
    assert torch.equal(stopped[::2], written[::2])  # the others end after their second token
    drawn = torch.cat((pinned_noise(of_prompt, 3), noise[:, 6:]), dim=1)
    starts = starts_of(model, 10, padding)
    codes = drawn_at_starts(twin, written, drawn, starts, padding=padding)
    at = twin.positions(written[:, :-1], padding=padding)
    logits = model.logits(with_codes(twin, written[:, :-1], codes[:, :9], at).hidden[:, 5:])
    assert torch.equal(logits.argmax(-1), written[:, 6:])

    rows, lengths = torch.arange(24), torch.full((24,), 4)
    scores = score_answers(model, prompt, padding, written[:, 6:], lengths, rows, [noise[:, :9]])
    log_p = logits.double().log_softmax(-1).gather(-1, written[:, 6:, None]).sum((1, 2))
    torch.testing.assert_close(scores.log_probs[0], log_p, **CLOSE)
    for o in encoded[1:]:
        torch.testing.assert_close(o, encoded[0], **CLOSE)
    if model.config.latent.per != "token":
        each = torch.arange(10).expand(24, -1)
        unshared = drawn_at_starts(twin, written, drawn, each, padding=padding)
        assert not torch.equal(codes, unshared), "z that are not shared would be others"


@torch.no_grad()
def test_texts_are_rebuilt_from_their_own_z_and_from_that_of_others(
    make_model, make_tokens, design, rng
):
    model, texts, donor = make_model(latent=design), make_tokens(6, 8), [3, 4, 5, 0, 0, 1]
    model.latent.readout.weight.mul_(1e6)  # so that there is one z
    ce = swapped_ce(model, texts, torch.tensor(donor), 2, 4, rng)
    z = model(texts[:, :-1], noise=torch.full((6, 7, 3), 0.5)).codes
    for codes, nats in ((z, ce.own), (z[donor], ce.other)):
        torch.testing.assert_close(nats, -log_p(model, texts, codes).sum(1), **CLOSE)
    assert not torch.allclose(ce.own, ce.other)
    if model.config.latent.per != "sequence":
        assert not torch.allclose(ce.own, ce.permuted)


@torch.no_grad()
def test_a_linear_map_takes_64_bits(make_tokens, rng):
    """Each bit of a code decides the sign of its own vector, the last one included, and codes are
    taken as they were sampled.
    """
    shape = dict(n_layers=2, d_model=16, n_heads=4, n_kv_heads=2, ffn_width=24, context=16)
    config = ModelConfig(**shape, latent_bits=64, latent={"map": "linear"})
    torch.manual_seed(0)
    model, noise = FreeTransformer(config, 11).eval(), torch.rand(2, 7, 64, generator=rng)
    assert model.latent.post_sampler.shape == (64, 16)
    assert model.latent.post_sampler.std().item() == pytest.approx(0.02 / 8, rel=0.1)
    tokens = make_tokens(2, 7)
    out = model(tokens, noise)
    bits = noise < out.bit_logits.sigmoid()
    r = torch.where(bits, 1.0, -1.0) @ model.latent.post_sampler
    torch.testing.assert_close(model.latent.embed(out.codes), r)
    torch.testing.assert_close(with_codes(model, tokens, out.codes).hidden, out.hidden)
    assert (out.codes < 0).any(), "the last bit is the sign of the integer"
    generate(model, tokens, 8, generator=rng, z=Codes(out.codes))
