"""Held-out documents in chunks, and their bounds, whatever they are packed with."""

from math import log
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ftmodel.inference.bounds import exact_nll, latent_bounds
from ftmodel.model.config import ModelConfig
from ftmodel.model.transformer import FreeTransformer
from pipelines.artifacts.packing import chunks, held_out, noise_of, packed
from pipelines.common.rng_streams import Purpose
from pipelines.config.data import TextData
from pipelines.config.schema import Evaluation
from pipelines.evaluate.bounds import sample_counts, score

CPU = torch.device("cpu")
TEXT = TextData()
CONTEXT, VOCABULARY, END = 16, 50, 0
LENGTHS = (5, 40, 1, 16, 17, 100, 3, 3, 64, 12, 0, 33)  # ids of each document
PREDICTED = sum(LENGTHS) + len(LENGTHS)  # the end of each is predicted too


@pytest.fixture
def shards():
    """Documents [end] ids … [end]; a token's bytes are its id."""
    numbers = np.random.default_rng(0)
    ids = [numbers.integers(1, VOCABULARY, length) for length in LENGTHS]
    documents = [np.concatenate(([END], part, [END])) for part in ids]
    return SimpleNamespace(
        documents=lambda split: iter(documents), token_bytes=lambda: torch.arange(VOCABULARY)
    )


def model(bits):
    torch.manual_seed(0)
    config = ModelConfig(2, 16, 2, 1, 32, CONTEXT, latent_bits=bits, latent_std=0.3)
    model = FreeTransformer(config, VOCABULARY).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


def test_chunks_predict_every_token_of_a_document_once(shards):
    documents = list(shards.documents("validation"))
    found = {}
    for chunk in chunks(documents, CONTEXT):
        assert 1 <= len(chunk) <= CONTEXT
        assert chunk.index == len(found.setdefault(chunk.document, []))
        found[chunk.document].append(chunk.tokens)
    assert sorted(found) == list(range(len(LENGTHS)))
    for i, parts in found.items():
        assert np.concatenate([part[1:] for part in parts]).tolist() == documents[i][1:].tolist()
        before = [documents[i][0], *(part[-1] for part in parts[:-1])]
        assert [part[0] for part in parts] == before


