import pytest

from benchmarks import latent
from tests.benchmarks.checks import quick_figures


def test_it_runs():
    pytest.importorskip("x_transformers", reason="a peer; `make bench` installs it")
    found = quick_figures(latent)
    assert found["D = 32, H = 8: time"].target
    assert "H = 6: ours ÷ free-transformer, speed" in found


def test_ours_is_beside_ours_without_peers():
    found = latent.beside_baseline(
        "tiny", latent.replace(latent.QUICK, latent_bits=8), False, False, 1
    )
    assert [each.unit for each in found] == ["ratio", "ratio", "ratio", "MiB", "MiB"]


def test_what_is_not_held_at_the_peak_is_not_taken_off_it():
    """A baseline and more is no less than a baseline, however large the table."""
    config = latent.replace(latent.QUICK, latent_bits=12)
    figures = latent.beside_baseline("tiny", config, False, False, 1)
    (memory,) = (each for each in figures if each.name == "tiny: peak memory")
    assert memory.median > 1
