"""Settings are composed from conf/ of the current folder."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _in_root(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
