"""What an experiment asks and expects: whether it came true, and was written before the runs."""

from math import nan
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.report.expectation import Outcome, statement
from pipelines.report.verdicts import find
from tests.support.mutants import rejects
from tests.support.results import (
    analysis_of,
    change,
    make_report,
    run,
    seeded,
    with_seeds,
    write_experiment,
)

QUESTION = "Does z help on <b>text</b>?"
ARMS = {
    "base": run("text"),
    "plus": run("text", extra_blocks=1),
    "alike": run("text", kappa=0.25),
    "better": run("text", kappa=0.5),
    "worse": run("text", kappa=3.0),
}
BOUNDS = {"better": 0.3, "worse": 0.9}  # bits per token; of the others 0.5
FIRST = ("index.html", "report.md", "summary.txt")
PLAIN = {"arm": "better", "than": "base", "bound": "lower", "because": None}


def expect(arm: str, bound: str, than: str = "base", because: str | None = None) -> dict[str, Any]:
    return {"arm": arm, "than": than, "bound": bound, "because": because}


def state(folder: Path, question: str | None = None, expectation: Any = ()) -> None:
    """What the experiment says now."""
    path = folder / "params.yaml"
    params = yaml.safe_load(path.read_text())
    params |= {"question": question, "expectation": list(expectation)}
    path.write_text(yaml.safe_dump(params, sort_keys=False))


def record(folder: Path, run_name: str, **stated: Any) -> None:
    """What it said when a run was trained."""
    change(folder, run_name, "details.json", training={"preregistration": stated})


def experiment(folder: Path, se: float = 0.0001) -> Path:
    """Results of ARMS, with two seeds that differ by a little."""
    runs = with_seeds(ARMS)
    bounds = {name: BOUNDS.get(name[:-3], 0.5) + 0.001 * int(name[-1]) for name in runs}
    return write_experiment(folder, runs, bounds, se=se)


def outcome(folder: Path, expectation: dict[str, Any]) -> Outcome:
    state(folder, expectation=[expectation])
    stated = statement(None, analysis_of(folder))
    assert stated
    return stated.outcomes[0]


@rejects(
    "report/arms.py",
    "return max(figures.filtering.half_variance or 0.0, below)",
    "return figures.filtering.half_variance or 0.0",
    "a bound that another of the same model lies below, called tight",
)
@rejects(
    "report/comparison.py",
    "least = self.mean - self.arm.looseness(self.unit)",
    "least = self.mean",
    "a loose bound that is higher taken for a worse model",
)
@pytest.mark.parametrize("bound", ["lower", "higher"])
@pytest.mark.parametrize("loose", [{"half_variance": 0.3}, {"prior": -0.3}])
def test_a_higher_bound_that_is_not_tight_decides_nothing(
    tmp_path: Path, bound: str, loose: dict[str, float]
) -> None:
    runs = {"base": run(), "free": run(kappa=1.0)}
    write_experiment(tmp_path, runs, {"free": 0.7}, se=0.001, others={"free": loose})
    undecided = outcome(tmp_path, expect("free", bound))
    assert undecided.comparison.verdict == "higher" and undecided.verdict == "not decided"
    assert "but a bound is not tight" in (make_report(tmp_path) / "report.md").read_text()


@rejects(
    "report/comparison.py",
    "most = self.mean + self.other.looseness(self.unit)",
    "most = self.mean",
    "a gain over a design whose bound is loose",
)
@pytest.mark.parametrize(
    ("arm", "loose", "verdict", "decided"),
    [
        (0.5, {"free": 0.3}, "lower", False),  # the other one's may be 0.2 lower
        (0.5, {"linear": 0.3}, "lower", True),
        (0.9, {"free": 0.3}, "higher", True),
        (0.7, {"linear": 0.3}, "no difference", False),
        (0.7, {"free": 0.3}, "no difference", False),
        (0.7, {}, "no difference", True),
    ],
)
def test_where_designs_are_compared_either_bound_may_be_loose(
    tmp_path: Path, arm: float, loose: dict[str, float], verdict: str, decided: bool
) -> None:
    runs = {"free": run(kappa=1.0), "linear": run(kappa=1.0, latent={"map": "linear"})}
    others = {f"{name}_s{i}": {"half_variance": by} for name, by in loose.items() for i in (0, 1)}
    bounds = {"free": [0.699, 0.701], "linear": [arm - 0.001, arm + 0.001]}
    seeded(tmp_path, runs, bounds, others=others)
    expectation = expect("linear", verdict.replace(" ", "_"))
    reached = outcome(tmp_path, expectation | {"than": "free"})
    assert reached.comparison.verdict == verdict
    shown = "not contradicted" if verdict == "no difference" else "came true"
    assert reached.verdict == (shown if decided else "not decided")


