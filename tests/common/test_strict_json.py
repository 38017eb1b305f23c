"""No file of ours holds NaN, which JSON does not have."""

import json
from dataclasses import dataclass, field
from math import inf, isnan, nan

import pytest

from pipelines.artifacts import result_files
from pipelines.artifacts.results import Estimate, Evaluation, Figures
from pipelines.common.errors import UserError
from pipelines.common.strict_json import dumps
from tests.support.mutants import rejects


def refuse(name):
    raise AssertionError(f"{name} is no JSON")


def strict(text):
    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (nan, None),
        ({"a": [1, inf, -inf], "b": (nan, 2.5)}, {"a": [1, None, None], "b": [None, 2.5]}),
        ({"x": "NaN", "y": True, "z": None}, {"x": "NaN", "y": True, "z": None}),
    ],
)
def test_what_is_no_number_is_null(value, written):
    assert strict(dumps(value)) == written


@dataclass
class Inner:
    se: float
    limit: float | None = None


@dataclass
class Outer:
    inner: Inner
    many: list[float] = field(default_factory=list)
    by_name: dict[str, Inner] = field(default_factory=dict)


@rejects(
    "artifacts/result_files.py",
    "file.write(dumps(plain(content)",
    "file.write(json.dumps(plain(content)",
    "NaN in a result's JSON",
)
def test_null_is_nan_again_where_a_number_must_be(tmp_path):
    path = tmp_path / "run/x.json"
    path.parent.mkdir()
    result_files.write(path, Outer(Inner(nan), [1.0, nan], {"a": Inner(nan, nan)}))
    strict(path.read_text())
    again = result_files.read(path, Outer, "evaluate")
    assert isnan(again.inner.se) and again.many[0] == 1 and isnan(again.many[1])
    assert isnan(again.by_name["a"].se) and again.by_name["a"].limit is None


def test_a_file_of_before_can_be_read(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"inner": {"se": NaN}}')
    assert isnan(result_files.read(path, Outer, "evaluate").inner.se)


@pytest.mark.parametrize("text", ['{"inner": null}', '{"inner": {}}', '{"inner": {"se": "x"}}',
                                  '{"inner": {"se": null}, "many": 3}'])  # fmt: skip
def test_what_else_is_wrong_is_still_said(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UserError, match="dvc repro evaluate@"):
        result_files.read(path, Outer, "evaluate")


def test_an_evaluation_of_a_single_document_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "evaluation.json"
    evaluation = Evaluation(1, 7, 1.0, Figures(nll=Estimate(2.0, nan)))
    result_files.write(path, evaluation)
    strict(path.read_text())
    read = result_files.read(path, Evaluation, "evaluate")
    assert read.bits_per_token.nll.mean == 2 and isnan(read.bits_per_token.nll.se)