def test_a_cap_takes_evenly_spaced_chunks_and_holds(shards):
    every = list(held_out(shards, CONTEXT, None))
    assert sum(map(len, every)) == PREDICTED
    names = [(p.document, p.index) for p in every]
    for cap in (1, 50, 100, 200, PREDICTED, 10**9):
        some = [(p.document, p.index) for p in held_out(shards, CONTEXT, cap)]
        assert sum(len(p) for p in held_out(shards, CONTEXT, cap)) <= max(cap, len(every[0]))
        places = [names.index(name) for name in some]
        assert places == [i * len(every) // len(some) for i in range(len(some))]
        assert len(some) == len(every) if cap >= PREDICTED else len(some) < len(every)
    assert len(list(held_out(shards, CONTEXT, 200))) > len(every) / 2  # no less than need be


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_packed_rows_hold_every_chunk_once(shards, rows):
    every = list(held_out(shards, CONTEXT, None))
    batches = list(packed(iter(every), CONTEXT, rows))
    assert [p for batch in batches for p in batch.chunks] == every
    for batch in batches:
        assert batch.inputs.shape[0] <= rows and batch.inputs.shape[1] <= CONTEXT
        for i, chunk in enumerate(batch.chunks, 1):
            here = batch.segment_ids == i
            assert len(here.any(1).nonzero()) == 1  # in one row
            assert batch.inputs[here].tolist() == chunk.tokens[:-1].tolist()
            assert batch.targets[here].tolist() == chunk.tokens[1:].tolist()
    if rows == 100:
        (batch,) = batches
        assert (batch.segment_ids > 0).double().mean() > 0.9  # little is padding


def test_packing_reads_no_further_than_its_batch(shards):
    """A stream without end, of which one batch is taken."""

    def endless():
        while True:
            yield shards.documents("validation")

    stream = chunks((d for documents in endless() for d in documents), CONTEXT)
    assert len(next(packed(stream, CONTEXT, 4)).chunks) < 40


def test_noise_of_a_chunk_does_not_depend_on_its_company(shards):
    drawn = {}
    for rows in (1, 2, 7):
        for batch in packed(held_out(shards, CONTEXT, None), CONTEXT, rows):
            draw = noise_of(batch, 3, 0, Purpose.BOUNDS, CPU)
            noise = torch.stack([draw(), draw()])
            assert noise.min() >= 0 and noise.max() < 1
            for i, chunk in enumerate(batch.chunks, 1):
                own = noise[:, batch.segment_ids == i]
                name = chunk.document, chunk.index
                assert torch.equal(drawn.setdefault(name, own), own)
                assert not torch.equal(own[0], own[1])
    flat = [noise.flatten()[:3] for noise in drawn.values()]
    assert len({tuple(part.tolist()) for part in flat}) == len(flat)
    other = noise_of(batch, 3, 0, Purpose.LABEL, CPU)()[batch.segment_ids == 1]
    assert not torch.equal(other, drawn[batch.chunks[0].document, batch.chunks[0].index][0])


@pytest.mark.parametrize("bits", [0, 3])
def test_scores_do_not_depend_on_the_size_of_batches(shards, bits):
    figures = []
    for batch_tokens in (1, 40, 10**6):
        settings = Evaluation(tokens=None, batch_tokens=batch_tokens, iwae_samples=4)
        scores = score(model(bits), shards, TEXT, settings, CPU)
        figures.append([v for v in vars(scores).values() if isinstance(v, torch.Tensor)])
        assert len(figures[-1]) == (9 if bits else 3)
    for other in figures[1:]:
        torch.testing.assert_close(other, figures[0], rtol=1e-5, atol=5e-4)


def test_scores_are_those_of_each_chunk_alone_summed_over_its_document(shards):
    settings = Evaluation(tokens=None, batch_tokens=64, iwae_samples=4)
    free, baseline = model(3), model(0)
    found = score(free, shards, TEXT, settings, CPU)
    nll = score(baseline, shards, TEXT, settings, CPU).nll
    assert found.tokens.tolist() == [length + 1 for length in LENGTHS]
    assert found.bytes.tolist() == [d.sum() for d in shards.documents("validation")]
    expected = torch.zeros(3, len(LENGTHS), dtype=torch.float64)
    for batch in packed(held_out(shards, CONTEXT, None), CONTEXT, 1):
        for chunk in batch.chunks:
            (alone,) = packed([chunk], CONTEXT, 1)
            draw = noise_of(alone, 3, settings.seed, Purpose.BOUNDS, CPU)
            bounds = latent_bounds(free, alone.inputs, alone.targets, 4, draw)
            own = exact_nll(baseline, alone.inputs, alone.targets)
            expected[:, chunk.document] += torch.stack([bounds.elbo, bounds.iwae, own])[:, 0]
    torch.testing.assert_close(found.elbo, expected[0], rtol=1e-5, atol=5e-4)
    torch.testing.assert_close(found.iwae, expected[1], rtol=1e-5, atol=5e-4)
    torch.testing.assert_close(nll, expected[2], rtol=1e-5, atol=5e-4)


def test_iwae_by_samples_is_that_of_the_log_weights(shards):
    """By hand: of each chunk, the mean over groups of −log (Σ weights / k); then their sum."""
    settings = Evaluation(tokens=None, iwae_samples=6)
    free, document = model(3), 5  # of 7 chunks
    found = score(free, shards, TEXT, settings, CPU)
    expected = dict.fromkeys((1, 2, 4, 6), 0.0)
    for chunk in chunks(shards.documents("validation"), CONTEXT):
        if chunk.document != document:
            continue
        (alone,) = packed([chunk], CONTEXT, 1)
        draw = noise_of(alone, 3, settings.seed, Purpose.BOUNDS, CPU)
        weights = latent_bounds(free, alone.inputs, alone.targets, 6, draw).log_weights[:, 0].exp()
        for k in expected:
            groups = [sum(weights[i : i + k].tolist()) / k for i in range(0, 6 - k + 1, k)]
            expected[k] -= sum(map(log, groups)) / len(groups)
    assert found.iwae_by_samples[document].tolist() == pytest.approx(
        list(expected.values()), rel=1e-6
    )
    torch.testing.assert_close(found.iwae_by_samples[:, -1], found.iwae)


def test_sample_counts():
    assert [sample_counts(k) for k in (1, 2, 3, 4, 12)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 4],
        [1, 2, 4, 8, 12],
    ]
