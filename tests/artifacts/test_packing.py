"""Held-out documents in chunks, whatever these are packed with."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipelines.artifacts.packing import chunks, held_out, noise_of, packed, rows_at_once
from pipelines.common.rng_streams import Purpose
from tests.support.corpora import LENGTHS, memory_shards
from tests.support.mutants import rejects

CPU = torch.device("cpu")
CONTEXT = 16
SHARDS = memory_shards()
PREDICTED = sum(LENGTHS) + len(LENGTHS)  # the end of each is predicted too


def test_chunks_predict_every_token_of_a_document_once():
    documents = [*SHARDS.documents("validation"), np.arange(2 * CONTEXT + 1)]
    found = {}
    for chunk in chunks(documents, CONTEXT):
        assert 1 <= len(chunk) <= CONTEXT
        assert chunk.index == len(found.setdefault(chunk.document, []))
        found[chunk.document].append(chunk.tokens)
    assert sorted(found) == list(range(len(documents)))
    for i, parts in found.items():
        assert np.concatenate([part[1:] for part in parts]).tolist() == documents[i][1:].tolist()
        before = [documents[i][0], *(part[-1] for part in parts[:-1])]
        assert [part[0] for part in parts] == before


@rejects("packing.held_out: «* total // n→»", "a cap that takes the first chunks")
def test_a_cap_takes_evenly_spaced_chunks_and_holds():
    every = list(held_out(SHARDS, CONTEXT, None))
    assert sum(map(len, every)) == PREDICTED
    names = [(p.document, p.index) for p in every]
    for cap in (1, 50, 100, 200, PREDICTED, 10**9):
        some = [(p.document, p.index) for p in held_out(SHARDS, CONTEXT, cap)]
        assert 0 < sum(len(p) for p in held_out(SHARDS, CONTEXT, cap)) <= max(cap, len(every[0]))
        places = [names.index(name) for name in some]
        assert places == [i * len(every) // len(some) for i in range(len(some))]
        assert len(some) == len(every) if cap >= PREDICTED else len(some) < len(every)
    assert len(list(held_out(SHARDS, CONTEXT, 200))) > len(every) / 2  # no less than need be
    uneven = SimpleNamespace(documents=lambda split: [np.arange(n) for n in (17, 2, 17, 2)])
    assert [len(p) for p in held_out(uneven, CONTEXT, 20)] == [16]  # two would be 32


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_packed_rows_hold_every_chunk_once(rows):
    every = list(held_out(SHARDS, CONTEXT, None))
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


def test_chunks_that_lie_alone_have_a_row_each():
    stream = chunks([np.arange(length) for length in (2, 2, 9)], CONTEXT)
    batches = packed(stream, CONTEXT, 2, alone=True)
    assert [batch.offsets for batch in batches] == [[(0, 0), (1, 0)], [(0, 0)]]


def test_packing_reads_no_further_than_its_batch():
    """A stream without end, of which one batch is taken."""

    def endless():
        while True:
            yield SHARDS.documents("validation")

    stream = chunks((d for documents in endless() for d in documents), CONTEXT)
    assert len(next(packed(stream, CONTEXT, 4)).chunks) < 40


@rejects("packing.noise_of: «c.index→0»", "the same noise for all chunks of a document")
def test_noise_of_a_chunk_does_not_depend_on_its_company():
    drawn = {}
    for rows in (1, 2, 7):
        for batch in packed(held_out(SHARDS, CONTEXT, None), CONTEXT, rows):
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


def test_at_least_one_row_is_scored_at_once():
    rows = [rows_at_once(130, length) for length in (131, 130, 66, 65, 1)]
    assert rows == [1, 1, 1, 2, 130]
