"""The training curve: its bound, and how long the training took."""

import pytest

from ftmodel.designs.hinge import LN2
from pipelines.artifacts.curve import CurveRow, training_seconds


def row(step: int, tokens: int, speed: float = 1.0, kl_bits: float | None = None) -> CurveRow:
    return CurveRow(step, tokens, 9.0, 3 * LN2, 0.1, speed, kl_bits=kl_bits)


def test_the_training_bound_is_in_bits_with_kl() -> None:
    assert row(1, 10).bound_bits == pytest.approx(3)
    assert row(1, 10, kl_bits=0.5).bound_bits == pytest.approx(3.5)


def test_a_training_took_what_each_row_took() -> None:
    curve = [row(1, 10, speed=5.0), row(3, 30, speed=10.0), row(4, 40, speed=2.0)]
    assert training_seconds(curve) == pytest.approx(10 / 5 + 20 / 10 + 10 / 2)
