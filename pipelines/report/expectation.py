"""The experiment's question and what was expected; whether that came true, and whether it was
written before the runs.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain

from pipelines.artifacts.results import UNITS
from pipelines.compare.comparison import Comparison
from pipelines.config.schema import Expectation
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Group, Text, Verdict, escaped, table
from pipelines.report.wording import difference_cell, listed

QUESTION = frozenset[str]()  # its key beside those of expectations, which are two arms


@dataclass(frozen=True)
class Outcome:
    """An expectation beside what was measured."""

    expectation: Expectation
    comparison: Comparison

    @property
    def verdict(self) -> Verdict:
        """Whether the expectation came true."""
        c = self.comparison
        if not c.decided:
            return Verdict("not decided")
        came_true = self.expectation.bound.value == c.verdict
        word = "came true" if came_true else "did not come true"
        return Verdict(word, c.counts, reason="one seed" if c.one_seed else "")

    @property
    def finding(self) -> str:
        c = self.comparison
        loose = ", but the bound is loose" if c.may_be_loose else ""
        difference = f"{difference_cell(c)} {UNITS[c.unit]}{c.convergence}"
        return f"{c.verdict}, {difference} ({c.words}){loose}"


@dataclass(frozen=True)
class Statement:
    """What the experiment asks and expects, with what came of it."""

    question: str = ""
    outcomes: list[Outcome] = field(default_factory=list)
    # sentences: whether it was written before the runs, and what was changed
    record: list[str] = field(default_factory=list)


def statement(question: str | None, analysis: Analysis) -> Statement:
    """The statement on the experiment; empty if nothing is asked or expected, nor ever was."""
    runs, now = analysis.runs, statements(question, analysis.expectation)
    pairs = zip(analysis.expectation, analysis.expected, strict=True)
    outcomes = [Outcome(expectation, comparison) for expectation, comparison in pairs]
    changed = changes(now, analysis)
    record = [*changed]
    if missing := [run.name for run in runs if run.manifest.preregistration is None]:
        before = "the runs" if len(missing) == len(runs) else when_trained(missing, len(runs))
        record.append(f"Whether this was written before {before} is not recorded.")
    record = record or ["Written before these runs were trained."]
    asked = now.get(QUESTION, "")
    return Statement(asked, outcomes, record) if asked or outcomes or changed else Statement()


def statements(question: str | None, expectation: list[Expectation]) -> dict[frozenset[str], str]:
    """The question, and the expectations by their two arms. An experiment has at most one
    expectation for two arms, in whichever order it names them.
    """
    asked = " ".join((question or "").split())
    of_arms = {frozenset((each.arm, each.than)): str(each) for each in expectation}
    return {QUESTION: asked, **of_arms} if asked else of_arms


def changes(now: dict[frozenset[str], str], analysis: Analysis) -> list[str]:
    """A sentence for each statement in the runs' records that differs from today's. An expectation
    that stands concerns the runs of its two arms. The question and expectations that were withdrawn
    concern all runs.
    """
    runs, by_arm = analysis.runs, {arm.name: arm.runs for arm in analysis.arms}
    standing = analysis.expectation
    of_two = {frozenset((e.arm, e.than)): [*by_arm[e.arm], *by_arm[e.than]] for e in standing}
    then = {
        run.name: statements(stated.question, stated.expectation)
        for run in runs
        if (stated := run.manifest.preregistration)
    }
    sentences = []
    for key in dict.fromkeys([QUESTION, *now, *chain.from_iterable(then.values())]):
        stands = now.get(key, "")
        what = "The expectation" if key else "The question"
        others: dict[str, list[str]] = defaultdict(list)
        for name in (run.name for run in of_two.get(key, runs) if run.name in then):
            if (before := then[name].get(key, "")) != stands:
                others[before].append(name)
        for before, names in others.items():
            when = when_trained(names, len(runs))
            if not stands:
                sentences.append(f"{what} “{before}” stood there when {when}, and was withdrawn.")
                continue
            done, was = ("changed", f"“{before}”") if before else ("added", "none")
            this = f"{what} “{stands}”" if key else what
            sentences.append(f"{this} was {done} after {when} (then: {was}).")
    return sentences


def when_trained(runs: list[str], total: int) -> str:
    if len(runs) == total:
        return "all runs were trained"
    return f"{listed(runs)} {'was' if len(runs) == 1 else 'were'} trained"


def question_blocks(stated: Statement) -> list[Block]:
    return [Text(f"**Question:** {escaped(stated.question)}")] if stated.question else []


def outcome_blocks(stated: Statement) -> list[Block]:
    """A table of what became of the expectations, and when they were written."""
    blocks: list[Block] = [
        *table(
            {
                "outcome": each.verdict,
                "expected": escaped(str(each.expectation)),
                "measured": each.finding,
            }
            for each in stated.outcomes
        )
    ]
    if stated.record:
        blocks.append(Text("\n\n".join(map(escaped, stated.record))))
    return blocks


def marked(blocks: list[Block]) -> list[Block]:
    """Blocks between marks, which tell programs what was stated before the runs."""
    return [Group("<!-- stated -->", blocks, "<!-- /stated -->")] if blocks else []


def summary(stated: Statement) -> str:
    """The statement for the terminal, one line for each outcome."""
    lines = [f"Question: {stated.question}"] if stated.question else []
    for outcome in stated.outcomes:
        word = outcome.verdict.word
        found = outcome.finding.removeprefix(f"{word}, ")  # `not decided` is both
        lines.append(f"Expected: {outcome.expectation}. {word.capitalize()}: {found}.")
    lines += stated.record
    return "\n".join([*lines, "", ""]) if lines else ""
