"""Benchmarks for a terminal: a benchmark a line, the arms side by side as far as they fit."""

from pipelines.common.console import aligned
from pipelines.compare.arms import Arm
from pipelines.report.benchmarks.table import Benchmarks, Task, suite_of

TERMINAL = 110  # characters a line
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
    columns = [[arm.name, *(summary_cell(family, task, arm) for task in family.tasks)]
               for arm in family.arms]  # fmt: skip
    head, blocks = [names, metrics], list[list[list[str]]]()
    for column in columns:
        if not blocks or width([*head, *blocks[-1], column]) > TERMINAL:
            blocks.append([])
        blocks[-1].append(column)
    return [line for block in blocks for line in aligned(rows_of([*head, *block]))]


def summary_cell(family: Benchmarks, task: Task, arm: Arm) -> str:
    score = family.final[task.key].get(arm.name)
    return f"{score.value.mean:.3f}{MARKS.get(score.verdict, '')}" if score else "–"


def width(columns: list[list[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in columns) - 2


def rows_of(columns: list[list[str]]) -> list[list[str]]:
    return [list(row) for row in zip(*columns, strict=True)]
