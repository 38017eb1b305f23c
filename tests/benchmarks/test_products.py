import pytest

from benchmarks import products
from benchmarks.measure import Missing
from ftmodel.model import product
from tests.benchmarks.checks import quick_figures


def test_it_runs_and_leaves_the_choice_as_it_was():
    before = product.ONEDNN
    found = quick_figures(products)
    assert "target_small, free, not compiled: oneDNN ÷ PyTorch's, speed" in found
    assert product.ONEDNN is before


def test_without_a_difference_there_is_nothing_to_measure(monkeypatch):
    monkeypatch.setattr(product, "ONEDNN", False)
    with pytest.raises(Missing, match="processor"):
        products.measure(turns=1, quick=False)


def test_an_arm_multiplies_by_its_own_library():
    seen = []
    products.switched(lambda: seen.append(product.ONEDNN), True)()
    products.switched(lambda: seen.append(product.ONEDNN), False)()
    assert seen == [True, False]
