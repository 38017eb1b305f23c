"""The distribution's Chromium, without a head, and what a page must be for its readers."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

PHONE, DESKTOP = (390, 844), (1280, 900)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
READ = Path(__file__).with_name("readable.js").read_text()


@contextmanager
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here: `apt-get install chromium`")
    with sync_playwright() as playwright:
        sandboxed = os.geteuid() != 0  # which root cannot have
        yield playwright.chromium.launch(executable_path=CHROMIUM, chromium_sandbox=sandboxed)


class Reader:
    """A page as a reader with this screen has it; what goes wrong is kept."""

    def __init__(
        self,
        browser: Browser,
        path: Path,
        screen: tuple[int, int] = DESKTOP,
        root: Path | None = None,
    ) -> None:
        """The page may load what lies in the folder ``root``, by default nothing."""
        self.trouble: list[str] = []
        viewport = {"width": screen[0], "height": screen[1]}
        self.page: Page = browser.new_context(viewport=viewport).new_page()
        self.page.on("console", lambda message: self.trouble.append(message.text))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        own = (root or path).as_uri()
        self.page.on("request", lambda request: self.asked(request.url, own))
        self.page.goto(path.as_uri())

    def asked(self, url: str, own: str) -> None:
        if not url.startswith(("data:", own)):
            self.trouble.append(f"asked for {url}")

    def check(self) -> None:
        """Nothing went wrong, and nothing is hard to read."""
        assert self.trouble == []
        assert self.page.evaluate(READ) == []
