"""A run with its results."""

import pytest

from pipelines.artifacts.run_results import fraction


@pytest.mark.parametrize(
    ("kappa", "text"), [(0.015625, "1/64"), (0.3, "3/10"), (8.0, "8"), (0.12345678, "0.123457")]
)
def test_fractions(kappa: float, text: str) -> None:
    assert fraction(kappa) == text
