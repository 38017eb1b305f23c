"""Scores of generated target-task sequences: is each one well formed, and what does z decide?

A *group* is a set of sequences that share a prompt. All functions take bodies: the characters after
the prompt, as text over the letters, '_' and '!'.
"""

from dataclasses import dataclass
from itertools import combinations
from math import nan
from statistics import fmean, pstdev

from ftmodel.synthetic.target_task import LENGTH, STARTS, TARGET


def is_valid(body: str, letter: str) -> bool:
    """Exactly one 8-long target of ``letter`` or '!', and nothing else but '_' and '!'."""
    if len(body) != LENGTH or letter not in body or set(body) - {letter, "_", "!"}:
        return False
    first, last = body.index(letter), body.rindex(letter)
    starts = range(max(0, last - TARGET + 1), min(first, STARTS - 1) + 1)
    return any("_" not in body[s : s + TARGET] for s in starts)


def mean_position(body: str, letter: str) -> float | None:
    """Mean place (0 … 63) of the letter's occurrences; None if there is none."""
    places = [i for i, c in enumerate(body) if c == letter]
    return fmean(places) if places else None


def spread(bodies: list[str], letter: str) -> float:
    """Standard deviation, in characters, of the target's mean position over a group."""
    places = [m for b in bodies if (m := mean_position(b, letter)) is not None]
    return pstdev(places) if len(places) > 1 else nan


def noise_overlap(bodies: list[str]) -> float:
    """Mean over pairs of the Jaccard overlap |A ∩ B| / |A ∪ B| of the places of '!'.

    Pairs without any '!' have no overlap to measure and are left out.
    """
    places = [{i for i, c in enumerate(b) if c == "!"} for b in bodies]
    overlaps = [len(a & b) / len(a | b) for a, b in combinations(places, 2) if a | b]
    return fmean(overlaps) if overlaps else nan


@dataclass
class Scores:
    """Means over groups; valid is a share of sequences, spread is in characters."""

    valid: float
    spread: float
    noise: float
    groups: int
    group_size: int


def score_groups(groups: list[list[str]]) -> Scores:
    """Score groups of whole sequences ("T>____…"); a group has one prompt."""
    bodies = [[s[2:] for s in group] for group in groups]
    letters = [group[0][0] for group in groups]
    pairs = list(zip(bodies, letters, strict=True))
    valid = [is_valid(b, letter) for group, letter in pairs for b in group]
    spreads = [s for group, letter in pairs if (s := spread(group, letter)) == s]
    noises = [n for group in bodies if (n := noise_overlap(group)) == n]
    return Scores(
        valid=fmean(valid),
        spread=fmean(spreads) if spreads else nan,
        noise=fmean(noises) if noises else nan,
        groups=len(groups),
        group_size=len(groups[0]),
    )
