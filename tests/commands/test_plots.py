"""The training curves drawn by DVC, without a network."""

import sys

import pytest

from pipelines import plots
from pipelines.common.errors import UserError
from tests.support.browser import Reader, chromium


@pytest.mark.slow
def test_curves_are_drawn_without_a_network(copied):
    copied.ok("python", "-m", "pipelines.plots")
    with chromium() as browser:
        reader = Reader(browser, copied.folder / "dvc_plots/index.html")
        reader.page.locator("svg, canvas").first.wait_for()
        assert reader.trouble == []
        assert "text_free_k1_2" in reader.page.locator("main").inner_text()
    assert copied.ok("git", "status", "--porcelain", "dvc_plots") == ""


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UserError, match="vl-convert-python is not installed"):
        plots.main()
