"""Every promise of the pages in promises.yaml is still made, and still has its tests."""

import re

import pytest
import yaml

from tests import ROOT

PROMISES = yaml.safe_load((ROOT / "tests/docs/promises.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PROMISES)
def test_a_promise_is_on_its_page_and_has_its_tests(page):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    for promise, tests in PROMISES[page].items():
        assert promise in text
        assert tests
        for file, _, name in (test.partition("::") for test in tests):
            source = (ROOT / "tests" / file).read_text(encoding="utf-8")
            assert re.search(rf"^def {name}\(", source, re.MULTILINE), f"{file} has no {name}"
