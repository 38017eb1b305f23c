"""What the experiment was to answer and what was expected of it; whether that came true, and
whether it was written before the runs. The wording is in templates/expectation.jinja.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pipelines.artifacts.preregistration import Preregistration
from pipelines.artifacts.results import UNITS
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.comparison import Comparison
from pipelines.config.schema import Expectation
from pipelines.report.analysis import Analysis
from pipelines.report.wording import paragraphs


@dataclass(frozen=True)
class Outcome:
    """An expectation beside what was measured."""

    expectation: Expectation
    comparison: Comparison

    @property
    def verdict(self) -> str:
        """Where no difference is measured, one may still be there, below the threshold: what
        expects none is not contradicted, and what expects one is not shown.
        """
        measured, expected = self.comparison.verdict, self.expectation.bound.verdict
        if measured == "not known" or self.comparison.may_be_loose:
            return "not decided"
        if measured == "no difference":
            return "not contradicted" if expected == measured else "not shown"
        return "came true" if expected == measured else "did not come true"


@dataclass(frozen=True)
class Change:
    """A statement that was another one, or none (""), when runs were trained; "" now: withdrawn."""

    now: str
    then: str
    runs: list[str]  # their names


@dataclass(frozen=True)
class Statement:
    """What the experiment asks and expects, with what came of it."""

    question: str
    outcomes: list[Outcome]
    question_changes: list[Change]
    expectation_changes: list[Change]
    not_recorded: list[str]  # runs of which it is not known what was stated before
    runs: int  # how many there are

    @property
    def before(self) -> bool:
        """Whether all of it is known to have been written before the runs."""
        return not (self.question_changes or self.expectation_changes or self.not_recorded)


def one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def pair(expectation: Expectation) -> frozenset[str]:
    """An experiment has one expectation at most of two arms, in whichever order it names them."""
    return frozenset((expectation.arm, expectation.than))


def changes(
    now: str, runs: Iterable[RunResults], of: Callable[[Preregistration], str]
) -> list[Change]:
    """Where runs have recorded something else, what that was and of which runs."""
    others: dict[str, list[str]] = {}
    for run in runs:
        stated = run.details.training.preregistration
        if stated and (then := of(stated)) != now:
            others.setdefault(then, []).append(run.name)
    return [Change(now, then, names) for then, names in others.items()]


def expectation_changes(analysis: Analysis) -> list[Change]:
    """Of those that stand now, by the runs of their two arms; then of those that were withdrawn."""
    arms = {arm.name: arm for arm in analysis.arms}
    changed: list[Change] = []
    for expectation in analysis.expectation:
        runs = [*arms[expectation.arm].runs, *arms[expectation.than].runs]
        was = partial(recorded, expectation=expectation)
        changed += changes(str(expectation), runs, was)
    standing = {pair(expectation) for expectation in analysis.expectation}
    withdrawn: dict[str, list[str]] = {}
    for run in analysis.runs:
        record = run.details.training.preregistration or Preregistration()
        for expectation in record.expectation:
            if pair(expectation) not in standing:
                withdrawn.setdefault(str(expectation), []).append(run.name)
    return changed + [Change("", then, names) for then, names in withdrawn.items()]


def recorded(stated: Preregistration, expectation: Expectation) -> str:
    """What was expected of the same two arms, or nothing."""
    same = [str(e) for e in stated.expectation if pair(e) == pair(expectation)]
    return same[0] if same else ""


def statement(question: str | None, analysis: Analysis) -> Statement | None:
    """None where nothing is asked or expected, nor ever was."""
    asked = one_line(question)
    pairs = zip(analysis.expectation, analysis.expected, strict=True)
    stated = Statement(
        question=asked,
        outcomes=[Outcome(expectation, comparison) for expectation, comparison in pairs],
        question_changes=changes(asked, analysis.runs, lambda then: one_line(then.question)),
        expectation_changes=expectation_changes(analysis),
        not_recorded=[
            run.name for run in analysis.runs if run.details.training.preregistration is None
        ],
        runs=len(analysis.runs),
    )
    changed = stated.question_changes or stated.expectation_changes
    return stated if asked or stated.outcomes or changed else None


def in_words(stated: Statement, prose: Any) -> dict[str, Any]:
    """Its sentences, by the macros of templates/expectation.jinja."""
    expected = [
        {
            "expectation": str(outcome.expectation),
            "verdict": outcome.verdict.capitalize(),
            "finding": one_line(prose.finding(outcome.comparison, UNITS)),
        }
        for outcome in stated.outcomes
    ]
    record = paragraphs(prose.record(stated))
    return {"question": stated.question, "expected": expected, "record": record}


def summary(stated: dict[str, Any] | None) -> str:
    """The same for the terminal, a line each."""
    if stated is None:
        return ""
    lines = [f"Question: {stated['question']}"] if stated["question"] else []
    for entry in stated["expected"]:
        lines.append("Expected: {expectation}. {verdict}: {finding}.".format(**entry))
    return "\n".join([*lines, *stated["record"], "", ""])
