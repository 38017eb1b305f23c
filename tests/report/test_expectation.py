"""What an experiment asks and expects: whether it came true, and was written before the runs."""

import re
from copy import deepcopy
from dataclasses import replace
from math import nan

import pytest
import yaml

from pipelines.artifacts.checkpoint import Preregistration
from pipelines.artifacts.result_files import parse_json
from pipelines.config.schema import Bound, Expectation
from pipelines.report.expectation import Statement, statement
from pipelines.report.verdicts import find_comparison
from tests.support.mutants import rejects
from tests.support.results import (
    PAIR,
    analysis_of,
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


def expect(arm, bound, than="base"):
    return Expectation(arm, than, Bound(bound))


PLAIN = expect("better", "lower")


def experiment(folder, se=0.0001):
    bounds = {name: BOUNDS.get(name[:-3], 0.5) + 0.001 * int(name[-1]) for name in RUNS}
    return write_experiment(folder, with_seeds(ARMS), bounds, se=se)


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    return analysis_of(experiment(tmp_path_factory.mktemp("expectation")))


def outcomes(analysis, arm, effect=None):
    """Outcome and finding for each thing to expect of an arm, held against the baseline."""
    found = []
    for bound in Bound:
        expected = Expectation(arm, "base", bound, None, effect)
        stated = statement(None, replace(analysis, expectation=[expected]))
        found.append((str(stated.outcomes[0].verdict), stated.outcomes[0].finding))
    return found


def test_an_expectation_comes_true_by_the_rule_for_differences(analysis):
    verdicts = {
        "better": ["**came true**", *["**did not come true**"] * 2],
        "worse": ["**did not come true**", "**came true**", "**did not come true**"],
        "alike": ["not decided"] * 3,  # without a smallest effect, any difference would matter
    }
    for arm, each in verdicts.items():
        assert [verdict for verdict, _ in outcomes(analysis, arm)] == each


@rejects("Analysis.expected: «each.smallest_effect→None»", "the smallest effect of an expectation")
def test_equivalence_comes_true_where_a_difference_is_surely_smaller_than_stated(analysis):
    found = dict(zip(Bound, outcomes(analysis, "alike", 0.1), strict=True))
    assert found[Bound.equivalent][0] == "**came true**"
    assert found[Bound.equivalent][1].startswith("equivalent, +0.0000 ± 0.0000")
    assert "(within 0.1; threshold" in found[Bound.equivalent][1]
    assert {found[each][0] for each in (Bound.lower, Bound.higher)} == {"**did not come true**"}
    for effect in (None, 1e-6):
        assert "not decided, +0.0000" in outcomes(analysis, "alike", effect)[2][1]
        assert "(could be up to 0.0" in outcomes(analysis, "alike", effect)[2][1]


def test_what_was_stated_in_earlier_versions_is_still_read_and_quoted(analysis):
    record = '{"expectation": [{"arm": "alike", "than": "base", "bound": "no_difference"}]}'
    then = dict.fromkeys(RUNS, parse_json(Preregistration, record.encode()))
    today = Expectation("alike", "base", Bound.equivalent, None, 0.01)
    (found,) = recorded_of(analysis, then, None, [today])
    assert "“the bounds of alike and base equivalent (within 0.01)” was changed after " in found
    assert "then: “no difference between the bounds of alike and base”" in found


def test_a_loose_bound_or_an_unknown_error_decides_nothing(tmp_path):
    others = {"free": {"half_variance": 0.3}}
    write_experiment(tmp_path / "loose", PAIR, {"free": 0.7}, se=0.001, others=others)
    for verdict, found in outcomes(analysis_of(tmp_path / "loose"), "free"):
        assert verdict == "not decided" and "loose" in found
    write_experiment(tmp_path / "unknown", PAIR, {"free": 0.3}, se=nan)
    for verdict, found in outcomes(analysis_of(tmp_path / "unknown"), "free"):
        assert verdict == "not decided" and "not known" in found


def test_any_two_arms_are_compared_and_those_for_an_expectation_alone_counted(analysis):
    """Neither of them need be a baseline, nor the second one."""
    assert statement(None, analysis) == Statement()
    known = replace(analysis, expectation=[PLAIN, expect("base", "lower", "worse")])
    assert len(known.tested) == len(analysis.tested)
    (better,) = [arm for arm in known.arms if arm.name == "better"]
    assert (
        known.expected[0].threshold
        == find_comparison(known.comparisons, better, plain=True).threshold
    )
    further = replace(analysis, expectation=[PLAIN, expect("better", "lower", "worse")])
    assert len(further.tested) == len(analysis.tested) + 1
    for stated, mean in ((known, -0.4 / 3), (further, -0.2)):
        assert statement(None, stated).outcomes[1].verdict.word == "came true"
        assert stated.expected[1].mean == pytest.approx(mean)


def test_question_and_outcomes_come_first_on_all_pages(tmp_path, capsys):
    experiment(tmp_path)
    params = yaml.safe_load((tmp_path / "params.yaml").read_text())
    because = "a <i>reason</i> in *stars*\x1b[2J."
    params |= {"question": QUESTION, "expectation": [
        {"arm": arm, "than": "base", "bound": "lower", "because": because,
         "smallest_effect": None}
        for arm in ("better", "worse", "alike")
    ]}  # fmt: skip
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    report = make_report(tmp_path)
    assert capsys.readouterr().out == "report/tiny/index.html\n"
    names = ("index.html", "report.md", "summary.txt")
    page, markdown, summary = ((report / name).read_text() for name in names)
    answer = "With 2 seeds per arm"
    for text, rest in ((markdown, answer), (summary, "arm  ")):
        stated = text.partition(rest)[0].replace("**", "").lower()
        for words in (
            *("because a ", "came true", "−0.0667 ± 0.0000, seeds ± 0.0002 bits per byte"),
            *("did not come true", "+0.1333", "not decided", "+0.0000", "is not recorded"),
        ):
            assert words in stated
        assert stated.index("question:") < stated.index("came true")
        assert "\x1b" not in text
    assert "a &lt;i&gt;reason&lt;/i&gt; in *stars*\ufffd[2J</td>" in page
    assert r"a &lt;i&gt;reason&lt;/i&gt; in \*stars\*" + "\ufffd\\[2J |" in markdown
    for text in (page, markdown):
        assert "Does z help on &lt;b&gt;text&lt;/b&gt;?" in text
        assert "<b>text</b>" not in text and "<i>reason" not in text


def recorded(*expectation, question=QUESTION, runs=RUNS):
    return dict.fromkeys(runs, Preregistration(question, [*expectation]))


def recorded_of(analysis, then, question=None, expectation=()):
    analysis = deepcopy(replace(analysis, expectation=[*expectation]))
    for each in analysis.runs:
        each.manifest.preregistration = then.get(each.name)
    return statement(question, analysis).record


UNASKED = recorded(PLAIN) | recorded(PLAIN, question=None, runs=["plus_s1"])
BOTH = ["better_s0", "better_s1", "base_s0", "base_s1"]


@pytest.mark.parametrize(
    ("then", "verdict", "runs", "quoted"),
    [
        (recorded(PLAIN), "Written before", [], []),
        (recorded(PLAIN, question=f" {QUESTION}\n"), "Written before", [], []),
        ({}, "not recorded", [], []),
        (recorded(PLAIN, runs=RUNS[1:]), "not recorded", ["base_s0"], []),
        (recorded(PLAIN, question="Why?"), "changed after all runs", [], ["Why?"]),
        (UNASKED, "added after", ["plus_s1"], []),
        (recorded() | recorded(PLAIN, runs=RUNS[::2]), "added after", ["better_s1", "base_s1"],
         [str(PLAIN)]),
        (recorded(expect("base", "higher", "better")), "changed after", BOTH,
         [str(PLAIN), str(expect("base", "higher", "better"))]),
        (recorded(PLAIN, expect("worse", "lower")), "all runs", [],
         [str(expect("worse", "lower"))]),
    ],
)  # fmt: skip
def test_whether_it_was_written_before_the_runs(analysis, then, verdict, runs, quoted):
    (found,) = recorded_of(analysis, then, QUESTION, [PLAIN])
    assert verdict in found and re.findall(r"\w+_s\d", found) == runs
    assert re.findall("“(.*?)”", found) == quoted


def test_a_question_and_expectations_that_were_taken_away_are_still_told(analysis):
    stated = recorded(PLAIN, question="Why?", runs=["better_s0"])
    found = recorded_of(analysis, stated)[:2]
    what = ("The question “Why?”", f"The expectation “{PLAIN}”")
    then = "stood there when better_s0 was trained, and was withdrawn."
    assert found == [f"{each} {then}" for each in what]
