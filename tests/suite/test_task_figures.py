"""Figures of tasks from what the harness has counted, which stands here."""

from math import log, nan
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from pipelines.suite import benchmark_data, tasks
from pipelines.suite.tasks import gold_bits_per_byte, run_task, standard_error, undecided
from tests.support.benchmark_models import Scripted, entry, settings
from tests.support.mutants import rejects


@pytest.fixture(autouse=True)
def no_data(monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark_data, "FOLDER", tmp_path)


@pytest.mark.parametrize("names", [["one"], ["one", "two"]])
def test_the_figure_of_several_tasks_is_that_of_their_group(monkeypatch, names):
    config = SimpleNamespace(
        num_fewshot=3, dataset_kwargs=None, dataset_path="a/b", dataset_name=None
    )
    task = Mock(config=config, OUTPUT_TYPE="multiple_choice", multiple_input=False)
    task.doc_to_choice.return_value = ["b"]
    group = {"name": SimpleNamespace(version="2.0")} if len(names) > 1 else {}
    values = {"name": 0.75} if len(names) > 1 else {}
    values |= {name: float(i) for i, name in enumerate(names)}
    sample = {"filter": "none", "acc": 1.0, "arguments": [("a", "b")], "doc": {}}
    sample |= {"target": 0, "resps": [[(-1.0, False)]]}
    results = {
        "results": {name: {"acc,none": value} for name, value in values.items()},
        "samples": {name: [sample, sample | {"filter": "other"}] for name in names},
        "versions": {"one": "1.0"},
        "higher_is_better": {"one": {"acc": True}},
    }
    loaded = {"tasks": dict.fromkeys(names, task), "groups": group}
    monkeypatch.setattr(tasks, "prepare", lambda *_: loaded)
    monkeypatch.setattr(tasks, "run", lambda *_: (results, 1.5))
    result, _, log, _ = run_task(Scripted(), "x", entry("name", "acc,none"), settings())
    several = len(names) > 1
    assert (result.value, result.version) == ((0.75, "2.0") if several else (0.0, "1.0"))
    assert result.subtasks == ({"one": 0.0, "two": 1.0} if several else {})
    assert (result.shots, result.seconds, result.documents) == (3, 1.5, len(names))
    assert [logged["task"] for logged in log] == names


def test_an_error_that_is_no_number_is_none():
    assert [standard_error("acc", counted, []) for counted in (0.5, 0, "N/A", nan, None)] == [
        0.5, 0.0, None, None, None
    ]  # fmt: skip
    passage = {"bits_per_byte": (-8.0, 3)}
    assert standard_error("bits_per_byte", None, [passage]) is None


@rejects(
    "tasks.gold_bits_per_byte: int) or «right not in range(len(choices))→False»", "hidden labels"
)
def test_right_answers_of_choices_and_of_texts_in_one_group():
    """A label that is the number of no choice, as hidden ones are, makes no answer right."""
    choice = Mock(OUTPUT_TYPE="multiple_choice", multiple_input=False, doc_to_choice=lambda _: "ab")
    text = Mock(OUTPUT_TYPE="generate_until")
    text.config.target_delimiter = " "
    asked = {"arguments": [("q", " aa"), ("q", " bb")], "resps": [[(-3.0, False)]] * 2, "doc": {}}
    chosen = {"task": "c", "target": 0} | asked
    written = {"task": "t", "target": ["yes", "no"], "arguments": [("p", {})], "doc": {}}
    model = Scripted(lambda *_: -4.0)
    bits = gold_bits_per_byte(model, {"c": choice, "t": text}, [chosen, written])
    assert bits == pytest.approx([3 / log(2) / 3, 4 / log(2) / 4])
    assert model.pairs == [("p", " yes")]
    for hidden in (-1, 2):
        assert gold_bits_per_byte(model, {"c": choice}, [chosen | {"target": hidden}]) is None


def answered(*choices):
    """A document whose choices have these log-likelihoods and errors."""
    likelihoods, errors = zip(*choices, strict=True)
    return {
        "task": "t",
        "doc": ["a"] * len(choices),
        "filtered_resps": [(likelihood, False) for likelihood in likelihoods],
        "mc_error": [*errors],
    }


def test_choices_exactly_two_errors_apart_are_decided_and_so_is_the_only_one():
    task = Mock(OUTPUT_TYPE="multiple_choice", doc_to_choice=lambda doc: doc)
    apart, nearer = answered((-1.0, 3.0), (-11.0, 4.0)), answered((-1.0, 3.0), (-10.9, 4.0))
    for metric in ("acc", "acc_norm", "acc_bytes"):
        assert undecided(metric, {"t": task}, [apart, answered((-1.0, 3.0))]) == 0
        assert undecided(metric, {"t": task}, [apart, nearer]) == 0.5
    assert undecided("brier_score", {"t": task}, [nearer]) is None
    assert undecided("acc", {"t": task}, []) is None
    task.OUTPUT_TYPE = "loglikelihood"
    assert undecided("acc", {"t": task}, [nearer]) is None
