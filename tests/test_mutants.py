"""The mutants that tests declare fit the code."""

from tests.support.mutants import declared


def test_every_mutant_has_a_name_of_its_own_and_replaces_text_that_is_there_once():
    mutants = declared()  # fails if a text is not there, or more than once
    assert len({mutant.name for mutant in mutants}) == len(mutants) > 500
