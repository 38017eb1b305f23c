"""Compares designs of the latent with their model's own, in otherwise equal Free Transformers."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.compare.arms import Arm, families, grouped
from pipelines.compare.comparison import Comparison, contrast_bounds

NAMES = {
    "latent_bits": "H",
    "latent_block": "block",
    "latent.encoder_layers": "encoder blocks",
    "latent.per": "a code per",
    "latent.every": "a code every",
}


@dataclass(frozen=True)
class Designs:
    """Arms of one family and threshold, one of which has its model's design."""

    own: Arm
    others: list[Comparison]  # arms of another design, compared with ``own`` by the bound

    @property
    def arms(self) -> list[Arm]:
        return [self.own, *(comparison.arm for comparison in self.others)]


def design_words(arm: Arm) -> str:
    """An arm's design in words, such as `map linear, H 16` or `a code every 8`."""
    changes = arm.first.design_changes
    words = [
        f"{NAMES.get(key, key.removeprefix('latent.'))} {value}"
        for key, value in changes.items()
        if key != "latent.per" or "latent.every" not in changes  # which says it
    ]
    return ", ".join(words) or "its model's"


def designs(arms: Sequence[Arm]) -> list[Designs]:
    """A group for each family and threshold with the model's own design and another."""
    groups = []
    for family in families([*arms]):
        free = (arm for arm in family if not arm.baseline)
        by_threshold = grouped(
            free, lambda arm: (arm.run.kappa_bits, arm.run.kappa_warmup_steps, arm.run.beta)
        )
        for alike in by_threshold.values():
            own = next((arm for arm in alike if arm.preset_design), None)
            others = [arm for arm in alike if not arm.preset_design]
            if own and others:
                against = [contrast_bounds(arm, own, own.unit, family) for arm in others]
                groups.append(Designs(own, against))
    return groups
