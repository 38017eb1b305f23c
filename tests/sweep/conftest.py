"""Plans are composed from conf/ of the current folder."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)
