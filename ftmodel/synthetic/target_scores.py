"""Scores of generated target-task sequences: validity, and the spread within groups.

A *group* is a set of sequences that share a prompt, and one z or not. Functions of bodies take the
characters after the prompt, as text over the letters, '_' and '!'.
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
