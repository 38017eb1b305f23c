"""A training that several tests look at."""

from types import SimpleNamespace

import pytest

from tests.support.training import train_run
from tests.support.workspace import enter


@pytest.fixture(scope="session")
def trained(tokenized, tmp_path_factory):
    """The weights of RUN, trained in one go, and the rows of its curve."""
    with pytest.MonkeyPatch.context() as patch:
        enter(tokenized, tmp_path_factory.mktemp("trained"), patch)
        weights, rows = train_run()
    return SimpleNamespace(weights=weights, rows=rows)
