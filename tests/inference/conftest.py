"""Models as they are measured: in evaluation mode."""

import pytest


@pytest.fixture
def make_model(make_model):
    return lambda *arguments, **changes: make_model(*arguments, **changes).eval()
