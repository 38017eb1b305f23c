"""What the experiment was to answer and what was expected of it; whether that came true, and
whether it was written before the runs.
"""

from collections import defaultdict
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

    @property
    def finding(self) -> str:
        c = self.comparison
        loose = ", but the bound is loose" if c.may_be_loose else ""
        return (
            f"{FOUND[c.verdict]}, {in_words(c)} {UNITS[c.unit]}{c.convergence} ({c.words}){loose}"
        )


@dataclass(frozen=True)
class Statement:
    """What the experiment asks and expects, with what came of it."""

    question: str
    outcomes: list[Outcome]
    record: list[str]  # sentences: whether it was written before the runs, and what was changed


def one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def statement(question: str | None, analysis: Analysis) -> Statement | None:
    """None where nothing is asked or expected, nor ever was."""
    asked, runs = one_line(question), analysis.runs
    pairs = zip(analysis.expectation, analysis.expected, strict=True)
    outcomes = [Outcome(expectation, comparison) for expectation, comparison in pairs]
    changed = changes("The question", asked, runs, lambda then: one_line(then.question), len(runs))
    changed += expectation_changes(analysis)
    record = [*changed]
    if missing := [run.name for run in runs if run.details.preregistration is None]:
        before = "the runs" if len(missing) == len(runs) else when_trained(missing, len(runs))
        record.append(f"Whether this was written before {before} is not recorded.")
    record = record or ["Written before these runs were trained."]
    return Statement(asked, outcomes, record) if asked or outcomes or changed else None


def expectation_changes(analysis: Analysis) -> list[str]:
    """Of those that stand now, by the runs of their two arms; then of those that were withdrawn."""
    arms = {arm.name: arm for arm in analysis.arms}
    standing = {pair(expectation): expectation for expectation in analysis.expectation}
    records = [run.details.preregistration for run in analysis.runs]
    ever = [pair(e) for record in records if record for e in record.expectation]
    said = []
    for each in dict.fromkeys([*standing, *ever]):
        runs, now, what = analysis.runs, "", "The expectation"
        if stands := standing.get(each):
            runs = [*arms[stands.arm].runs, *arms[stands.than].runs]
            now, what = str(stands), f"The expectation “{stands}”"
        said += changes(what, now, runs, partial(recorded, arms=each), len(analysis.runs))
    return said


def pair(expectation: Expectation) -> frozenset[str]:
    """An experiment has one expectation at most of two arms, in whichever order it names them."""
    return frozenset((expectation.arm, expectation.than))


def recorded(stated: Preregistration, arms: frozenset[str]) -> str:
    """What was expected of two arms, or nothing."""
    return next((str(e) for e in stated.expectation if pair(e) == arms), "")


def changes(
    what: str,
    now: str,
    runs: Iterable[RunResults],
    of: Callable[[Preregistration], str],
    total: int,
) -> list[str]:
    """A sentence for each other statement that runs have recorded ("": none); ``now`` is "" of a
    statement that was withdrawn, and ``total`` the number of all runs.
    """
    others: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        stated = run.details.preregistration
        if stated and (then := of(stated)) != now:
            others[then].append(run.name)
    said = []
    for then, names in others.items():
        when = when_trained(names, total)
        done, was = ("changed", f"“{then}”") if then else ("added", "none")
        withdrawn = f"{what} “{then}” stood there when {when}, and was withdrawn."
        said.append(f"{what} was {done} after {when} (then: {was})." if now else withdrawn)
    return said


def when_trained(runs: list[str], total: int) -> str:
    if len(runs) == total:
        return "all runs were trained"
    return f"{listed(runs)} {'was' if len(runs) == 1 else 'were'} trained"


def marked(shown: list[Block]) -> list[Block]:
    """Blocks that `keep` finds."""
    return [Text("<!-- stated -->"), *shown, Text("<!-- /stated -->")] if shown else []


def question(stated: Statement | None) -> list[Block]:
    if not stated or not stated.question:
        return []
    return marked([Text(f"**Question:** {escaped(stated.question)}")])


def blocks(stated: Statement | None) -> list[Block]:
    """A table of what became of the expectations, and when they were written."""
    if not stated:
        return []
    rows = [
        [f"**{each.verdict.capitalize()}**", escaped(str(each.expectation)), each.finding]
        for each in stated.outcomes
    ]
    said = Text("\n\n".join(map(escaped, stated.record)))
    return marked([*[Table(["verdict", "expected", "measured"], rows)] * bool(rows), said])


def summary(stated: Statement | None) -> str:
    """The same for the terminal, a line each."""
    if stated is None:
        return ""
    lines = [f"Question: {stated.question}"] if stated.question else []
    for outcome in stated.outcomes:
        verdict = outcome.verdict.capitalize()
        lines.append(f"Expected: {outcome.expectation}. {verdict}: {outcome.finding}.")
    return "\n".join([*lines, *stated.record, "", ""])
