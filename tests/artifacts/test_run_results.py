"""Results of runs are read whole, and only if they are of what params.yaml describes."""

import json
import shutil
from functools import reduce
from operator import getitem

import pytest

from pipelines.artifacts.results import Details, Estimate, EvaluationResult, Figures
from pipelines.artifacts.run_results import RunResults, fraction, read_finished
from pipelines.config.schema import Run
from pipelines.host.errors import UserError
from tests.support.mutants import rejects
from tests.support.results import (
    PAIR,
    arms_of,
    in_folder,
    loaded,
    run,
    task,
    write_experiment,
    write_suite,
)


def test_missing_result_names_the_stage(tmp_path):
    write_experiment(tmp_path, PAIR, {})
    write_suite(tmp_path, "free", {"facts": task(0.3)})
    for stage, files in {
        "evaluate": ("evaluation.json", "details.json"),
        "train": ("curve.csv",),
        "suite": ("suite.json", "suite_scores.json"),
    }.items():
        for path in (tmp_path / "results/tiny/free" / file for file in files):
            path.rename(tmp_path / "away")
            with pytest.raises(UserError, match=f"{path.name} is missing.*repro {stage}@free"):
                arms_of(tmp_path)
            with in_folder(tmp_path):
                assert [each.name for each in read_finished(loaded(tmp_path))] == ["base"]
            (tmp_path / "away").rename(path)


@rejects(
    "run_results.check_made: made.settings«→ or settings»", "results without settings believed"
)
@pytest.mark.parametrize("entry", ["manifest", "settings"])
def test_results_that_do_not_say_what_they_are_of_are_refused(tmp_path, entry):
    write_experiment(tmp_path, PAIR, {})
    path = tmp_path / "results/tiny/free/details.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({key: content[key] for key in content if key != entry}))
    with pytest.raises(UserError, match=r"details\.json: not .*--single-item evaluate@free"):
        arms_of(tmp_path)


@rejects("run_results.check_made: «check_manifest→»(", "results of another model")
@pytest.mark.parametrize(("stage", "file"), [("evaluate", "details"), ("suite", "suite")])
def test_results_of_another_model_other_data_or_other_settings_are_refused(tmp_path, stage, file):
    write_experiment(tmp_path, {"base": run("text"), "free": run("text", kappa=1.0)}, {})
    write_suite(tmp_path, "free", {"facts": task(0.3)})
    path = tmp_path / f"results/tiny/free/{file}.json"
    content = path.read_text()
    for place, words in (
        ("manifest data_hash", "of other data than data/tokens/text holds now; run `dvc repro`"),
        ("manifest run seed", "not the run .*: runs.free.seed was 7 and is 0 now"),
        ("manifest architecture d_model", r"models\.small\.architecture\.d_model was 7"),
        ("manifest parts settings", "optim or compute.precision was another"),
        ("settings seed", f"not measured as .*seed was 7 and is 0 now; .*{stage}@free"),
    ):
        *way, last = place.split()
        changed = json.loads(content)
        node = reduce(getitem, way, changed)
        node[last] = "7" if isinstance(node[last], str) else 7
        path.write_text(json.dumps(changed))
        with pytest.raises(UserError, match=words):
            arms_of(tmp_path)
    path.write_text(content)
    shutil.rmtree(tmp_path / "data")  # as in a clone that has the results alone
    assert arms_of(tmp_path)


@pytest.mark.parametrize(
    ("kappa", "text"),
    [(1 / 1024, "1/1024"), (1 / 1025, "0.00097561"), (0.3, "3/10"), (8.0, "8")],
)
def test_fractions(kappa: float, text: str) -> None:
    assert fraction(kappa) == text


@rejects(
    "RunResults.baseline: «→not »self.run.kappa_bits «is None→»", "κ = 0 reported as a baseline"
)
@pytest.mark.parametrize(("kappa", "text"), [(None, "–"), (0.0, "0"), (0.5, "1/2")])
def test_a_run_without_a_threshold_is_a_baseline_and_one_of_0_is_not(
    kappa: float | None, text: str
) -> None:
    evaluation, details = EvaluationResult(1, 1, 1.0, Figures()), Details([], [], [])
    run = RunResults("a", Run(kappa_bits=kappa), 3, "target", evaluation, details, [])
    assert (run.baseline, run.kappa) == (kappa is None, text)


def test_a_run_is_compared_by_the_byte_where_its_data_have_bytes() -> None:
    for source, per_byte, unit in (
        ("target", None, "bits_per_token"),
        ("text", Figures(nll=Estimate(0.5, 0.1)), "bits_per_byte"),
    ):
        evaluation = EvaluationResult(1, 1, 1.0, Figures(nll=Estimate(2.0, 0.1)), per_byte)
        run = RunResults("a", Run(), 3, source, evaluation, Details([], [], []), [])
        assert (run.unit, run.on_target) == (unit, source == "target")
        assert run.figures("bits_per_byte") == (per_byte or Figures())
        assert run.bound(unit).mean == (0.5 if per_byte else 2.0)