@pytest.mark.parametrize("bound", ["lower", "higher", "no_difference"])
@pytest.mark.parametrize(
    ("arm", "measured"), [("better", "lower"), ("worse", "higher"), ("alike", "no_difference")]
)
def test_an_expectation_comes_true_by_the_rule_for_differences(
    tmp_path: Path, arm: str, bound: str, measured: str
) -> None:
    experiment(tmp_path)
    if measured == "no_difference":
        verdict = "not contradicted" if bound == measured else "not shown"
    else:
        verdict = "came true" if bound == measured else "did not come true"
    assert outcome(tmp_path, expect(arm, bound)).verdict == verdict


@pytest.mark.parametrize("bound", ["lower", "higher", "no_difference"])
def test_where_the_error_is_not_known_nothing_is_decided(tmp_path: Path, bound: str) -> None:
    experiment(tmp_path, se=nan)
    assert outcome(tmp_path, expect("better", bound)).verdict == "not decided"
    assert "Not decided: the difference is not known to count" in first_lines(tmp_path)


def test_the_figures_are_those_of_the_rest_of_the_report(tmp_path: Path) -> None:
    experiment(tmp_path)
    state(tmp_path, expectation=[expect("better", "lower")])
    analysis = analysis_of(tmp_path)
    (better,) = [arm for arm in analysis.arms if arm.name == "better"]
    assert analysis.expected[0] is find(analysis.comparisons, better, plain=True)


@pytest.mark.parametrize(
    ("arm", "than", "bound"), [("better", "worse", "lower"), ("base", "better", "higher")]
)
def test_any_two_arms_are_compared(tmp_path: Path, arm: str, than: str, bound: str) -> None:
    """Neither of them need be a baseline, nor the second one."""
    experiment(tmp_path)
    found = outcome(tmp_path, expect(arm, bound, than))
    assert found.verdict == "came true"
    sign = -1 if bound == "lower" else 1
    assert found.comparison.mean * sign == pytest.approx(0.2 if than == "worse" else 0.2 / 3)


def test_a_comparison_that_is_made_for_an_expectation_alone_is_counted(tmp_path: Path) -> None:
    experiment(tmp_path)
    without = analysis_of(tmp_path).comparisons_made
    known = [expect("better", "lower"), expect("base", "lower", "worse")]
    state(tmp_path, expectation=known)
    assert analysis_of(tmp_path).comparisons_made == without
    state(tmp_path, expectation=[*known, expect("better", "lower", "worse")])
    assert analysis_of(tmp_path).comparisons_made == without + 1


def first_lines(folder: Path) -> str:
    """What summary.txt says before its table."""
    return (make_report(folder) / "summary.txt").read_text().partition("arm  ")[0]


def test_question_and_outcomes_come_first_on_all_pages(tmp_path: Path) -> None:
    experiment(tmp_path)
    because = "a <i>reason</i> in *stars*\x1b[2J."
    state(
        tmp_path,
        QUESTION,
        [
            expect("better", "lower", because=because),
            expect("worse", "lower"),
            expect("alike", "lower"),
        ],
    )
    report = make_report(tmp_path)
    for name in FIRST:
        text = (report / name).read_text().replace("\u00a0", " ")
        answer = {"summary.txt": "arm  "}.get(name, "Over 2 seeds per arm")
        stated, _, _ = text.partition(answer)
        for words in (
            "Question:",
            "the bound of better lower than that of base, because a ",
            "Came true:",
            "the bound is lower, −0.0667 ± 0.0000, seeds ± 0.0002 bits per byte",
            "Did not come true:",
            "the bound is higher, +0.1333",
            "Not shown:",
            "no difference was measured, +0.0000",
        ):
            assert words in stated, (name, words)
        assert stated.index("Question:") < stated.index("Came true:")
    page = (report / "index.html").read_text()
    assert "Does z help on &lt;b&gt;text&lt;/b&gt;?" in page
    assert "a &lt;i&gt;reason&lt;/i&gt; in *stars*\ufffd[2J. <b" in page
    assert "<b>text</b>" not in page and "<i>reason" not in page
    markdown = (report / "report.md").read_text()
    assert "Does z help on &lt;b&gt;text&lt;/b&gt;?" in markdown
    assert r"a &lt;i&gt;reason&lt;/i&gt; in \*stars\*" + "\ufffd\\[2J." in markdown
    assert not any("\x1b" in (report / name).read_text() for name in FIRST)


