"""Arms on benchmarks: what counts as better or worse than the plain baseline."""

from math import hypot, isnan, sqrt
from statistics import stdev

import pytest

from ftmodel.analysis.differences import margin
from pipelines.compare.arms import Arm
from pipelines.config.schema import EvaluationConfig
from pipelines.report.analysis import Analysis
from pipelines.report.benchmarks import benchmarks, family_benchmarks
from pipelines.report.sections.benchmarks import score_cell
from tests.support.mutants import rejects
from tests.support.results import arms_of, run, set_suite_run, task, write_experiment, write_suite

PAIR = {"base": run("text"), "free": run("text", kappa=0.5)}
LOSS = {"metric": "bits_per_byte", "higher_is_better": False}


def arms_with(folder, tasks, scores=None):
    """Arms of one run each, or of more where names end in _s<seed>; ``tasks`` by run."""
    runs = {}
    for name in tasks:
        arm, _, seed = name.partition("_s")
        runs[name] = PAIR[arm] | {"seed": int(seed or 0)}
    write_experiment(folder, runs, {})
    for name, found in tasks.items():
        write_suite(folder, name, found, (scores or {}).get(name))
    return arms_of(folder)


def scored(folder, tasks, scores=None):
    """What the arms have on each task; ``tasks`` and the documents' ``scores`` by both."""

    def by_run(by_task):
        runs = {run for each in by_task.values() for run in each}
        return {run: {k: each[run] for k, each in by_task.items()} for run in sorted(runs)}

    (found,) = benchmarks(arms_with(folder, by_run(tasks), by_run(scores or {})))
    return found.final


VERDICTS = [  # errors of 0.02 each, so that two of their difference are 0.0566
    (0.36, 20.0, "better", "worse"),
    (0.35, 100 / 6, "not decided", "not decided"),
    (0.25, -100 / 6, "not decided", "not decided"),
    (0.24, -20.0, "worse", "better"),
]


def test_sign_is_of_the_score_and_verdict_of_the_metric(tmp_path):
    tasks = {
        f"{name}_{value}": {"base": task(0.3, **changes), "free": task(value, **changes)}
        for name, changes in (("facts", {}), ("loss", LOSS))
        for value, *_ in VERDICTS
    }
    final = scored(tmp_path, tasks)
    for value, relative, *verdicts in VERDICTS:
        for name, verdict in zip(("facts", "loss"), verdicts, strict=True):
            found = final[f"{name}_{value}"]["free"]
            assert found.relative == pytest.approx(relative)
            assert (found.verdict, found.counts) == (verdict, False)  # of one seed
            error = hypot(0.02, 0.02)
            assert found.difference.documents == pytest.approx(error)
            assert found.difference.threshold == pytest.approx(margin(error, 99))
    base = final["facts_0.36"]["base"]
    assert (base.difference, base.relative, base.verdict) == (None, None, "")


def test_a_baseline_of_zero_has_no_relative_gain_and_an_unknown_error_makes_no_claim(tmp_path):
    zero = {"base": task(0, 0), "free": task(0.3)}
    unknown = {"base": task(0.1), "free": task(0.9, None)}
    final = scored(tmp_path, {"zero": zero, "unknown": unknown})
    assert (final["zero"]["free"].relative, final["zero"]["free"].verdict) == (None, "better")
    found = final["unknown"]["free"]
    assert (found.verdict, found.counts) == ("not known", False) and isnan(found.value.se)


def test_documents_are_paired_where_their_scores_are_stored(tmp_path):
    """0.08 ± 0.0707 unpaired; paired, ± the standard error of eight ones among a hundred."""
    pair = {"base": task(0.50, 0.05), "free": task(0.58, 0.05)}
    base, free = [1.0] * 50 + [0.0] * 50, [1.0] * 58 + [0.0] * 42  # eight gained, none lost
    scores = {"paired": {"base": base, "free": free}, "other": {"base": base, "free": free[1:]}}
    final = scored(tmp_path, {"paired": pair, "other": pair}, scores)
    found, other = final["paired"]["free"], final["other"]["free"]
    assert found.difference.documents == pytest.approx(stdev([1.0] * 8 + [0.0] * 92) / 10)
    assert (found.verdict, found.relative) == ("better", pytest.approx(16.0))
    assert other.difference.documents == pytest.approx(0.05 * sqrt(2))  # of other documents
    assert other.verdict == "not decided"


@rejects("benchmarks.rate_interval: «passes or (→(»value", "± of a rate of few documents")
def test_a_rate_has_wilsons_interval_and_never_an_error_of_0(tmp_path):
    few = {"base": task(0, 0, documents=4), "free": task(0.5, 0.29, documents=4)}
    loss = {"base": task(2.5, 0.1, documents=4, **LOSS), "free": task(2, 0.1, documents=4, **LOSS)}
    scores = {"few": {"base": [0.0] * 4, "free": [1.0, 1.0, 0.0, 0.0]}}
    final = scored(tmp_path, {"few": few, "unstored": few, "loss": loss}, scores)
    found = {key: {n: str(score_cell(s)) for n, s in by.items()} for key, by in final.items()}
    assert found["few"]["base"] == "0.000 (0.000 to 0.490)"
    assert found["few"]["free"].startswith("0.500 (0.150 to 0.850)")
    assert found["unstored"]["base"] == found["few"]["base"]
    assert found["unstored"]["free"].startswith("0.500 ± 0.290")
    assert found["loss"]["base"] == "2.500 ± 0.100"


