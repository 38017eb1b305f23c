"""Assertions of the shared helpers say what they compared, as those of the tests do."""

import pytest

pytest.register_assert_rewrite("tests.support")
