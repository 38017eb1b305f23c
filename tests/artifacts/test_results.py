"""Results as files: what is written is read back, and numbers have names."""

import json
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from math import inf, isnan, nan
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from pipelines.artifacts import suite_results
from pipelines.artifacts.result_files import flat_numbers, read_json, write_json
from pipelines.artifacts.results import (
    BudgetFigures,
    Details,
    Estimate,
    EvaluationResult,
    Figures,
    Reconstruction,
)
from pipelines.host.errors import UserError
from tests.support.mutants import rejects

FIGURES = Figures(ce=Estimate(0.1, nan), iwae=Estimate(0.5, 0.01))
EVALUATION = EvaluationResult(
    documents=3,
    tokens=9,
    tokens_per_second=1.5,
    bits_per_token=FIGURES,
    iwae_by_samples={1: Estimate(0.6, 0.01), 16: Estimate(0.5, 0.01)},
    budgets=[BudgetFigures(1, 2, False, FIGURES), BudgetFigures(3, 3, True, FIGURES)],
    collapsed=False,
)


@rejects("result_files.write_json: («→json.»dumps", "NaN in a result's JSON")
def test_what_is_written_is_read_back(tmp_path):
    """NaN, which JSON does not have, as null, and again as NaN where a number must be."""
    write_json(tmp_path / "evaluation.json", EVALUATION)
    json.loads((tmp_path / "evaluation.json").read_text(), parse_constant=pytest.fail)
    assert '\n  "documents": 3,' in (tmp_path / "evaluation.json").read_text()
    again = read_json(tmp_path / "evaluation.json", EvaluationResult, "evaluate")
    assert isnan(again.bits_per_token.ce.se)
    assert repr(again) == repr(EVALUATION)  # of which NaN is equal to NaN


@dataclass
class Numbers:
    many: list[float]
    limit: float | None = None
    by_name: dict[str, "Numbers"] = field(default_factory=dict)
    count: int = 0


def test_null_is_nan_in_lists_and_mappings_but_not_where_a_number_may_be_missing(tmp_path):
    write_json(tmp_path / "x.json", Numbers([1.0, nan, -inf], by_name={"a": Numbers([nan], nan)}))
    again = read_json(tmp_path / "x.json", Numbers, "evaluate")
    assert again.many[0] == 1 and all(map(isnan, [*again.many[1:], *again.by_name["a"].many]))
    assert again.by_name["a"].limit is None
    (tmp_path / "x.json").write_text('{"many": [1], "count": null}')
    with pytest.raises(UserError, match="count: Input should be a valid integer"):
        read_json(tmp_path / "x.json", Numbers, "evaluate")


def dataclasses_in(kind: Any) -> set[type]:
    """``kind``'s own and all that its fields mention."""
    if not is_dataclass(kind):
        return set().union(*(dataclasses_in(each) for each in get_args(kind)))
    return {kind}.union(*(dataclasses_in(each) for each in get_type_hints(kind).values()))


@pytest.mark.parametrize("kind", [EvaluationResult, Details, suite_results.SuiteResults])
def test_a_field_that_may_be_none_may_be_missing(kind):
    """None is not written, so that reading must not need it."""
    needed = [
        f"{each.__name__}.{entry.name}"
        for each in dataclasses_in(kind)
        for entry in fields(each)
        if get_origin(hint := get_type_hints(each)[entry.name]) is UnionType
        and NoneType in get_args(hint)
        and entry.default is MISSING
    ]
    assert needed == []


def test_a_field_that_does_not_apply_is_not_in_the_file(tmp_path):
    """But a None in a list or a mapping is data."""

    @dataclass
    class Some:
        here: Reconstruction
        required: list[float]
        gone: float | None = None
        empty: list[float] = field(default_factory=list)
        values: list[float | None] = field(default_factory=lambda: [1.0, None])
        log: dict[str, str | None] = field(default_factory=lambda: {"answer": None})

    write_json(tmp_path / "some.json", Some(Reconstruction(1.0), []))
    assert json.loads((tmp_path / "some.json").read_text()) == {
        "here": {"valid": 1.0}, "required": [], "values": [1.0, None], "log": {"answer": None}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"evaluation\.json is missing: "),
        ("{", r"evaluation\.json: .*; "),
        ('{"documents": "many"}', r"evaluation\.json: documents: .*; "),
        ('{"bits_per_token": null}', r"evaluation\.json: .*; "),
        ('{"bits_per_token": {"ce": {"mean": null, "se": "x"}}}', r"evaluation\.json: .*; "),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_command_that_makes_it(
    tmp_path, text, message
):
    path = tmp_path / "run/evaluation.json"
    path.parent.mkdir()
    if text:
        path.write_text(text)
    with pytest.raises(UserError, match=f"{message}`dvc repro evaluate@run` makes it") as error:
        read_json(path, EvaluationResult, "evaluate")
    assert "\n" not in str(error.value)


def test_numbers_by_name_without_lists_and_texts():
    units = [EVALUATION.figures(unit) for unit in ("bits_per_token", "bits_per_byte")]
    assert units == [FIGURES, Figures()]
    figures = flat_numbers(EVALUATION)
    assert isnan(figures.pop("bits_per_token/ce/se"))
    assert figures.pop("collapsed") is not False
    assert figures == {
        "documents": 3, "tokens": 9, "tokens_per_second": 1.5, "trained_tokens": 0, "parameters": 0,
        "bits_per_token/ce/mean": 0.1, "bits_per_token/iwae/mean": 0.5,
        "bits_per_token/iwae/se": 0.01, "iwae_by_samples/1/mean": 0.6, "iwae_by_samples/1/se": 0.01,
        "iwae_by_samples/16/mean": 0.5, "iwae_by_samples/16/se": 0.01,
    }  # fmt: skip
    nested = {"a": {"b": 1, "c": {"d": 2.5}}, "e": True, "f": [1, 2], "g": None, "h": "text"}
    assert flat_numbers(nested, ".") == {"a.b": 1, "a.c.d": 2.5, "e": 1}


@rejects("Figures.bound: «filtering→iwae» assert", "arms compared by IWAE")
def test_models_are_compared_by_nll_or_filtering_bound() -> None:
    """Whatever the other bounds say."""
    others = {"elbo": Estimate(3.0, 0.1), "iwae": Estimate(2.0, 0.1), "prior": Estimate(0.5, 0.1)}
    assert Figures(filtering=Estimate(1.0, 0.1), **others).bound.mean == 1.0
    assert Figures(nll=Estimate(1.5, 0.1)).bound.mean == 1.5


def test_documents_have_sizes_in_both_units() -> None:
    details = Details([], bound_bits=[1.0, 2.0], document_tokens=[3, 4], document_bytes=[9, 12])
    assert details.sizes("bits_per_byte").tolist() == [9, 12]
    assert details.sizes("bits_per_token").tolist() == [3, 4]
