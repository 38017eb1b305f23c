"""What an experiment asks and expects: whether it came true, and was written before the runs."""

from math import nan

import pytest
import yaml

from pipelines.report.expectation import in_words, statement
from pipelines.report.page import templates
from pipelines.report.verdicts import find
from tests.support.results import (
    PAIR,
    analysis_of,
    change,
    make_report,
    run,
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
RUNS = tuple(with_seeds(ARMS))
BOUNDS = {"better": 0.3, "worse": 0.9}  # bits per token; of the others 0.5
FIRST = ("index.html", "report.md", "summary.txt")


def expect(arm, bound, than="base", because=None):
    return {"arm": arm, "than": than, "bound": bound, "because": because}


PLAIN = expect("better", "lower")
SAID = "The expectation “the bound of better lower than that of base”"


def state(folder, question=None, expectation=()):
    """What the experiment says now."""
    path = folder / "params.yaml"
    params = yaml.safe_load(path.read_text())
    params |= {"question": question, "expectation": list(expectation)}
    path.write_text(yaml.safe_dump(params, sort_keys=False))


def experiment(folder, se=0.0001):
    """Results of ARMS, with two seeds that differ by a little."""
    bounds = {name: BOUNDS.get(name[:-3], 0.5) + 0.001 * int(name[-1]) for name in RUNS}
    return write_experiment(folder, with_seeds(ARMS), bounds, se=se)


def outcome(folder, expectation):
    """What came of it, and that in words."""
    state(folder, expectation=[expectation])
    analysis = analysis_of(folder)
    return statement(None, analysis).outcomes[0], words(None, analysis)["expected"][0]["finding"]


def words(question, analysis):
    prose = templates().get_template("expectation.jinja").module
    return in_words(statement(question, analysis), prose)


def test_a_bound_that_is_not_tight_decides_nothing(tmp_path):
    others = {"free": {"half_variance": 0.3}}
    write_experiment(tmp_path, PAIR, {"free": 0.7}, se=0.001, others=others)
    for bound in ("lower", "higher"):
        undecided, finding = outcome(tmp_path, expect("free", bound))
        assert undecided.comparison.verdict == "higher" and undecided.verdict == "not decided"
        assert finding.endswith("but a bound is not tight")


@pytest.mark.parametrize(
    ("arm", "lower", "higher", "no_difference"),
    [
        ("better", "came true", "did not come true", "did not come true"),
        ("worse", "did not come true", "came true", "did not come true"),
        ("alike", "not shown", "not shown", "not contradicted"),
    ],
)
def test_an_expectation_comes_true_by_the_rule_for_differences(
    tmp_path, arm, lower, higher, no_difference
):
    experiment(tmp_path)
    for bound, verdict in (("lower", lower), ("higher", higher), ("no_difference", no_difference)):
        assert outcome(tmp_path, expect(arm, bound))[0].verdict == verdict


def test_where_the_error_is_not_known_nothing_is_decided(tmp_path):
    experiment(tmp_path, se=nan)
    for bound in ("lower", "higher", "no_difference"):
        undecided, finding = outcome(tmp_path, expect("better", bound))
        assert undecided.verdict == "not decided"
        assert finding.startswith("the difference is not known to count")


def test_any_two_arms_are_compared_and_those_for_an_expectation_alone_counted(tmp_path):
    """Neither of them need be a baseline, nor the second one."""
    experiment(tmp_path)
    analysis = analysis_of(tmp_path)
    assert statement(None, analysis) is None
    without = analysis.comparisons_made
    state(tmp_path, expectation=[PLAIN, expect("base", "lower", "worse")])
    analysis = analysis_of(tmp_path)
    assert analysis.comparisons_made == without
    (better,) = [arm for arm in analysis.arms if arm.name == "better"]
    assert analysis.expected[0] is find(analysis.comparisons, better, plain=True)
    assert statement(None, analysis).outcomes[1].verdict == "came true"
    assert analysis.expected[1].mean == pytest.approx(-0.4 / 3)
    state(tmp_path, expectation=[PLAIN, expect("better", "lower", "worse")])
    analysis = analysis_of(tmp_path)
    assert analysis.comparisons_made == without + 1
    assert statement(None, analysis).outcomes[1].verdict == "came true"
    assert analysis.expected[1].mean == pytest.approx(-0.2)


def test_question_and_outcomes_come_first_on_all_pages(tmp_path):
    experiment(tmp_path)
    because = "a <i>reason</i> in *stars*\x1b[2J."
    others = [expect("worse", "lower"), expect("alike", "lower")]
    state(tmp_path, QUESTION, [PLAIN | {"because": because}, *others])
    report = make_report(tmp_path)
    texts = {name: (report / name).read_text() for name in FIRST}
    for name, text in texts.items():
        answer = {"summary.txt": "arm  "}.get(name, "Over 2 seeds per arm")
        stated = text.replace("\u00a0", " ").partition(answer)[0]
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
        assert "\x1b" not in text
    page, markdown, _ = texts.values()
    assert "Does z help on &lt;b&gt;text&lt;/b&gt;?" in page
    assert "a &lt;i&gt;reason&lt;/i&gt; in *stars*\ufffd[2J. <b" in page
    assert "<b>text</b>" not in page and "<i>reason" not in page
    assert "Does z help on &lt;b&gt;text&lt;/b&gt;?" in markdown
    assert r"a &lt;i&gt;reason&lt;/i&gt; in \*stars\*" + "\ufffd\\[2J." in markdown


def recorded(*expectation, question=QUESTION, runs=RUNS):
    """What the experiment said when these runs were trained."""
    stated = {"question": question, "expectation": list(expectation)}
    return {name: stated for name in runs}


BOTH = "better_s0, better_s1, base_s0 and base_s1 were trained"


@pytest.mark.parametrize(
    ("then", "said"),
    [
        (recorded(PLAIN), "Written before these runs were trained."),
        (recorded(PLAIN, question=f" {QUESTION}\n"), "Written before these runs were trained."),
        ({}, "Whether this was written before the runs is not recorded."),
        (recorded(PLAIN, runs=RUNS[1:]), "before base_s0 was trained is not recorded."),
        (
            recorded(PLAIN, question="Why?"),
            "The question was changed after all runs were trained (then: “Why?”).",
        ),
        (
            recorded(PLAIN) | recorded(PLAIN, question=None, runs=["plus_s1"]),
            "The question was added after plus_s1 was trained (then: none).",
        ),
        (
            recorded() | recorded(PLAIN, runs=[name for name in RUNS if name[-1] == "0"]),
            f"{SAID} was added after better_s1 and base_s1 were trained (then: none).",
        ),
        (
            recorded(expect("base", "higher", "better")),
            f"{SAID} was changed after {BOTH} (then: “the bound of base higher than that of",
        ),
        (
            recorded(PLAIN, expect("worse", "lower")),
            "“the bound of worse lower than that of base” stood there when all runs were trained, "
            "and was withdrawn.",
        ),
    ],
)
def test_whether_it_was_written_before_the_runs(tmp_path, then, said):
    experiment(tmp_path)
    for name, stated in then.items():
        change(tmp_path, name, "details.json", training={"preregistration": stated})
    state(tmp_path, QUESTION, [PLAIN])
    (record,) = words(QUESTION, analysis_of(tmp_path))["record"]
    assert said in record


def test_a_question_and_expectations_that_were_taken_away_are_still_told(tmp_path):
    experiment(tmp_path)
    stated = {"question": "Why?", "expectation": [PLAIN]}
    change(tmp_path, "better_s0", "details.json", training={"preregistration": stated})
    assert words(None, analysis_of(tmp_path))["record"][:2] == [
        "The question “Why?” stood there when better_s0 was trained, and was withdrawn.",
        f"{SAID} stood there when better_s0 was trained, and was withdrawn.",
    ]
