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
