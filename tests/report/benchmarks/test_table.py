"""Arms on benchmarks: what counts as better or worse than the plain baseline."""

from math import hypot, isnan, sqrt
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from pipelines.config.schema import Evaluation
from pipelines.report.analysis import Analysis
from pipelines.report.arms import Arm
from pipelines.report.benchmarks.table import Benchmarks, Score, benchmarks
from pipelines.report.verdicts import findings
from tests.support.mutants import rejects
from tests.support.results import arms_of, run, set_suite_run, task, write_experiment, write_suite

Tasks = dict[str, dict[str, Any]]
Documents = dict[str, list[float]]
PAIR = {"base": run("text"), "free": run("text", kappa=0.5)}
LOSS = {"metric": "bits_per_byte", "higher_is_better": False}


def arms_with(
    folder: Path, tasks: dict[str, Tasks], scores: dict[str, Documents] | None = None, **more: Any
) -> list[Arm]:
    """Arms of one run each, or of more where names end in _s<seed>; ``tasks`` by run."""
    runs = {}
    for name in tasks:
        arm, _, seed = name.partition("_s")
        runs[name] = PAIR[arm] | {"seed": int(seed or 0)}
    write_experiment(folder, runs, {})
    for name, found in tasks.items():
        write_suite(folder, name, found, (scores or {}).get(name), **more)
    return arms_of(folder)


def score(arms: list[Arm], key: str = "facts", arm: str = "free") -> Score:
    (found,) = benchmarks(arms)
    return found.final[key][arm]


VERDICTS = [  # errors of 0.02 each, so that two of their difference are 0.0566
    (0.36, 20.0, "better", {}),
    (0.35, 100 / 6, "no difference", {}),
    (0.25, -100 / 6, "no difference", {}),
    (0.24, -20.0, "worse", {}),
    (0.36, 20.0, "worse", LOSS),
    (0.24, -20.0, "better", LOSS),
    (0.25, -100 / 6, "no difference", LOSS),
]


@rejects(
    "report/benchmarks/table.py",
    "if not self.higher_is_better:",
    "if False:",
    "a higher loss called better",
)
@pytest.mark.parametrize(("value", "relative", "verdict", "changes"), VERDICTS)
def test_sign_is_of_the_score_and_verdict_of_the_metric(
    tmp_path: Path, value: float, relative: float, verdict: str, changes: dict[str, Any]
) -> None:
    tasks = {n: {"facts": task(v, **changes)} for n, v in (("base", 0.3), ("free", value))}
    found = score(arms_with(tmp_path, tasks))
    assert found.relative == pytest.approx(relative)
    assert (found.verdict, found.counts) == (verdict, verdict != "no difference")
    assert found.difference is not None
    assert found.difference.documents == pytest.approx(hypot(0.02, 0.02))


def test_the_baseline_itself_is_compared_with_nothing(tmp_path: Path) -> None:
    found = score(arms_with(tmp_path, {n: {"facts": task(0.3)} for n in PAIR}), arm="base")
    assert (found.difference, found.relative, found.verdict) == (None, None, "")


def test_a_baseline_of_zero_has_no_relative_gain(tmp_path: Path) -> None:
    found = score(
        arms_with(tmp_path, {"base": {"facts": task(0, 0)}, "free": {"facts": task(0.3)}})
    )
    assert (found.relative, found.verdict) == (None, "better")


def test_an_unknown_error_makes_no_claim(tmp_path: Path) -> None:
    tasks = {"base": {"facts": task(0.1)}, "free": {"facts": task(0.9, None)}}
    found = score(arms_with(tmp_path, tasks))
    assert (found.verdict, found.counts) == ("not known", False)
    assert isnan(found.value.se)


PAIRED = {  # 0.50 and 0.58: eight documents of a hundred are gained and none is lost
    "base": [1.0] * 50 + [0.0] * 50,
    "free": [1.0] * 58 + [0.0] * 42,
}


@rejects(
    "report/benchmarks/table.py",
    "return document_error(*(torch.tensor(each, dtype=torch.float64) for each in stored))",
    "return None",
    "benchmarks of the same documents compared as if those were different ones",
)
def test_documents_are_paired_where_their_scores_are_stored(tmp_path: Path) -> None:
    """0.08 ± 0.0707 unpaired; paired, ± the standard error of eight ones among a hundred."""
    tasks = {n: {"facts": task(sum(d) / 100, 0.05)} for n, d in PAIRED.items()}
    unpaired = score(arms_with(tmp_path / "unpaired", tasks))
    assert unpaired.verdict == "no difference"
    scores = {n: {"facts": d} for n, d in PAIRED.items()}
    found = score(arms_with(tmp_path / "paired", tasks, scores))
    assert found.difference is not None
    assert found.difference.documents == pytest.approx(stdev([1.0] * 8 + [0.0] * 92) / 10)
    assert (found.verdict, found.relative) == ("better", pytest.approx(16.0))


def test_paired_documents_are_those_of_the_means_over_seeds(tmp_path: Path) -> None:
    documents = {
        "base_s0": [1.0, 0.0, 0.0, 0.0],
        "base_s1": [0.0, 0.0, 0.0, 1.0],
        "free_s0": [1.0, 1.0, 0.0, 0.0],
        "free_s1": [1.0, 0.0, 1.0, 0.0],
    }
    tasks = {n: {"facts": task(sum(d) / 4, documents=4)} for n, d in documents.items()}
    found = score(arms_with(tmp_path, tasks, {n: {"facts": d} for n, d in documents.items()}))
    assert found.difference is not None
    assert found.difference.documents == pytest.approx(stdev([0.5, 0.5, 0.5, -0.5]) / 2)


