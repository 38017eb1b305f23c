"""The paper's synthetic task (§ 4.1), a letter's target at a random position among noise, and
scores of generated sequences: validity, and the spread within groups.

A sequence is a prompt, the letter and '>', then 64 characters: underscores, with the letter
repeated 8 times from a uniform start, each character then replaced by '!' with probability 1/16. A
*group* is a set of sequences that share a prompt, and one z or not. Functions of bodies take the
characters after the prompt, as text over the letters, '_' and '!'.
"""

from dataclasses import dataclass
from itertools import combinations
from math import log, nan
from statistics import fmean, pstdev

import torch
from torch import Generator, Tensor

from ftmodel.synthetic.process import Process

LENGTH = 64
TARGET = 8
STARTS = LENGTH - TARGET + 1  # 57
NOISE = 1 / 16

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ALPHABET = LETTERS + "_!>"  # a token id is an index into this string
BLANK, BANG, ARROW = (ALPHABET.index(c) for c in "_!>")
PROMPT = 2  # tokens: the letter and '>'
ROW = PROMPT + LENGTH


def encode(text: str) -> Tensor:
    """Token ids (len(text),) of a text over ALPHABET; raises ValueError on any other character."""
    return torch.tensor([ALPHABET.index(c) for c in text])


def decode(tokens: Tensor) -> str:
    return "".join(ALPHABET[i] for i in tokens.tolist())


def sample_with_starts(n: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Draw n sequences (n, 66) of token ids, and return with them the start (n,) of each target,
    0 … 56 characters after the prompt.
    """
    letter = torch.randint(len(LETTERS), (n, 1), generator=generator)
    start = torch.randint(STARTS, (n, 1), generator=generator)
    offset = torch.arange(LENGTH) - start  # (n, 64)
    clean = torch.where((offset >= 0) & (offset < TARGET), letter, BLANK)
    noisy = torch.rand(n, LENGTH, generator=generator) < NOISE
    body = torch.where(noisy, BANG, clean)
    return torch.cat((letter, torch.full_like(letter, ARROW), body), dim=1), start.flatten()


def sample_sequences(n: int, generator: Generator) -> Tensor:
    return sample_with_starts(n, generator)[0]


def exact_log_probability(sequences: Tensor) -> Tensor:
    """log P(sequence | letter) in nats, (n,), of sequences (n, 66), by enumerating the 57 starts.

    −inf where the process cannot produce what follows the first token.
    """
    letter, arrow, body = sequences[:, :1], sequences[:, 1], sequences[:, PROMPT:]
    position = torch.arange(LENGTH)
    start = torch.arange(STARTS)[:, None]
    inside = (position >= start) & (position < start + TARGET)  # (57, 64)
    bang = (body == BANG)[:, None]
    fits = torch.where(inside, (body == letter)[:, None], (body == BLANK)[:, None])  # (n, 57, 64)
    impossible = torch.tensor(-torch.inf, dtype=torch.float64)
    log_p = torch.where(bang, log(NOISE), torch.where(fits, log(1 - NOISE), impossible)).sum(-1)
    total = torch.logsumexp(log_p, dim=1) - log(STARTS)
    return torch.where(arrow == ARROW, total, impossible)


PROCESS = Process(
    symbols=tuple(ALPHABET),
    separator="",
    row=ROW,
    sample=sample_sequences,
    log_probability=exact_log_probability,
)


def is_valid(body: str, letter: str) -> bool:
    """Exactly one 8-long target of ``letter`` or '!', and nothing else but '_' and '!'."""
    if len(body) != LENGTH or letter not in body or set(body) - {letter, "_", "!"}:
        return False
    first, last = body.index(letter), body.rindex(letter)
    starts = range(max(0, last - TARGET + 1), min(first, STARTS - 1) + 1)
    return any("_" not in body[s : s + TARGET] for s in starts)


def mean_position(body: str, letter: str) -> float | None:
    """Mean position (0 … 63) of the letter's occurrences; None if there is none."""
    positions = [i for i, c in enumerate(body) if c == letter]
    return fmean(positions) if positions else None


def spread(bodies: list[str], letter: str) -> float:
    """Standard deviation, in characters, of the target's mean position over a group."""
    means = [m for b in bodies if (m := mean_position(b, letter)) is not None]
    return pstdev(means) if len(means) > 1 else nan


def noise_overlap(bodies: list[str]) -> float:
    """Mean over pairs of the Jaccard overlap |A ∩ B| / |A ∪ B| of the positions of '!'; pairs
    without any '!' are left out. NaN if no pair is left.
    """
    positions = [{i for i, c in enumerate(b) if c == "!"} for b in bodies]
    overlaps = [len(a & b) / len(a | b) for a, b in combinations(positions, 2) if a | b]
    return fmean(overlaps) if overlaps else nan


@dataclass
class Scores:
    """Means over sequences (valid) or groups (spread, noise)."""

    valid: float  # share of sequences
    spread: float  # of the target's mean position within a group, characters
    noise: float  # overlap of the positions of '!' within a group, 0 … 1
    groups: int
    group_size: int


def score_groups(groups: list[list[str]]) -> Scores:
    """Score groups of whole sequences ("T>____…"); a group has one prompt."""
    pairs = [([s[2:] for s in group], group[0][0]) for group in groups]
    valid = [is_valid(b, letter) for bodies, letter in pairs for b in bodies]
    spreads = [s for bodies, letter in pairs if (s := spread(bodies, letter)) == s]
    noises = [n for bodies, _ in pairs if (n := noise_overlap(bodies)) == n]
    return Scores(
        valid=fmean(valid),
        spread=fmean(spreads) if spreads else nan,
        noise=fmean(noises) if noises else nan,
        groups=len(groups),
        group_size=len(groups[0]),
    )
