"""The dense form that the mapper is timed against is the same function, and a pass is measured."""

from math import isfinite

import torch

from benchmarks.mapper import Arm, dense, exact, measure


def test_both_arms_have_the_same_gradients():
    """In float32, as they are timed."""
    arms = Arm(dense, 20, 9, 7), Arm(exact, 20, 9, 7)
    for arm in arms:
        arm()
    one, other = arms
    torch.testing.assert_close(one.o.grad, other.o.grad, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(one.table.grad, other.table.grad, atol=1e-5, rtol=1e-4)


def test_figures():
    figures = {figure.name: figure for figure in measure(turns=1, quick=True)}
    assert len(figures) == 8
    assert all(isfinite(f.median) and f.median > 0 for f in figures.values())
    at = "mapper, H = 8, D = 16, 32 tokens, dense ÷ exact"
    assert figures[f"{at}: time"].at_least == 3
    assert figures[f"{at}: peak memory beside the table's gradient"].at_least == 20
    taken = "sums, H = 8, D = 16, 32 tokens, taken: Khatri-Rao; by codes ÷ Khatri-Rao: time"
    assert taken in figures
