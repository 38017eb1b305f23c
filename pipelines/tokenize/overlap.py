"""Is held-out text in the training text? Shared n-grams of tokens, found by rolling hashes.

A held-out token overlaps if it lies in an n-gram, of N tokens within a document, that also occurs
in the training part: 13-grams as in Brown et al. 2020, appendix C (of words there). An n-gram is
known by its polynomial hash modulo 2^64 (Karp and Rabin 1987) over token ids that SplitMix64
(Steele, Lea and Flood 2014) has scattered: two n-grams share one with probability about 2^-64.
Documents of fewer than N tokens have no n-gram and count as free of overlap.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from pipelines.artifacts.tokens.shards import Overlap
from pipelines.artifacts.tokens.token_file import Ids, TokenFile

N = 13  # tokens
MAX_HELD_OUT_TOKENS = 1 << 23  # that are looked up
CHUNK_TOKENS = 1 << 18  # hashed at once, so that they stay in a core's cache
POLYNOMIAL_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd

Hashes = NDArray[np.uint64]


def scattered_ids(vocab_size: int) -> Hashes:
    """A 64-bit number for each token id, (V,): SplitMix64."""
    x = np.arange(1, vocab_size + 1, dtype=np.uint64) * POLYNOMIAL_BASE
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def ngram_hashes(ids: Ids, numbers: Hashes, n: int) -> Hashes:
    """Hash of each n-gram of ``ids`` (tokens,), (tokens − n + 1,): Σ_j number(id_j) b^(n−1−j)
    with b = POLYNOMIAL_BASE.
    """
    count = max(0, len(ids) - n + 1)
    of_ids = numbers[ids]
    hashed = np.zeros(count, np.uint64)
    for j in range(n):
        hashed *= POLYNOMIAL_BASE
        hashed += of_ids[j : j + count]
    return hashed


class HeldOut:
    """Held-out running text, and which of its n-grams occur in other text too."""

    def __init__(self, ids: Ids, numbers: Hashes, end_of_text: int, n: int) -> None:
        self.ids, self.numbers, self.n = ids, numbers, n
        self.ends = ids == end_of_text
        every = ngram_hashes(ids, numbers, n)
        # An n-gram counts if it lies inside a document: no end of text is among its tokens
        inside = np.ones(len(every), bool)
        ends = np.flatnonzero(self.ends)
        for j in range(n):
            at = ends - j
            inside[at[(at >= 0) & (at < len(inside))]] = False
        self.offsets = np.flatnonzero(inside)
        self.known, self.which = np.unique(every[inside], return_inverse=True)
        self.seen = np.zeros(len(self.known), bool)
        # the first bits of a hash are enough to tell most n-grams of other text from the known ones
        bits = max(16, (16 * len(self.known)).bit_length())
        self.shift = np.uint64(64 - bits)
        self.table = np.zeros(1 << bits, bool)
        self.table[self.known >> self.shift] = True

    def mark(self, ids: Ids) -> None:
        """Mark n-grams of ``ids``, none across an end of text; threads may do so at once."""
        for start in range(0, len(ids), CHUNK_TOKENS):
            stop = start + CHUNK_TOKENS + self.n - 1
            other = ngram_hashes(ids[start:stop], self.numbers, self.n)
            other = other[self.table[other >> self.shift]]
            index = np.searchsorted(self.known, other)
            index[index == len(self.known)] = 0
            self.seen[index[self.known[index] == other]] = True

    def overlap(self, whole: bool) -> Overlap:
        starts = self.offsets[self.seen[self.which]]
        covered = np.zeros(len(self.ids), bool)
        for j in range(self.n):
            covered[starts + j] = True
        document = np.cumsum(self.ends)
        return Overlap(
            n=self.n,
            documents=int(self.ends.sum()),
            documents_with_overlap=len(np.unique(document[starts])),
            tokens=int((~self.ends).sum()),
            tokens_overlapping=int(covered.sum()),
            whole=whole,
        )


def find_overlap(
    held_out: list[TokenFile],
    training: list[TokenFile],
    end_of_text: int,
    vocab_size: int,
    threads: int = 1,
    n: int = N,
) -> Overlap:
    """Find the held-out tokens in n-grams of the training part; memory does not grow with it."""
    left = MAX_HELD_OUT_TOKENS
    texts = []
    for file in held_out:
        texts.append(file.read()[:left])
        left -= len(texts[-1])
    text = HeldOut(np.concatenate(texts), scattered_ids(vocab_size), end_of_text, n)
    if len(text.known):
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda file: text.mark(file.read()), training))
    return text.overlap(whole=sum(map(len, held_out)) <= MAX_HELD_OUT_TOKENS)