def test_a_report_that_asks_nothing_begins_as_ever(tmp_path: Path) -> None:
    experiment(tmp_path)
    report = make_report(tmp_path)
    assert (report / "summary.txt").read_text().startswith("arm ")
    for name in FIRST:
        text = (report / name).read_text()
        assert "Question" not in text and "Expected" not in text and "recorded" not in text


RUNS = tuple(with_seeds(ARMS))


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ({run: {"question": QUESTION, "expectation": [PLAIN]} for run in RUNS},
         ["Written before these runs were trained."]),
        ({run: {"question": f" {QUESTION}\n", "expectation": [PLAIN]} for run in RUNS},
         ["Written before these runs were trained."]),  # another layout
        ({}, ["Whether this was written before the runs is not recorded."]),
        ({run: {"question": QUESTION, "expectation": [PLAIN]} for run in RUNS[1:]},
         ["Whether this was written before base_s0 was trained is not recorded."]),
        ({run: {"question": "Why?", "expectation": [PLAIN]} for run in RUNS},
         ["The question was changed after all runs were trained (then: “Why?”)."]),
        ({run: {"expectation": [PLAIN]} if run == "plus_s1" else
          {"question": QUESTION, "expectation": [PLAIN]} for run in RUNS},
         ["The question was added after plus_s1 was trained (then: none)."]),
        ({run: {"question": QUESTION, "expectation": [PLAIN] if run[-1] == "0" else []}
          for run in RUNS},
         ["The expectation “the bound of better lower than that of base” was added after "
          "better_s1 and base_s1 were trained (then: none)."]),  # other arms do not matter
        ({run: {"question": QUESTION, "expectation": [PLAIN | {"bound": "higher"}]}
          for run in RUNS},
         ["The expectation “the bound of better lower than that of base” was changed after "
          "better_s0, better_s1, base_s0 and base_s1 were trained (then: “the bound of better "
          "higher than that of base”)."]),
        ({run: {"question": QUESTION, "expectation": [expect("base", "higher", "better")]}
          for run in RUNS},
         ["The expectation “the bound of better lower than that of base” was changed after "
          "better_s0, better_s1, base_s0 and base_s1 were trained (then: “the bound of base "
          "higher than that of better”)."]),
        ({run: {"question": QUESTION, "expectation": [PLAIN, expect("worse", "lower")]}
          for run in RUNS},
         ["The expectation “the bound of worse lower than that of base” stood there when all "
          "runs were trained, and was withdrawn."]),
    ],
    ids=["before", "layout", "unknown", "one unknown", "question", "question added",
         "expectation added", "expectation changed", "turned round", "withdrawn"],
)  # fmt: skip
def test_whether_it_was_written_before_the_runs(
    tmp_path: Path, then: dict[str, Any], said: list[str]
) -> None:
    experiment(tmp_path)
    for name, stated in then.items():
        record(tmp_path, name, **stated)
    state(tmp_path, QUESTION, [PLAIN])
    asked, expected, *others, blank = first_lines(tmp_path).splitlines()
    assert asked.startswith("Question:") and expected.startswith("Expected:") and not blank
    assert others == said


def test_a_question_and_expectations_that_were_taken_away_are_still_told(tmp_path: Path) -> None:
    experiment(tmp_path)
    record(tmp_path, "better_s0", question="Why?", expectation=[PLAIN])
    lines = first_lines(tmp_path).splitlines()
    assert lines[:2] == [
        "The question “Why?” stood there when better_s0 was trained, and was withdrawn.",
        "The expectation “the bound of better lower than that of base” stood there when "
        "better_s0 was trained, and was withdrawn.",
    ]
