"""Overlap of n-grams: rolling hashes against sets of tuples."""

import hypothesis
import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from pipelines.tokenize import overlap as overlap_module
from pipelines.tokenize.overlap import HeldOut, find_overlap, ngram_hashes, scattered_ids
from tests.support.corpora import END, write_shards

VOCABULARY = 1000


def split_documents(files):
    """The documents of running text, without their end-of-text ids."""
    documents = []
    for ids in files:
        for i in ids:
            if i == END:
                documents.append([])
            else:
                documents[-1].append(i)
    return documents


def brute_force(training, held_out, n):
    """(documents, with overlap, tokens, overlapping), by sets of tuples."""
    grams = {
        tuple(document[i : i + n])
        for document in split_documents(training)
        for i in range(len(document) - n + 1)
    }
    touched = covered = 0
    documents = split_documents(held_out)
    for document in documents:
        inside = {
            i + j
            for i in range(len(document) - n + 1)
            for j in range(n)
            if tuple(document[i : i + n]) in grams
        }
        touched, covered = touched + bool(inside), covered + len(inside)
    return len(documents), touched, sum(map(len, documents)), covered


def overlap_of(shards, n, **changes):
    files = shards.files
    result = find_overlap(files["validation"], files["train"], END, VOCABULARY, n=n, **changes)
    counts = (result.documents, result.documents_with_overlap)
    return (*counts, result.tokens, result.tokens_overlapping), result


FEW = st.lists(st.integers(1, 3), max_size=12).map(lambda ids: [END, *ids])
FILES = st.lists(
    st.lists(FEW, max_size=4).map(lambda documents: [i for d in documents for i in d]),
    min_size=1,
    max_size=3,
)


@given(training=FILES, held_out=FILES, n=st.integers(1, 6), chunk=st.integers(1, 20))
@hypothesis.settings(max_examples=60)
@example(training=[[END, 1, 1]], held_out=[[END, 1, 1]], n=2, chunk=1)
def test_it_finds_what_sets_of_tuples_find(tmp_path_factory, training, held_out, n, chunk):
    shards = write_shards(tmp_path_factory.mktemp("shards"), training, held_out, VOCABULARY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap_module, "CHUNK_TOKENS", chunk)
        assert overlap_of(shards, n)[0] == brute_force(training, held_out, n)


def random_documents(rng, count):
    lengths = rng.integers(50, 200, count)
    return [[END, *rng.integers(1, VOCABULARY, length).tolist()] for length in lengths]


def test_planted_copies_are_found_and_nothing_else(tmp_path):
    rng = np.random.default_rng(0)
    training, held_out = random_documents(rng, 100), random_documents(rng, 40)
    for number in (3, 7, 20):
        training[number][4:4] = held_out[number][11:31]
    training[50][2:2] = held_out[5][9:21]  # 12 tokens are no 13-gram
    files = [[i for d in training[k::3] for i in d] for k in range(3)]
    shards = write_shards(tmp_path, files, [[i for d in held_out for i in d]], VOCABULARY)
    for threads in (1, 2):
        counts, result = overlap_of(shards, 13, threads=threads)
        assert counts == (40, 3, sum(map(len, held_out)) - 40, 60) and result.whole


def test_an_ngram_over_the_border_of_two_documents_is_none(tmp_path):
    """Even where the same two documents follow each other in the training part."""
    documents = [END, *range(1, 8), END, *range(20, 28)]
    shards = write_shards(tmp_path, [documents], [documents], VOCABULARY)
    assert overlap_of(shards, 9)[0][3] == 0
    assert overlap_of(shards, 8)[0][3] == 8
    assert overlap_of(shards, 7)[0][3] == 15


def test_a_large_held_out_part_is_cut_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(overlap_module, "MAX_HELD_OUT_TOKENS", 33)
    text = [END, *range(1, 25)]
    shards = write_shards(tmp_path, [text], [[END, 90, 91], text, text], VOCABULARY)
    (documents, touched, tokens, covered), result = overlap_of(shards, 13)
    assert (documents, touched, tokens, covered) == (3, 1, 30, 24)
    assert not result.whole
    assert str(result).startswith("80.00 % of the first 30 held-out tokens, in 1 of 3 documents")
    monkeypatch.setattr(overlap_module, "MAX_HELD_OUT_TOKENS", 53)
    assert overlap_of(shards, 13)[1].whole


def test_ngrams_are_told_apart_by_their_whole_hash():
    """Also where the first bits tell none apart; the first n-gram of a text counts."""
    text = HeldOut(np.array([END, 5], np.uint16), scattered_ids(1000), END, 1)
    text.table[:] = True
    text.mark(np.array([i for i in range(1, 1000) if i != 5], np.uint16))
    assert text.seen.tolist() == [False]
    text.mark(np.array([5, 6], np.uint16))
    assert text.seen.tolist() == [True]


def test_token_ids_are_scattered_by_splitmix64():
    """Its first numbers from the seed 0, as in the authors' code."""
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert scattered_ids(4).tolist() == known


def test_hashes_are_the_polynomial():
    ids = np.array([5, 1, 1, 9, 3, 5, 2], np.uint16)
    numbers = scattered_ids(10)
    base = int(overlap_module.POLYNOMIAL_BASE)
    for n in range(1, 10):
        expected = [
            sum(int(numbers[ids[i + j]]) * base ** (n - 1 - j) for j in range(n)) % 2**64
            for i in range(len(ids) - n + 1)
        ]
        assert ngram_hashes(ids, numbers, n).tolist() == expected