@rejects("benchmarks.score_error: if seeds[0].clusters«→ and False»:", "clusters as documents")
@rejects("benchmarks.rate_interval: wilson(value.mean, «task.clusters or →»", "too many clusters")
def test_documents_of_a_cluster_count_as_one(tmp_path):
    """Eight documents of two clusters: what each model makes of a cluster it makes of all of it."""
    base, free = [0.0, 1.0] * 4, [1.0] * 8
    counted = {"documents": 8, "clusters": 2}
    pair = {"base": task(0.5, 0.5, **counted), "free": task(1.0, 0.0, **counted)}
    stored = {"base": base, "free": free}
    scores = {"few": stored, "few/cluster": dict.fromkeys(stored, [0.0, 1.0] * 4)}
    final = scored(tmp_path, {"few": pair}, scores)
    found = final["few"]["free"].difference
    assert found.documents == pytest.approx(stdev([1.0, 0.0]) / sqrt(2))
    assert (found.margin, found.verdict) == (pytest.approx(margin(0.5, 1)), "not decided")
    alone = {name: [float(i) for i in range(8)] for name in stored}
    five = {"base": [0.0] * 8, "free": [1.0] * 5 + [0.0] * 3}  # McNemar needs six of six
    pair = {
        "base": task(0, 0, documents=8, clusters=8),
        "free": task(0.625, 0.18, documents=8, clusters=8),
    }
    strict = scored(tmp_path / "strict", {"few": pair}, {"few": five, "few/cluster": alone})
    assert strict["few"]["free"].difference.margin == pytest.approx(6 / 8)
    cells = [str(score_cell(each)) for each in final["few"].values()]
    assert cells[0] == "0.500 ± 0.500"
    assert cells[1].startswith("1.000 (0.342 to 1.000)")  # Wilson's, of two


@rejects("benchmarks.score_cell: p_value «<=→>» adjusted_level", "stars of all but the survivors")
def test_a_star_marks_a_score_whose_difference_survives_all_tests_of_the_report(tmp_path):
    """Of one of two tasks, p = 0.0002; in the other it is 0.02, beside eleven without a gain."""
    values = {"base_s0": 0.30, "base_s1": 0.31, "base_s2": 0.32}

    def gained(gain):
        free = {f"free_s{i}": 0.30 + 0.01 * i + gain for i in range(3)}
        return {name: task(value, 0.001) for name, value in {**values, **free}.items()}

    by_task = {"clear": gained(0.1), "faint": gained(0.029)}
    by_task |= {f"same_{i}": gained(0.0) for i in range(11)}
    runs = {name: {k: each[name] for k, each in by_task.items()} for name in by_task["clear"]}
    made = Analysis(arms_with(tmp_path, runs), EvaluationConfig())
    (found,) = made.benchmarks
    cells = {
        key: str(score_cell(by_arm["free"], found.adjusted_level).verdict)
        for key, by_arm in found.final.items()
    }
    assert cells["clear"].endswith("better ★**") and cells["faint"].endswith("% better**")
    assert len(made.tested) == 14  # the bounds of the two arms, too


@rejects(
    "comparison.from_plain: [«→sum(»value.mean for value in each«→) / len(each)»", "seeds left out"
)
def test_seeds_may_make_a_difference_none(tmp_path):
    """Documents alone would tell 0.30 from 0.40; the seeds of `free` lie 0.2 apart. Documents are
    paired by their means over seeds.
    """
    values = {"base_s0": 0.30, "base_s1": 0.30, "free_s0": 0.30, "free_s1": 0.50}
    documents = {
        "base_s0": [1.0, 0.0, 0.0, 0.0],
        "base_s1": [0.0, 0.0, 0.0, 1.0],
        "free_s0": [1.0, 1.0, 0.0, 0.0],
        "free_s1": [1.0, 0.0, 1.0, 0.0],
    }
    tasks = {
        "facts": {name: task(value, 0.001) for name, value in values.items()},
        "paired": {name: task(sum(each) / 4, documents=4) for name, each in documents.items()},
    }
    final = scored(tmp_path, tasks, {"paired": documents})
    found = final["facts"]["free"]
    assert (found.value.mean, found.value.se) == pytest.approx((0.4, 0.001))
    assert found.value.spread == pytest.approx(0.2 / sqrt(2))
    assert found.relative == pytest.approx(100 / 3)
    assert found.verdict == "not decided"
    paired = final["paired"]["free"].difference.documents
    assert paired == pytest.approx(stdev([0.5, 0.5, 0.5, -0.5]) / 2)
    alone = {"facts": {"base": task(0.3, 0.001), "free": task(0.4, 0.001)}}
    assert scored(tmp_path / "alone", alone)["facts"]["free"].verdict == "better"