def test_scores_of_other_documents_are_not_paired(tmp_path: Path) -> None:
    tasks = {n: {"facts": task(0.5, 0.05)} for n in PAIR}
    scores = {"base": {"facts": [0.5] * 100}, "free": {"facts": [0.5] * 99}}
    found = score(arms_with(tmp_path, tasks, scores))
    assert found.difference is not None
    assert found.difference.documents == pytest.approx(0.05 * sqrt(2))


@rejects(
    "report/benchmarks/table.py",
    "means = {each.name: [value.mean for value in values[each.name]] for each in pooled}",
    "means = {each.name: [over_seeds(values[each.name]).mean] for each in pooled}",
    "seeds left out of the verdict on a benchmark",
)
def test_seeds_may_make_a_difference_none(tmp_path: Path) -> None:
    """Documents alone would tell 0.30 from 0.40; the seeds of `free` lie 0.2 apart."""
    values = {"base_s0": 0.30, "base_s1": 0.30, "free_s0": 0.30, "free_s1": 0.50}
    found = score(arms_with(tmp_path, {n: {"facts": task(v, 0.001)} for n, v in values.items()}))
    assert (found.value.mean, found.value.se) == pytest.approx((0.4, 0.001))
    assert found.value.spread == pytest.approx(0.2 / sqrt(2))
    assert found.relative == pytest.approx(100 / 3)
    assert found.verdict == "no difference"
    alone = {n: {"facts": task(values[n + "_s0"] + 0.1 * (n == "free"), 0.001)} for n in PAIR}
    assert score(arms_with(tmp_path / "alone", alone)).verdict == "better"


@pytest.mark.parametrize("other", ["task", "metric", "shots", "version", "documents"])
def test_what_was_scored_in_another_way_is_not_compared(tmp_path: Path, other: str) -> None:
    changed = {other: 7 if other in ("shots", "documents") else "another"}
    tasks = {"base": {"facts": task(0.3)}, "free": {"facts": task(0.9, **changed)}}
    (found,) = benchmarks(arms_with(tmp_path, tasks))
    assert list(found.final["facts"]) == ["base"]


def test_an_arm_without_a_suite_is_left_out_and_one_without_a_task_has_a_gap(
    tmp_path: Path,
) -> None:
    arms = arms_with(tmp_path, {"base": {"facts": task(0.3)}, "free": {}})
    assert list(benchmarks(arms)[0].final["facts"]) == ["base"]
    set_suite_run(tmp_path, "free", False)  # its files may still be there
    assert [arm.name for arm in benchmarks(arms_of(tmp_path))[0].arms] == ["base"]
    set_suite_run(tmp_path, "base", False)
    assert benchmarks(arms_of(tmp_path)) == []


def with_budgets(values: dict[int, float], late: int, se: float = 0.02) -> dict[str, Any]:
    budgets = [
        {"tokens": t, "listed": t, "annealed": t == 6500,
         "tasks": {"facts": {"value": v, "se": se}}} for t, v in values.items()
    ]  # fmt: skip
    mean = sum(list(values.values())[-late:]) / late
    return {"budgets": budgets, "last_third": {"n": late, "tasks": {"facts": mean}}}


def late(
    folder: Path, base: dict[int, float], free: dict[int, float], n: int = 2, se: float = 0.02
) -> Benchmarks:
    write_experiment(folder, PAIR, {})
    for name, values in (("base", base), ("free", free)):
        write_suite(folder, name, {"facts": task(0.3)}, **with_budgets(values, n, se))
    (found,) = benchmarks(arms_of(folder))
    return found


BASE = {2000: 0.0, 5000: 0.2, 6500: 0.4}


def test_the_last_third_is_a_mean_over_its_budgets(tmp_path: Path) -> None:
    found = late(tmp_path, BASE, {2000: 0.9, 5000: 0.3, 6500: 0.42})
    cell = found.last_third["facts"]["free"]
    assert (cell.value.mean, cell.value.se, cell.relative) == pytest.approx((0.36, 0.02, 20.0))
    assert cell.verdict == "better"
    assert len(found.compared(late=True)) == len(found.compared()) == 1


def test_errors_over_documents_count_in_the_last_third(tmp_path: Path) -> None:
    """Seeds of small models may have the very same score; that alone is no evidence."""
    found = late(tmp_path, BASE, {2000: 0.9, 5000: 0.3, 6500: 0.42}, se=0.05)
    assert found.last_third["facts"]["free"].verdict == "no difference"


def test_last_thirds_of_unlike_budgets_are_not_compared(tmp_path: Path) -> None:
    found = late(tmp_path, BASE, {2000: 0.9, 5500: 0.9, 6500: 0.9})
    assert found.last_third["facts"]["free"].difference is None


def test_the_final_model_alone_is_no_last_third(tmp_path: Path) -> None:
    assert late(tmp_path, BASE, BASE, n=1).last_third == {}


def test_verdicts_are_in_the_findings_and_counted(tmp_path: Path) -> None:
    values = {"facts": (0.3, 0.9), "race_high": (0.3, 0.1), "mbpp": (0.3, 0.31), "em": (0.2, 0.2)}
    tasks = {
        name: {key: task(pair[i]) for key, pair in values.items()} for i, name in enumerate(PAIR)
    }
    analysis = Analysis(arms_with(tmp_path, tasks), Evaluation())
    assert findings(analysis)["text"][-1] == (
        "Benchmarks, set against base: free: better on 1 (facts), worse on 1 (race.high), no "
        "difference on 2, of 4."
    )
    assert len(analysis.comparisons) == 1
    assert analysis.comparisons_made == 5
