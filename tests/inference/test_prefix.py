"""A baseline with a random prefix, against one in whose vocabulary the prefix's tokens are."""

from dataclasses import replace
from math import log

import pytest
import torch

from ftmodel.analysis.statistics import mean_and_error
from ftmodel.conversion.llama import llama_config
from ftmodel.designs.random_prefix import PREFIX_VOCABULARY
from ftmodel.inference.answers import log_mean_exp, score_answers
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import Codes, FromPrior, Noise
from ftmodel.inference.sequence_bound import nll_bound
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import training_loss
from tests.support.mutants import rejects
from tests.support.passes import drawing

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture
def make(make_model):
    def model_of(n):
        model = make_model(latent_bits=0, random_prefix=n)
        model.prefix.weight.data *= 4  # so that the prefix matters
        return model

    return model_of


def noise_for(prefix, length, padding=0):
    """Noise (B, T, n) that draws prefixes (B, n); at other tokens it could draw others."""
    noise = torch.full((len(prefix), length, prefix.shape[1]), 0.99)
    noise[torch.arange(len(prefix)), padding] = (prefix + 0.5) / PREFIX_VOCABULARY
    return noise


@torch.no_grad()
def log_probabilities(model, prefix, tokens):
    """log P of tokens (B, T) but the first, (B, T − 1), after prefixes (B, n), by a model without a
    prefix, whose vocabulary is the model's and then the prefix's.
    """
    config, own = replace(model.config, random_prefix=0, tied=False), model.embedding.weight
    plain = FreeTransformer(config, len(own) + PREFIX_VOCABULARY)
    weights = model.state_dict()
    weights["embedding.weight"] = torch.cat((own, weights.pop("prefix.weight")))
    del weights["readout.weight"]
    plain.load_state_dict(weights, strict=False)
    hidden = plain(torch.cat((prefix + len(own), tokens[:, :-1]), dim=1)).hidden
    log_p = model.logits(hidden[:, prefix.shape[1] :]).log_softmax(-1)
    return log_p.gather(2, tokens[:, 1:, None]).squeeze(2)


def all_prefixes(n):
    """(16^n, n)."""
    return torch.cartesian_prod(*[torch.arange(PREFIX_VOCABULARY)] * n).view(-1, n)


@rejects("FreeTransformer.upper: «at.prefix :→: -at.prefix»", "the prefix's tokens in the loss")
@rejects("RandomPrefix.forward: draws[«rows→0 * rows», 0", "one prefix for a batch")
def test_loss_is_that_of_the_tokens_after_the_prefix(make, make_tokens):
    """Each row has its own prefix, which is not predicted."""
    model, tokens = make(2), make_tokens(3, 7)
    prefix = torch.tensor([[0, 15], [0, 3], [9, 1]])
    noise = noise_for(prefix, 6)
    loss = training_loss(model, tokens[:, :-1], tokens[:, 1:], noise)
    expected = -log_probabilities(model, prefix, tokens).mean()
    torch.testing.assert_close(loss.total, expected, **CLOSE)
    loss.total.backward()
    used = model.prefix.weight.grad.abs().sum(1) > 0
    assert used.nonzero().flatten().tolist() == [0, 1, 3, 9, 15]
    with pytest.raises(ValueError, match="noise: a random prefix is drawn"):
        training_loss(model, tokens[:, :-1], tokens[:, 1:])


def test_only_a_prefix_has_parameters_of_its_own(make):
    """All others begin as those of the baseline of the same seed."""
    config = make(2).config
    plain, prefixed = ({}, {})
    for n, weights in ((0, plain), (2, prefixed)):
        torch.manual_seed(0)
        model = FreeTransformer(replace(config, random_prefix=n, embedding_std=0.1), 11)
        weights |= model.state_dict()
    assert prefixed.pop("prefix.weight").std().item() == pytest.approx(0.1, rel=0.3)
    assert prefixed.keys() == plain.keys()
    assert all(torch.equal(weight, plain[name]) for name, weight in prefixed.items())


