"""The mutants that tests declare fit the code."""

import ast

import pytest

from tests.support import mutants
from tests.support.mutants import alter, declared

SOURCE = """
WIDTHS = [1, 2]

class Model:
    def encode(self, x):
        return mean(x, axis=1, keep=True) + 1

    def decode(self, x):
        return mean(x, axis=1) + 1
"""
LAID_OUT = """
class Model:
    def encode(self, x):
        return (
            mean(
                x,  # (batch, time)
                axis=1,
                keep=True,
            )
            + 1
        )
"""


@pytest.fixture
def tree(monkeypatch):
    """Puts other texts, by path, in the product's place."""

    def put(**texts):
        texts = {f"ftmodel/{name}.py": text for name, text in texts.items()}
        monkeypatch.setattr(mutants, "product", lambda: texts)
        monkeypatch.setattr(mutants, "symbols", mutants.symbols.__wrapped__)

    return put


def test_every_mutant_has_a_name_of_its_own_and_a_place():
    all_mutants = declared()  # fails if a change fits nowhere, or at several places
    assert len({mutant.name for mutant in all_mutants}) == len(all_mutants) > 400
    for mutant in all_mutants:
        if mutant.path.endswith(".py"):
            ast.parse(mutant.altered)


@pytest.mark.parametrize(
    ("change", "was", "becomes"),
    [
        ("Model.encode: axis=«1→0»", "axis=1, keep", "axis=0, keep"),
        ("encode: «mean→sum»(x", "mean(x, axis=1, keep", "sum(x, axis=1, keep"),
        ("Model.decode: «→2 * »mean(«x→-x»", "mean(x, axis=1) ", "2 * mean(-x, axis=1) "),
        ("model.WIDTHS: «, 2→»", "1, 2", "1"),
    ],
)
def test_a_change_is_made_in_the_symbol_alone(tree, change, was, becomes):
    tree(model=SOURCE)
    assert alter(change) == ("ftmodel/model.py", SOURCE.replace(was, becomes))


@pytest.mark.parametrize("symbol", ["Model.encode", "Model.was_called_so", "WasCalledSo.encode"])
def test_a_mutant_keeps_its_place_when_code_is_laid_out_anew_moves_or_is_renamed(tree, symbol):
    tree(other=SOURCE.replace("encode", "code").replace("Model", "Other"), renamed=LAID_OUT)
    path, altered = alter(f"{symbol}: mean(x, «axis=1→axis=0», keep=True) «+ 1→»")
    assert path == "ftmodel/renamed.py"
    expected = LAID_OUT.replace("axis=1", "axis=0").replace("+ 1", "")
    assert ast.dump(ast.parse(altered)) == ast.dump(ast.parse(expected))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("Model.encode: «width→height»", "once, not 0 times"),
        ("Model: axis=«1→0»", "once, not 2 times"),
        ("Modal.read: axis=«1→0»", r"not 0 times; it fits into \['ftmodel/model.py'\]"),
    ],
)
def test_a_change_that_fits_nowhere_or_at_several_places(tree, change, message):
    tree(model=SOURCE)
    with pytest.raises(LookupError, match=message):
        alter(change)
