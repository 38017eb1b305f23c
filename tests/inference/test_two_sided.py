"""The lower bound on a model's own text, against enumeration of every z."""

import pytest
import torch

from ftmodel.inference.filtering import FilterSettings
from ftmodel.inference.passes import with_codes
from ftmodel.inference.sequence_bound import nll_bound
from ftmodel.inference.two_sided import OwnText, both_bounds, sample_text
from tests.support.designs import EVERY
from tests.support.enumeration import Exact, assert_near
from tests.support.mutants import rejects
from tests.support.passes import drawing

ROWS = 5000  # independent filters of one sequence
DESIGNS = {
    "token": {},
    "every": {"per": "every", "every": EVERY},
    "sequence": {"per": "sequence"},
    "recurrent": {"prior": "recurrent"},
}


def strong(model):
    """A model whose z matters, and whose prior, if it is learned, depends on the text."""
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        model.latent.post_sampler.mul_(4)
        if model.config.latent.prior != "uniform":
            model.latent.prior.readout.weight.normal_(std=0.5, generator=rng)
    return model


@rejects("filtering.filtering_bound: «ancestors[:, 0]→_» = 0", "the kept path resampled away")
@rejects(
    "filtering.filtering_bound: settings«, stratify=False→»)", "particles that draw z together"
)
@rejects("filtering.propose: «bits[:, 0]→_» = signs", "a path that no particle keeps")
@rejects(
    "sequence_bound.sequence_bound: torch.where(«place == k→place == 0 * k»",
    "the kept z in two places",
    case="sequence-0.0",
)
@pytest.mark.parametrize("proposal", [0.0, 0.3])
@pytest.mark.parametrize("design", DESIGNS)
def test_the_inverse_probability_is_unbiased(make_model, make_tokens, rng, design, proposal):
    """With z from the true posterior, 1 / p̂ averages to 1 / p(x) over 5000 filters."""
    model = strong(make_model(latent_bits=2, n_layers=2, latent=DESIGNS[design]))
    tokens = make_tokens(1, 6).expand(ROWS, -1)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    truth = Exact(model, inputs[0], targets[0])
    drawn = torch.multinomial(truth.posterior, ROWS, replacement=True, generator=rng)
    bound = nll_bound(
        *(model, inputs, targets, 4, drawing(rng, ROWS, 5, 2), None),
        FilterSettings(0.9, proposal, stratify=True),
        truth.codes[drawn],
    )
    assert_near((bound - truth.nll).exp(), 1.0)
    assert bound.mean() < truth.nll
    plain = nll_bound(model, inputs, targets, 4, drawing(rng, ROWS, 5, 2))
    assert plain.mean() > truth.nll


def test_z_of_the_past_drawn_anew_at_each_token_would_be_another_model(make_model, make_tokens):
    """Its p(x) is a product of means over z, where the model's is a mean of products."""
    model, tokens = strong(make_model(latent_bits=1, n_layers=2)), make_tokens(1, 6)[0]
    redrawn = 0.0
    for t in range(1, 6):
        codes = Exact(model, tokens[:t], tokens[1 : t + 1]).codes
        hidden = with_codes(model, tokens[:t].expand_as(codes), codes).hidden[:, -1]
        redrawn -= model.logits(hidden).double().softmax(-1)[:, tokens[t]].mean().log().item()
    assert abs(redrawn - Exact(model, tokens[:-1], tokens[1:]).nll) > 0.01


@rejects("two_sided.sample_text: given[:, «0→1:»]", "the first z from the encoder")
@rejects("two_sided.sample_text: model, «tokens→(tokens * 0)»[:, :-1]", "z of another text")
@pytest.mark.parametrize("design", DESIGNS)
@torch.inference_mode()
def test_a_model_writes_text_together_with_its_z(make_model, rng, design):
    """−log p(x | z) of what it writes averages to what it is by p(z) and p(x | z)."""
    model = strong(make_model(latent_bits=2, n_layers=2, latent=DESIGNS[design]))
    text = sample_text(model, torch.ones(4000, dtype=torch.long), 4, rng)
    inputs, targets = text.tokens[:, :-1], text.tokens[:, 1:]
    log_p = model.logits(with_codes(model, inputs, text.codes).hidden).log_softmax(-1)
    nll = -log_p.gather(2, targets[..., None]).squeeze(2)
    entropy = -(log_p.exp() * log_p).sum(-1)
    for t in range(4):  # the token after z_t is drawn from p(x | z)
        assert_near((nll - entropy)[:, t], 0.0)
    first = inputs[:1, :1]
    p = Exact(model, first[0], first[0]).p  # of the first z
    counts = text.codes[:, 0].bincount(minlength=4) / 4000
    torch.testing.assert_close(counts.double(), p, atol=0.04, rtol=0)


@rejects("filtering.filtering_bound: «path→path.roll(1, 0)».flatten", "the path of another row")
@rejects(
    "two_sided.both_bounds: return «-→»importance_bound(«→-»estimates",
    "estimates of 1 / p averaged as those of p",
)
@rejects("two_sided.both_bounds: importance_bound(estimates(«text.codes→None»", "one bound twice")
def test_both_bounds_average_probabilities_and_close_in_on_the_truth(make_model, make_tokens, rng):
    """Of two sequences in turn, each of which has a posterior of its own."""
    model = strong(make_model(latent_bits=1, n_layers=2))
    tokens = make_tokens(2, 7).repeat(ROWS // 2, 1)
    truths = [Exact(model, row[:-1], row[1:]) for row in tokens[:2]]
    half = ROWS // 2
    codes = [t.codes[torch.multinomial(t.posterior, half, True, generator=rng)] for t in truths]
    text, draw = OwnText(tokens, torch.stack(codes, 1).flatten(0, 1)), drawing(rng, ROWS, 6, 1)
    nll = torch.tensor([truth.nll for truth in truths], dtype=torch.float64).repeat(half)
    gaps = []
    for particles in (1, 8):
        settings = FilterSettings(0.5, 0.0, stratify=True)
        lower, filters = both_bounds(model, text, particles, 2, draw, settings)
        assert_near((lower - nll).exp(), 1.0)
        for upper in filters:
            assert_near((nll - upper).exp(), 1.0)
        gaps.append((filters - lower).mean())
    assert 0 < 2 * gaps[1] < gaps[0]
