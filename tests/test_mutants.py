"""The mutants that tests declare fit the code."""

from tests import ROOT
from tests.support.mutants import declared


def test_every_mutant_has_a_name_of_its_own_and_replaces_text_that_is_there_once():
    mutants = declared()
    assert len({mutant.name for mutant in mutants}) == len(mutants) > 500
    for mutant in mutants:
        assert (ROOT / mutant.path).read_text().count(mutant.old) == 1, mutant.name
