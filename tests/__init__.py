"""Assertions of the shared helpers say what they compared, as those of the tests do."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytest.register_assert_rewrite("tests.support")
