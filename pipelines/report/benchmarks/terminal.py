"""Benchmarks for a terminal: a benchmark a line, the arms side by side as far as they fit."""

from pipelines.report.arms import Arm
from pipelines.report.benchmarks.table import Benchmarks, Task, suite
from pipelines.report.benchmarks.text import skipped

TERMINAL = 110  # characters a line
MARKS = {"better": " >", "worse": " <"}


def summary_lines(all_found: list[Benchmarks]) -> list[str]:
    """A table for each family, what was skipped, and what the marks mean."""
    lines = []
    for found in all_found:
        if found.tasks:
            name = ", ".join(dict.fromkeys(suite(one)["suite"] for one in found.runs))
            run = found.arms[0].run
            lines += ["", f"suite {name} on {run.data} ({run.model}, {run.tokens:,} tokens)"]
            lines += summary_table(found)
        if left := skipped(found):
            lines.append(f"skipped: {', '.join(left)} (why: see the report)")
    if any(found.compared() for found in all_found):
        lines += ["", "suite: > better, < worse than the plain baseline, beyond errors and seeds"]
    return lines


def summary_table(found: Benchmarks) -> list[str]:
    names = ["", *(task.name for task in found.tasks)]
    metrics = ["", *(task.metric + " ↓" * (not task.higher_is_better) for task in found.tasks)]
    columns = [[arm.name, *(summary_cell(found, task, arm) for task in found.tasks)]
               for arm in found.arms]  # fmt: skip
    head, blocks = [names, metrics], list[list[list[str]]]()
    for column in columns:
        if not blocks or width([*head, *blocks[-1], column]) > TERMINAL:
            blocks.append([])
        blocks[-1].append(column)
    return [line for block in blocks for line in aligned([*head, *block])]


def summary_cell(found: Benchmarks, task: Task, arm: Arm) -> str:
    score = found.final[task.key].get(arm.name)
    return f"{score.value.mean:.3f}{MARKS.get(score.verdict, '')}" if score else "–"


def width(columns: list[list[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in columns) - 2


def aligned(columns: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in columns]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in zip(*columns, strict=True)]
