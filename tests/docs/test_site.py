"""`make docs`: the site is whole, loads nothing from elsewhere, and searches without a server."""

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.browser import DESKTOP, Reader, chromium

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not find_spec("material"), reason="no mkdocs-material here")


def build(project, folder):
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    return subprocess.run(command, cwd=project, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built strictly: a broken link or anchor, or a page outside the navigation, fails it."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_broken_link_or_anchor_fails_the_build(tmp_path):
    """On a site of two pages with the project's own settings."""
    (tmp_path / "docs").mkdir()
    for name in ("mkdocs.yml", "docs/site.py", "docs/iframe-worker.js"):
        shutil.copy(ROOT / name, tmp_path / name)
    links = "[a](docs/experiment.md) [b](docs/experiments.md#steps)"
    (tmp_path / "README.md").write_text(f"# Home\n\n{links}\n")
    (tmp_path / "docs/experiments.md").write_text("# Experiments\n\n## First steps\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1 and "Aborted with 2 warnings in strict mode" in done.stdout


def test_every_page_is_there_and_loads_nothing_from_elsewhere(site):
    pages = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    written = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    assert len(pages) > len(written)  # and 404.html
    for name, text in pages.items():
        loaded = re.findall(r"<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)=\S+", text)
        assert loaded and not [tag for tag in loaded if "//" in tag], name
        assert 'class="mermaid"' not in text, "its script would come from another host"


def test_a_page_is_labelled_by_its_title_in_the_part_that_it_belongs_to(site):
    for name, part, label in (
        ("rivals/index", "Results", "Random tokens versus a latent code, experiment rivals"),
        ("measurement/swap", "Guide", "Swap of z"),
        ("architecture", "Project", "Architecture"),
    ):
        text = (site / f"docs/{name}.html").read_text()
        active = re.search(r'md-tabs__item--active">.*?</a>', text, re.S)
        assert part in active[0]
        labels = re.findall(r'<span class="md-ellipsis">(.*?)</span>', text, re.S)
        assert label in [re.sub("<.*?>", "", each).strip() for each in labels]


def test_three_pages_and_the_search_in_a_browser(site):
    with chromium() as browser:
        for name in ("index.html", "docs/gallery.html", "docs/figure4/index.html"):
            reader = Reader(browser, site / name, root=site)
            page = reader.page
            expect(page.locator("h1")).to_be_visible()
            widths = page.locator("article img").evaluate_all("all => all.map(e => e.naturalWidth)")
            assert widths and all(widths)
            assert page.evaluate("document.documentElement.scrollWidth") <= DESKTOP[0]
            page.locator(".md-search__input").fill("particle filter")
            found = page.locator(".md-search-result__item").first
            expect(found).to_be_visible(timeout=60_000)  # it indexes all pages first
            assert reader.trouble == []
            page.context.close()
