"""Bounds of held-out documents, whatever their chunks are packed with."""

from math import log

import pytest
import torch

from ftmodel.config import LatentDesign
from ftmodel.inference import sequence_bound
from ftmodel.inference.bounds import exact_nll, latent_bounds
from ftmodel.inference.filtering import filtering_bound
from ftmodel.inference.sequence_bound import nll_bound
from pipelines.artifacts.packing import held_out, noise_of, packed
from pipelines.artifacts.results import Estimate
from pipelines.common.rng_streams import Purpose
from pipelines.config.data import TextData
from pipelines.config.schema import EvaluationConfig, Run
from pipelines.evaluate import bounds as evaluate_bounds
from pipelines.evaluate.bounds import (
    DocumentScores,
    results_of,
    sample_counts,
    score,
    with_proposal,
)
from tests.evaluate.conftest import lively
from tests.support.arrivals import arrives
from tests.support.corpora import LENGTHS, VOCABULARY, memory_shards
from tests.support.mutants import rejects

CPU = torch.device("cpu")
TEXT = TextData()
CONTEXT = 16


@pytest.fixture
def shards():
    return memory_shards()


def model(bits, **design):
    return lively(bits, VOCABULARY, CONTEXT, **design)


def one_by_one(bounds):
    """CE, KL, its bits, and bounds, (n,) each."""
    return bounds.ce, bounds.kl, *bounds.kl_bits.T, bounds.elbo, bounds.iwae, bounds.prior


@rejects('bounds.bounds_of: «filtering→sums["elbo"]» -', "use of z by the ELBO")
@rejects("bounds.bounds_of: device, stratify )«→[:1].repeat(2, 1)»", "every filter with the same z")
@pytest.mark.parametrize("batch_tokens", [1, 64, 10**6])
def test_scores_are_sums_over_documents_of_each_chunk_alone_whatever_the_batch(
    shards, batch_tokens
):
    settings = EvaluationConfig(tokens=None, batch_tokens=batch_tokens, particles=8, iwae_samples=6)
    free, baseline = model(3), model(0)
    scores = score(free, shards, TEXT, settings, CPU)
    nll = score(baseline, shards, TEXT, settings, CPU).nll
    assert scores.tokens.tolist() == [length + 1 for length in LENGTHS]
    assert scores.bytes.tolist() == [d.sum() for d in shards.documents("validation")]
    expected = torch.zeros(7 + 3, len(LENGTHS), dtype=torch.float64)
    variance = torch.zeros(len(LENGTHS), dtype=torch.float64)
    by_samples = torch.zeros(len(LENGTHS), 4, dtype=torch.float64)
    for batch in packed(held_out(shards, CONTEXT, None), CONTEXT, 1):
        for chunk in batch.chunks:
            (alone,) = packed([chunk], CONTEXT, 1)
            draw = noise_of(alone, 3, settings.seed, Purpose.BOUNDS, CPU)
            bounds = latent_bounds(free, alone.inputs, alone.targets, 6, draw)
            own = exact_nll(baseline, alone.inputs, alone.targets)
            draw = noise_of(alone, 3, settings.seed, Purpose.FILTER, CPU)
            filters = [filtering_bound(free, alone.inputs, alone.targets, 8, draw) for _ in "12"]
            figures = *one_by_one(bounds), own, torch.stack(filters).mean(0)
            expected[:, chunk.document] += torch.stack(figures)[:, 0]
            for i, k in enumerate((1, 2, 4, 6)):  # mean over groups of −log (Σ weights / k)
                groups = bounds.log_weights[: 6 // k * k, 0].double().exp().split(k)
                by_samples[chunk.document, i] -= sum(log(w.mean()) for w in groups) / len(groups)
            variance[chunk.document] += (filters[0] - filters[1]).item() ** 2 / 2
    found = torch.stack((*one_by_one(scores), nll, scores.filtering))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=5e-4)
    torch.testing.assert_close(scores.iwae_by_samples[5], by_samples[5], rtol=1e-6, atol=0)
    torch.testing.assert_close(scores.iwae_by_samples[:, -1], scores.iwae)
    torch.testing.assert_close(scores.filtering_variance, variance, rtol=1e-3, atol=1e-6)
    filtering = scores.bits_per_token.filtering
    total, units = variance.sum().item(), log(2) * scores.tokens.sum().item()
    assert filtering.monte_carlo == pytest.approx((total / 2) ** 0.5 / units, rel=1e-3)
    assert filtering.half_variance == pytest.approx(total / 2 / units, rel=1e-3)
    torch.testing.assert_close(scores.use, scores.filtering - scores.ce)
    torch.testing.assert_close(scores.use + scores.waste, scores.kl)


