from math import isfinite

from benchmarks import growth
from benchmarks.measure import Figure, Picture


def test_every_axis_has_its_ends_and_there_is_a_picture():
    *figures, picture = growth.measure(turns=1, quick=True)
    assert isinstance(picture, Picture) and picture.png.startswith(b"\x89PNG")
    assert all(isinstance(each, Figure) and isfinite(each.median) for each in figures)
    assert all(each.low > 0 for each in figures)
    names = [each.name for each in figures]
    assert len(names) == len(set(names)) == 2 * (2 * 2 + 4) + 4 + 2
    assert "time ÷ FLOP model, Free Transformer, H = 2" in names
    assert not any("H = " in name for name in names if "baseline" in name)


def test_memory_is_that_of_parameters_moments_gradients_and_what_is_kept():
    """At many tokens the planner's own figure, which is of a GPU: its fused RMSNorm keeps less."""
    shape = growth.Shape(T=32, D=32, L=4, B=16, H=4)
    point = growth.point(shape, turns=1)
    for arm in growth.ARMS:
        assert 0.9 < point[arm].bytes / shape.bytes(arm) < 1.35
