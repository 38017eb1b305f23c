"""Designs of the latent that combine settings: any two values of two settings meet in one of them,
if any design may have both.
"""

from itertools import combinations, product
from random import Random

from ftmodel.config import KINDS, LatentDesign

EVERY = 3


def possible() -> list[dict]:
    """Every design that a model can have, as settings that are words."""
    designs = []
    for words in product(*KINDS.values()):
        design = dict(zip(KINDS, map(str, words), strict=True))
        if design["per"] == "every":
            design["every"] = EVERY
        try:
            LatentDesign(**design).validate()
        except ValueError:
            continue
        designs.append(design)
    return designs


def pairs(design: dict) -> set:
    return set(combinations([(name, design[name]) for name in KINDS], 2))


def all_pairs() -> list[dict]:
    """Few designs in which all pairs of values occur: each is the one that adds the most."""
    designs = possible()
    Random(0).shuffle(designs)
    missing = set().union(*map(pairs, designs))
    chosen = []
    while missing:
        chosen.append(max(designs, key=lambda design: len(pairs(design) & missing)))
        missing -= pairs(chosen[-1])
    return chosen


def title(design: dict) -> str:
    return " ".join(str(value) for value in design.values())
