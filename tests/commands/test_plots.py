"""The training curves drawn by DVC, without a network."""

import pytest

from tests.support.browser import Reader, chromium


@pytest.mark.slow
def test_curves_are_drawn_without_a_network(copied):
    copied.ok("python", "-m", "pipelines.cli", "plots")
    with chromium() as browser:
        reader = Reader(browser, copied.folder / "dvc_plots/index.html")
        reader.page.locator("svg, canvas").first.wait_for()
        assert reader.trouble == []
        assert "text_free_k1_2" in reader.page.locator("main").inner_text()
    assert copied.ok("git", "status", "--porcelain", "dvc_plots") == ""