MISTAKES = {
    "random_prefix: -1 must be at least 0": {"random_prefix": -1},
    "random_prefix: 16 must be less than the context 16": {"random_prefix": 16},
    "random_prefix: 2 tokens stand before a whole row": {"random_prefix": 2, "document_mask": True},
    "random_prefix: 2, but a Free Transformer has z": {"random_prefix": 2, "latent_bits": 3},
    "random_prefix: a Llama has no random tokens": {"random_prefix": 2},
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_names_the_key(make_model, words):
    with pytest.raises(ValueError, match=words):
        llama_config(make_model(**({"latent_bits": 0} | MISTAKES[words])).config, 11)


def test_a_row_has_one_chunk(make, make_tokens, rng):
    model, tokens, ids = make(1), make_tokens(1, 5), torch.tensor([[1, 1, 2, 2]])
    with pytest.raises(ValueError, match="segment_ids: a row with a random prefix holds one chunk"):
        nll_bound(model, tokens[:, :-1], tokens[:, 1:], 2, drawing(rng, 1, 4, 1), ids)


@rejects(
    "sequence_bound.prefix_bound: «importance_bound(→-»torch.stack(log_p)«, samples)→.mean(0)»",
    "a mean of logarithms over prefixes in place of the logarithm of the mean",
)
def test_bound_is_exact_where_all_prefixes_are_summed(make, make_tokens, rng):
    """One token: p(x) = Σ_c p(x | c) / 16, summed as it is written."""
    model, tokens = make(1), make_tokens(2, 6)
    of_all = [log_probabilities(model, c.expand(2, -1), tokens).sum(1) for c in all_prefixes(1)]
    truth = log(PREFIX_VOCABULARY) - torch.stack(of_all).double().logsumexp(0)
    common = model, tokens[:, :-1], tokens[:, 1:]
    bound = nll_bound(*common, PREFIX_VOCABULARY, drawing(rng, 2, 5, 1))
    torch.testing.assert_close(bound, truth, **CLOSE)
    alone = nll_bound(*common, 1, drawing(rng, 2, 5, 1))
    assert (alone - truth).abs().min() > 0.01, "prefixes that do not matter test nothing"


def test_bound_is_unbiased_for_the_probability(make, make_tokens, rng):
    """Two tokens: 256 prefixes, of which four at a time are drawn, in each of many rows anew."""
    model, tokens = make(2), make_tokens(1, 5)
    prefixes = all_prefixes(2)
    log_p = log_probabilities(model, prefixes, tokens.expand(len(prefixes), -1)).sum(1).double()
    rows = tokens.expand(2000, -1)
    bound = nll_bound(model, rows[:, :-1], rows[:, 1:], 4, drawing(rng, 2000, 4, 2))
    estimate = mean_and_error((-bound).exp() / log_p.exp().mean())
    assert estimate["mean"] == pytest.approx(1, abs=4 * estimate["se"])
    assert estimate["se"] < 0.05


@rejects("RandomPrefix.forward: «shift→index», index", "a prefix before the padding")
def test_generation_continues_the_prefix_of_each_row(make, make_tokens, rng):
    """Of prompts of unlike length, padded: the cached tokens are those of a full pass, each the
    likeliest after the row's own prefix, and a prefix that several rows share is pinned.
    """
    model, prompts, padding = make(2), make_tokens(4, 5), torch.tensor([0, 2, 4, 1])
    prefix = torch.tensor([[0, 15], [3, 3], [9, 1], [15, 15]])
    z = Noise(noise_for(prefix, 8, padding))
    tokens = generate(model, prompts, 4, generator=rng, z=z, temperature=0, padding=padding)
    for row, c, k in zip(tokens, prefix, padding, strict=True):
        for end in range(5, 9):
            each = row[int(k) : end].repeat(11, 1)
            each = torch.cat((each, torch.arange(11)[:, None]), dim=1)
            log_p = log_probabilities(model, c.expand(11, -1), each)[:, -1]
            assert log_p.argmax() == row[end]
    same = prompts[:1].expand(4, -1)
    pinned = generate(model, same, 8, generator=rng, z=FromPrior(4), temperature=0)
    fresh = generate(model, same, 8, generator=rng, temperature=0)
    assert len(pinned.unique(dim=0)) == 1 < len(fresh.unique(dim=0))
    with pytest.raises(ValueError, match="no z to pin"):
        generate(model, prompts, 4, generator=rng, z=Codes(torch.zeros(3, dtype=torch.long)))


@rejects("answers.score_answers: «:p→-p:»].", "the prefix by the noise of the answer")
def test_answers_are_averaged_over_prefixes(make, make_tokens, rng):
    """log (1/K) Σ_k P(answer | c_k, prompt), whatever the padding."""
    model, prompts, answers = make(2), make_tokens(2, 4), make_tokens(3, 3)
    padding, rows, lengths = torch.tensor([0, 2]), torch.tensor([0, 1, 1]), torch.tensor([3, 1, 2])
    prefixes = torch.randint(PREFIX_VOCABULARY, (5, 2, 2), generator=rng)
    noise = [noise_for(prefix, 6, padding) for prefix in prefixes]
    scores = score_answers(model, prompts, padding, answers, lengths, rows, noise)
    for i, (row, n) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
        whole = torch.cat((prompts[row, padding[row] :], answers[i, :n])).expand(5, -1)
        log_p = log_probabilities(model, prefixes[:, row], whole)[:, -n:].sum(1)
        assert log_mean_exp(scores.log_probs)[i] == pytest.approx(
            log_mean_exp(log_p[:, None]).item(), rel=1e-4
        )