def test_a_random_prefix_is_averaged_over_for_each_chunk_alone(shards):
    """All 16 prefixes of one token, whatever the chunk is scored with."""
    prefixed = model(0, random_prefix=1)
    with torch.no_grad():
        prefixed.prefix.weight.normal_(generator=torch.Generator().manual_seed(0))
    expected = torch.zeros(len(LENGTHS), dtype=torch.float64)
    for chunk in held_out(shards, CONTEXT, None):
        (alone,) = packed([chunk], CONTEXT, 1)
        noise = torch.zeros(1, len(chunk), 1)
        common = prefixed, alone.inputs, alone.targets, 16
        expected[chunk.document] += nll_bound(*common, noise.clone)[0]
    for batch_tokens in (1, 10**6):
        settings = EvaluationConfig(tokens=None, batch_tokens=batch_tokens, particles=16)
        scores = score(prefixed, shards, TEXT, settings, CPU)
        torch.testing.assert_close(scores.bound, expected, rtol=1e-5, atol=5e-4)
        assert scores.filtering_variance.max() < 1e-6 and scores.nll is None


@rejects("bounds.score: «1:→:-1»]]", "bytes of inputs in place of targets")
def test_bytes_are_those_of_the_tokens_that_are_predicted(shards, monkeypatch):
    """Where a cap leaves parts of documents out; a token's bytes are its id. By this clock they
    take two seconds.
    """
    monkeypatch.setattr(evaluate_bounds, "perf_counter", iter((3.0, 5.0)).__next__)
    settings = EvaluationConfig(tokens=100, particles=8)
    scores = score(model(0), shards, TEXT, settings, CPU)
    predicted, given = (
        [chunk.tokens[part].sum() for chunk in held_out(shards, CONTEXT, 100)]
        for part in (slice(1, None), slice(None, -1))
    )
    assert scores.tokens.sum() == 2 * scores.tokens_per_second <= 100
    assert scores.bytes.sum() == sum(predicted) != sum(given)


def test_results_are_bits_of_documents_with_errors_over_documents():
    """Two documents of 2 and 6 tokens, given in nats."""
    size, nats = torch.tensor([2.0, 6.0]).double(), torch.tensor([3.0, 5.0]).double()
    scores = DocumentScores(
        tokens=size,
        filtering=3 * nats,
        filtering_variance=nats,
        elbo=4 * nats,
        exact=nats,
        kl_bits=nats[:, None] * torch.tensor([1.0, 2.0]),
        iwae_by_samples=nats[:, None] * torch.tensor([2.0, 1.0]),
        tokens_per_second=7.0,
    )
    results, details = results_of(scores, EvaluationConfig(iwae_samples=2))
    assert (results.documents, results.tokens, results.tokens_per_second) == (2, 8, 7.0)
    assert details.kl_per_bit == pytest.approx([1 / log(2), 2 / log(2)])
    assert details.bound_bits == [round(9 / log(2), 6), round(15 / log(2), 6)]
    bound, units = results.bits_per_token.filtering, 8 * log(2)  # of one filter
    assert (bound.monte_carlo, bound.half_variance) == pytest.approx((8**0.5 / units, 4 / units))
    means = {k: each.mean for k, each in results.iwae_by_samples.items()}
    assert means == pytest.approx({1: 2 / log(2), 2: 1 / log(2)})
    assert results.gap_nats_per_token.mean == pytest.approx(2)
    assert results.elbo_gap_nats_per_token == Estimate.over_documents(3 * nats, size)


def test_sample_counts():
    counts = [[1], [1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4, 8, 12]]
    assert [sample_counts(k) for k in (1, 2, 3, 4, 12)] == counts


@arrives("evaluation", "particles proposal")
@pytest.mark.parametrize(
    ("kappa", "proposal", "expected"),
    [(None, None, 0), (1.0, None, 0), (2.0, None, 0.125), (2.0, 0.0, 0), (0.5, 1.0, 1)],
)
def test_z_is_proposed_from_the_prior_up_to_a_threshold_of_1(kappa, proposal, expected):
    run = Run(data="text", model="small", kappa_bits=kappa, tokens=1)
    settings = EvaluationConfig(particles=8, proposal=proposal)
    assert with_proposal(settings, run, LatentDesign()).proposal == expected
    every = LatentDesign(per="every", every=8)
    assert with_proposal(settings, run, every).proposal == (0.25 if proposal is None else proposal)


def test_one_z_a_sequence_of_few_bits_is_summed_over_and_of_more_sampled(shards, monkeypatch):
    """The NLL itself has no error, and lies below the bound of few samples."""
    figures, changed = {}, model(3, latent=LatentDesign(per="sequence"))
    settings = EvaluationConfig(tokens=200, particles=2, iwae_samples=2)
    for most in (8, 2):
        monkeypatch.setattr(sequence_bound, "MOST_ENUMERATED", most)
        figures[most] = score(changed, shards, TEXT, settings, CPU).bits_per_token.filtering
    assert figures[8].monte_carlo == figures[8].half_variance == 0 < figures[2].monte_carlo
    assert figures[8].mean < figures[2].mean
