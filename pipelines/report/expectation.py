"""What the experiment was to answer and what was expected of it; whether that came true, and
whether it was written before the runs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from pipelines.artifacts.preregistration import Preregistration
from pipelines.artifacts.results import UNITS
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.comparison import Comparison
from pipelines.config.schema import Expectation
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Table, Text
from pipelines.report.markdown import escaped
from pipelines.report.wording import in_words, listed

FOUND = {
    "lower": "the bound is lower",
    "higher": "the bound is higher",
    "no difference": "no difference was measured",
    "not known": "the difference is not known to count",
}


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


def finding(c: Comparison) -> str:
    loose = ", but a bound is not tight" if c.may_be_loose else ""
    return f"{FOUND[c.verdict]}, {in_words(c)} {UNITS[c.unit]} ({c.words}){loose}"


def record(stated: Statement) -> list[str]:
    """Whether it was written before the runs, a sentence for each change."""
    said = ["Written before these runs were trained."] if stated.before else []
    for c in stated.question_changes:
        what = "The question" if c.now else f"The question “{c.then}”"
        said.append(change_in_words(what, c, stated.runs))
    for c in stated.expectation_changes:
        said.append(change_in_words(f"The expectation “{c.now or c.then}”", c, stated.runs))
    if missing := stated.not_recorded:
        all_of_them = len(missing) == stated.runs
        before = "the runs" if all_of_them else trained(missing, stated.runs)
        said.append(f"Whether this was written before {before} is not recorded.")
    return said


def change_in_words(what: str, change: Change, runs: int) -> str:
    when = trained(change.runs, runs)
    if change.now:
        done, then = ("changed", f"“{change.then}”") if change.then else ("added", "none")
        return f"{what} was {done} after {when} (then: {then})."
    return f"{what} stood there when {when}, and was withdrawn."


def trained(runs: list[str], total: int) -> str:
    if len(runs) == total:
        return "all runs were trained"
    return f"{listed(runs)} {'was' if len(runs) == 1 else 'were'} trained"


def blocks(stated: Statement) -> list[Block]:
    """The question, a table of what became of the expectations, and when they were written."""
    asked = [Text(f"**Question:** {escaped(stated.question)}")] if stated.question else []
    rows = [
        [f"**{o.verdict.capitalize()}**", escaped(str(o.expectation)), finding(o.comparison)]
        for o in stated.outcomes
    ]
    table = [Table(["verdict", "expected", "measured"], rows)] if rows else []
    said = "\n\n".join(map(escaped, record(stated)))
    return [Text("<!-- stated -->"), *asked, *table, Text(said), Text("<!-- /stated -->")]


def summary(stated: Statement | None) -> str:
    """The same for the terminal, a line each."""
    if stated is None:
        return ""
    lines = [f"Question: {stated.question}"] if stated.question else []
    for outcome in stated.outcomes:
        verdict, found = outcome.verdict.capitalize(), finding(outcome.comparison)
        lines.append(f"Expected: {outcome.expectation}. {verdict}: {found}.")
    return "\n".join([*lines, *record(stated), "", ""])
