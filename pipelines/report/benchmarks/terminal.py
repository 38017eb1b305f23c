"""Benchmarks for a terminal: a benchmark a line, the arms side by side as far as they fit."""

from pipelines.common.console import aligned
from pipelines.report.benchmarks.table import Benchmarks, suite_of

WIDTH = 110  # characters a line
MARKS = {"better": " >", "worse": " <"}


def summary_lines(families: list[Benchmarks]) -> list[str]:
    """A table for each family, what was skipped, and what the marks mean."""
    lines = []
    for family in families:
        if family.tasks:
            name = ", ".join(dict.fromkeys(suite_of(run).suite for run in family.runs))
            run = family.arms[0].run
            lines += ["", f"suite {name} on {run.data} ({run.model}, {run.tokens:,} tokens)"]
            lines += summary_table(family)
        if names := family.skipped:
            lines.append(f"skipped: {', '.join(names)} (why: see the report)")
    if any(family.compared() for family in families):
        lines += ["", "suite: > better, < worse than the plain baseline, beyond errors and seeds"]
    return lines


def summary_table(family: Benchmarks) -> list[str]:
    names = ["", *(task.name for task in family.tasks)]
    metrics = ["", *(task.metric + " ↓" * (not task.higher_is_better) for task in family.tasks)]
    lines, columns = list[str](), [names, metrics]
    for arm in family.arms:
        scores = [family.final[task.key].get(arm.name) for task in family.tasks]
        cells = [f"{s.value.mean:.3f}{MARKS.get(s.verdict, '')}" if s else "–" for s in scores]
        wider = [*columns, [arm.name, *cells]]
        if len(columns) > 2 and max(map(len, joined(wider))) > WIDTH:
            lines += joined(columns)
            wider = [names, metrics, [arm.name, *cells]]
        columns = wider
    return lines + joined(columns)


def joined(columns: list[list[str]]) -> list[str]:
    return aligned([list(row) for row in zip(*columns, strict=True)])
