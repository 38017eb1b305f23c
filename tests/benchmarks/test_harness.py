import logging

import pytest

from benchmarks import harness
from tests.benchmarks.checks import quick_figures


@pytest.fixture(autouse=True)
def put_back(monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    yield
    logging.disable(logging.NOTSET)


def test_every_kind_of_request_is_asked_of_every_arm():
    names = list(quick_figures(harness))
    for kind in ("choices", "letters", "single", "generate"):
        of_kind = [name.removeprefix(f"{kind}, ") for name in names if name.startswith(kind)]
        free = ["free, K = 1 ÷ ours: requests/s", "free, K = 8 ÷ ours: requests/s"]
        expected = ["ours", "ours ÷ backend 8: requests/s", *free]
        assert of_kind == expected[: 3 if kind == "generate" else 4]
