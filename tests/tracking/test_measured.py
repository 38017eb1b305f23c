"""What MLflow shows of an evaluation and a suite, as points with their models and datasets."""

from dataclasses import replace

import pytest

from ftmodel.analysis.calibration import Calibration
from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.result_files import write_json
from pipelines.artifacts.results import BudgetFigures, Details, Estimate, EvaluationResult, Figures
from pipelines.tracking import measured
from pipelines.tracking.journal import Journal, Tracked
from pipelines.tracking.measured import (
    add_arms,
    add_evaluation,
    add_suite,
    evaluation_tags,
    read_tracked,
)
from tests.support.mutants import rejects
from tests.tracking.conftest import suite_results

PARAMS = {"data": "d", "data_hash": "h", "seed": "1"}
BUDGETS = [
    BudgetFigures(tokens, tokens + 2, True, Figures(nll=Estimate(nll, 0.1)))
    for tokens, nll in ((10, 0.9), (20, 0.7), (30, 0.5))
]
EVALUATION = EvaluationResult(
    1, 1, 1.0, Figures(nll=Estimate(0.5, 0.1)), budgets=BUDGETS, trained_tokens=30, parameters=7
)
SUITE = suite_results(
    Manifest("e", "name", {}, {}, 11, "d", "s", tracking_key="key"),
    *((10, 12, 0.2), (20, 22, 0.3), (30, 32, 0.5)),
)


def a_run():
    run = Tracked("e", "name", "key", params=PARAMS)
    run.add("curve_by_tokens", {"ce_nats": 1.0}, 30, 1)
    return run


def points(run):
    return [(p.key, p.value, p.step, p.origin.model) for p in run.points if p.origin]


def test_arms_are_compared_by_their_final_bounds_over_seeds():
    runs = []
    for arm, seed, nll in (("a", 0, 1.0), ("a", 1, 2.0), ("b", 0, 3.0)):
        run = replace(a_run(), tags={"arm": arm, "kind": ""}, points=[])
        figures = Figures(nll=Estimate(nll, 0.1))
        add_evaluation(run, replace(EVALUATION, bits_per_token=figures), {}, seed)
        runs.append(run)
    parent = Tracked("e", "e", "key")
    add_arms(parent, [*runs, a_run()])
    found = {p.key.removeprefix("over_seeds/"): (p.value, p.step, p.time) for p in parent.points}
    assert found == {
        "a_bits_per_token": (1.5, 0, 1),
        "a_bits_per_token_spread": (pytest.approx(0.5**0.5), 0, 1),
        "b_bits_per_token": (3.0, 0, 0),
    }


def test_figures_of_each_budget_belong_to_its_model_on_the_held_out_split():
    run = a_run()
    add_evaluation(run, EVALUATION, {"bound_bits_per_token": 0.5, "converged": 1.0, "kl": 2.0}, 5)
    models = ("name_at_12", "name_at_22", "name", "name", "name")
    keys = ("bound/bits_per_token",) * 3 + ("eval/kl", "eval/bound_error_bits_per_token")
    expected = zip(keys, (0.9, 0.7, 0.5, 2.0, 0.1), (10, 20, 30, 30, 30), models, strict=True)
    assert points(run) == [*expected]
    assert {p.origin[1:] for p in run.points if p.origin} == {("d_validation", "h")}
    assert run.params == PARAMS | {"parameters": "7", "trained_tokens": "30"}
    named = {model["name"]: model["params"] for model in run.models}
    wanted = {"name_at_12": "10", "name_at_22": "20", "name": "30"}
    assert named == {
        name: {"seed": "1", "data": "d", "tokens": tokens} for name, tokens in wanted.items()
    }


@rejects("measured.add_evaluation: «gap.se→gap.mean»", "a gap in place of its error")
def test_the_gap_between_both_bounds_of_its_own_text_is_logged_with_its_error():
    run = a_run()
    add_evaluation(run, replace(EVALUATION, own_text_gap=Estimate(0.25, 0.03)), {}, 5)
    found = {p.key: (p.value, p.step) for p in run.points if "own_text" in p.key}
    names = ("own_text_gap_bits_per_token", "own_text_gap_error_bits_per_token")
    assert found == {f"eval/{name}": (x, 30) for name, x in zip(names, (0.25, 0.03), strict=True)}


def test_scores_of_each_budget_belong_to_its_model_and_the_benchmark():
    run = a_run()
    add_suite(run, SUITE, 5)
    models = ("name_at_12", "name_at_22", "name")
    expected = zip(("suite/words",) * 3, (0.2, 0.3, 0.5), (10, 20, 30), models, strict=True)
    assert points(run) == [*expected]
    assert run.tags["suite.words_se"] == '{"10": 0.1, "20": 0.1, "30": 0.1}'
    assert [each["name"] for each in run.inputs] == ["words"]
    assert measured.benchmark("words", SUITE)["source"] == '{"uri": "words"}'
    assert measured.benchmark("unscored", SUITE)["source"] == '{"uri": "unscored"}'


@pytest.mark.parametrize(("converged", "tag"), [(True, "yes"), (False, "no")])
def test_whether_particles_were_enough_is_a_tag_and_what_is_too_long_for_one_is_none(
    monkeypatch, converged, tag
):
    calibration = Calibration(8, 0.0, converged, 0.1, 0.1, {}, {})
    tags = evaluation_tags(replace(EVALUATION, calibration=calibration))
    assert tags["eval.converged"] == tag
    assert {"eval.at_10", "eval.at_20"} <= tags.keys() and "eval.at_30" not in tags
    longest = max(len(text) for key, text in tags.items() if key.startswith("eval.at_"))
    monkeypatch.setattr(measured, "MAX_TAG", longest)
    assert "eval.at_10" in evaluation_tags(EVALUATION)
    monkeypatch.setattr(measured, "MAX_TAG", longest - 1)
    assert "eval.at_10" not in evaluation_tags(EVALUATION)


def test_results_on_disk_count_if_they_are_of_this_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    journal = Journal(
        tmp_path / "journal", key="key", experiment="e", run_name="name", params=PARAMS
    )
    journal.add_row({"step": 1, "tokens": 30, "ce_nats": 1.0})
    assert points(read_tracked(journal.path)) == []
    folder = tmp_path / "results/e/name"
    folder.mkdir(parents=True)
    details = Details([], [], [], manifest=SUITE.manifest)
    contents = {"evaluation.json": EVALUATION, "metrics.json": {}, "details.json": details}
    for name, content in {**contents, "suite.json": SUITE}.items():
        write_json(folder / name, content)
    run = read_tracked(journal.path)
    assert len(points(run)) == 7
    assert [path.name for path in run.files] == ["details.json", "suite.json", "suite_samples"]
    others = replace(SUITE.manifest, tracking_key="another")
    write_json(folder / "details.json", Details([], [], [], manifest=others))
    write_json(folder / "suite.json", replace(SUITE, manifest=others))
    assert points(read_tracked(journal.path)) == read_tracked(journal.path).files == []
