"""The report of a sweep, sweeps/<sweep>/report/: index.html, report.md, trials.csv, figures/ and
summary.txt.
"""

from pathlib import Path
from typing import Any

from pipelines.common.atomic_files import replace_folder
from pipelines.common.console import aligned
from pipelines.compare.arms import Arm
from pipelines.report.glossary import NOTES
from pipelines.report.page import save_figures, templates
from pipelines.report.tables import run_row, write_table
from pipelines.report.verdicts import collapses
from pipelines.report.wording import signed
from pipelines.sweep.plots import draw
from pipelines.sweep.ranking import SweepAnalysis, short, value_words
from pipelines.sweep.result import FAILED, STOPPED

TEMPLATES = Path(__file__).with_name("templates")
LISTED = 8  # settings that a sentence names
KEPT_NOTES = (
    "Reconstruction cross-entropy",
    "Filtering bound",
    "Standard errors and seeds",
    "Parameters",
)


def trial_rows(sweep: SweepAnalysis) -> list[dict[str, Any]]:
    """All that is known of each trial, at full precision; ranked ones first, then in order."""
    rows = []
    for name in dict.fromkeys([*sweep.runs, *sweep.plan.trials]):
        result = sweep.results[name]
        row = {"trial": name, "status": result.status, **sweep.plan.settings[name]}
        if name in sweep.runs:
            row |= {k: v for k, v in run_row(sweep.runs[name]).items() if k != "run"}
        elif result.curve:
            last = result.curve[-1]
            row |= {"trained_tokens": last.tokens, "training_bound_bits": last.bound_bits}
        rows.append(row | ({"error": result.error} if result.error else {}))
    return rows


def table_cells(sweep: SweepAnalysis, name: str) -> list[str]:
    settings = sweep.plan.settings[name]
    return [value_words(key, settings[key]) for key in sweep.plan.swept]


def summary(sweep: SweepAnalysis, page: Path) -> str:
    """What the command prints last: the settings, ranked, and where the report is."""
    lines = []
    if ranking := sweep.ranking:
        rows = [["setting", "seeds", sweep.unit, "from the best"]]
        for setting in ranking.settings[:LISTED]:
            difference = ranking.differences.get(setting.words)
            verdict = ""
            if difference:
                counts = difference.verdict == "higher"
                verdict = signed(difference.mean) if counts else difference.verdict
            rows.append([setting.words, setting.seeds, str(setting.bound), verdict])
        lines += aligned(rows)
        if len(ranking.settings) > LISTED:
            lines.append(f"… and {len(ranking.settings) - LISTED} more")
        lines.append("")
    for status in (STOPPED, FAILED):
        if names := [result.trial for result in sweep.with_status(status)]:
            lines.append(f"{status}: {', '.join(names)}")
    return "\n".join([*lines, f"The report is in {page}", ""])


def pages(sweep: SweepAnalysis, images: dict[str, str]) -> dict[str, str]:
    """index.html and report.md; ``images`` are the figures as data URIs."""
    context = {
        "sweep": sweep,
        "plan": sweep.plan,
        "ranking": sweep.ranking,
        "collapses": collapses([Arm(name, [run]) for name, run in sweep.runs.items()]),
        "stopped": sweep.with_status(STOPPED),
        "failed": sweep.with_status(FAILED),
        "listed_settings": LISTED,
        "notes": {term: NOTES[term] for term in KEPT_NOTES},
        "heads": [short(key) for key in sweep.plan.swept],
        "cells": lambda name: table_cells(sweep, name),
        "images": images,
    }
    environment = templates(TEMPLATES)
    return {
        name: environment.get_template(template).render(context)
        for template, name in (("sweep.html.jinja", "index.html"), ("sweep.md.jinja", "report.md"))
    }


def write(sweep: SweepAnalysis) -> Path:
    """Write the report; returns its folder."""
    target = Path("sweeps") / sweep.plan.name / "report"
    with replace_folder(target) as folder:
        images = save_figures(draw(sweep), folder / "figures")
        for name, page in pages(sweep, images).items():
            (folder / name).write_text(page, encoding="utf-8")
        write_table(folder / "trials.csv", trial_rows(sweep))
        (folder / "summary.txt").write_text(summary(sweep, target / "index.html"), encoding="utf-8")
    return target