@rejects("benchmarks.scored_alike: in CONDITIONS«→[:5]»", "scores on different data compared")
def test_what_was_scored_in_another_way_is_not_compared(tmp_path):
    others = {"task": "x", "metric": "x", "shots": 7, "version": "x", "documents": 7}
    others |= {"sources": ["x"]}
    tasks = {k: {"base": task(0.3), "free": task(0.9, **{k: x})} for k, x in others.items()}
    final = scored(tmp_path, tasks)
    assert {key: list(final[key]) for key in others} == {key: ["base"] for key in others}


BASE, FREE = {2000: 0.0, 4334: 0.2, 6500: 0.4}, {2000: 0.9, 4334: 0.3, 6500: 0.42}


def late(folder, free, base=BASE, se=0.02, first_se=None, scores=None):
    """With scores at token budgets; at None the task was skipped."""
    write_experiment(folder, PAIR, {})
    errors = {2000: se, 4334: first_se or se}
    for name, values in (("base", base), ("free", free)):
        budgets = [
            {"tokens": n, "listed": n, "annealed": n == 6500,
             "tasks": {"facts": {"value": v, "se": errors.get(n, se)}} if v is not None else {}}
            for n, v in values.items()
        ]  # fmt: skip
        write_suite(folder, name, {"facts": task(0.3)}, (scores or {}).get(name), budgets=budgets)
    (found,) = benchmarks(arms_of(folder))
    return found


def test_the_last_third_is_a_mean_over_its_budgets(tmp_path):
    found = late(tmp_path / "a", FREE)
    cell = found.last_third["facts"]["free"]
    assert (cell.value.mean, cell.value.se, cell.relative) == pytest.approx((0.36, 0.02, 20.0))
    assert cell.verdict == "better"
    assert len(found.compared) == 2  # the final scores, and those of the last third
    whole = Analysis(arms_of(tmp_path / "a"), EvaluationConfig())
    assert len(whole.tested) == 3  # with that of the final bounds
    # seeds of small models may have the very same score; that alone is no evidence
    wide = late(tmp_path / "b", FREE, se=0.05).last_third["facts"]["free"]
    assert wide.verdict == "not decided"


@rejects(
    "benchmarks.late_scores: in budgets«→[-1:]»]), []", "the last third judged by its last budget"
)
def test_the_last_third_is_judged_by_its_own_errors(tmp_path):
    """Not by those of the final documents, whose scores are stored; means over its two budgets."""
    scores = {"base": {"facts": [0.0, 1.0] * 50}, "free": {"facts": [0.001, 1.0] * 50}}
    cell = late(tmp_path, FREE, se=0.02, first_se=0.06, scores=scores).last_third["facts"]["free"]
    assert (cell.value.mean, cell.value.se) == pytest.approx((0.36, 0.04))
    assert cell.difference.documents == pytest.approx(hypot(0.04, 0.04))
    assert cell.verdict == "not decided"


@rejects(
    "benchmarks.measured: «all→any»(scored_alike", "an arm whose first seed alone was scored alike"
)
def test_an_arm_is_compared_if_all_its_seeds_were_scored_alike(tmp_path):
    names = ("base_s0", "free_s0", "free_s1")
    tasks = {name: {"sums": task(0.4), "both": task(0.4)} for name in names}
    tasks["free_s1"]["sums"] = task(0.4, shots=5)
    (found,) = benchmarks(arms_with(tmp_path, tasks))
    alike = {key: list(by_arm) for key, by_arm in found.final.items()}
    assert alike == {"sums": ["base"], "both": ["base", "free"]}
    write_suite(tmp_path, "free_s1", {"both": task(0.4)})
    (found,) = benchmarks(arms_of(tmp_path))
    assert list(found.final["sums"]) == ["base"]
    set_suite_run(tmp_path, "free_s1", False)  # its files may still be there
    assert [arm.name for arm in benchmarks(arms_of(tmp_path))[0].arms] == ["base"]
    set_suite_run(tmp_path, "base_s0", False)
    assert benchmarks(arms_of(tmp_path)) == []


def test_last_thirds_of_unlike_budgets_or_of_one_are_not_compared(tmp_path):
    found = late(tmp_path / "a", {2000: 0.9, 5500: 0.9, 6500: 0.9})
    assert found.last_third["facts"]["free"].difference is None
    assert len(found.compared) == 1
    base, free = late(tmp_path / "d", FREE).arms
    mixed = [Arm(arm.name, [arm.first, found.arms[1].first]) for arm in (base, free)]
    for control in (base, mixed[0]):  # the first seeds alone have the same budgets
        assert family_benchmarks([control, mixed[1]]).last_third["facts"]["free"].difference is None
    early = {4333: 0.2, 6500: 0.4}  # the last third begins after it
    assert late(tmp_path / "b", early, base=early).last_third == {}
    missing = late(tmp_path / "c", {5000: None, 6000: 0.4, 6500: 0.4}).last_third
    assert list(missing["facts"]) == ["base"]  # of `free` not all of them have the task
