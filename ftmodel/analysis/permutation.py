"""Permutation tests of a statistic, and what several of them show together."""

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import false_discovery_control
from torch import Tensor

PERMUTATIONS = 10_000  # p can be as small as one ten-thousandth: adjusted for 500 tests, 0.05


@dataclass
class Chance:
    """The value of a statistic, and its distribution under permutation."""

    value: float
    null_mean: float
    null_95: float  # 95 % quantile
    p_value: float  # (1 + permutations that reach ``value``) / (1 + permutations)


def permutation_test(values: Tensor) -> Chance:
    """Test the data's statistic, the first of ``values`` (1 + P,), against the permutations'."""
    true, null = values[0].item(), values[1:]
    return Chance(
        value=true,
        null_mean=null.mean().item(),
        null_95=null.quantile(0.95).item(),
        p_value=(1 + (null >= true).sum().item()) / (1 + len(null)),
    )


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values of several tests: of the tests below a level, the expected share that is
    false is at most the level (Benjamini & Hochberg 1995, Controlling the false discovery rate).
    """
    return false_discovery_control(p_values).tolist() if p_values else []
