"""Stage `report`: the arms side by side, and beside the paper.

    python -m pipelines.report

Reads results/<experiment>/<run>/ of every run in params.yaml, and what data/tokens/ says of the
data, and writes report/<experiment>/: index.html (one self-contained page), explorer.html (what
models generate, by z), report.md, figures/, curves.csv, arms.csv (means over seeds), runs.csv,
figure4.csv and summary.txt.
"""

import base64
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from pipelines.artifacts.paths import report_folder
from pipelines.artifacts.results import UNITS
from pipelines.artifacts.run_results import RunResults, read_runs
from pipelines.common.atomic_files import replace_folder
from pipelines.common.printable import printable
from pipelines.compare.arms import group_by_seed
from pipelines.config.frozen import freeze
from pipelines.config.schema import Experiment
from pipelines.report import expectation, headline, tables, wording
from pipelines.report.analysis import Analysis
from pipelines.report.benchmarks.text import magnitude
from pipelines.report.explorer import explorer_families
from pipelines.report.glossary import NOTES
from pipelines.report.sections.all_sections import all_sections
from pipelines.report.sections.figure4 import character_kinds, figure4_csv
from pipelines.report.verdicts import findings, introduction

TEMPLATES = Path(__file__).with_name("templates")
PAGES = {
    "index.html": "report.html.jinja",
    "report.md": "report.md.jinja",
    "explorer.html": "explorer.html.jinja",
}


def templates(folder: Path = TEMPLATES) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=lambda name: ".html" in (name or ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "listed": wording.listed,
        "magnitude": magnitude,
        "number": wording.number,
        "paragraphs": wording.paragraphs,
        "markdown": wording.markdown,
        "printable": printable,
    }
    environment.globals |= {
        "character_kinds": character_kinds,
        "count": wording.count,
        "in_words": wording.in_words,
        "other_error": wording.other_error,
        "percent": wording.percent,
        "signed": wording.signed,
        "zip": zip,
    }
    return environment


def save_figures(figures: dict[str, Figure], folder: Path) -> dict[str, str]:
    """Write each as a PNG; returns them as data URIs, for a page that stands alone."""
    folder.mkdir()
    uris = {}
    for name, figure in figures.items():
        png = BytesIO()
        figure.savefig(png, format="png", dpi=figure.dpi if name == "figure4" else 140)
        (folder / f"{name}.png").write_bytes(png.getvalue())
        uris[name] = f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"
    return uris


def caveat(analysis: Analysis) -> list[str]:
    """How far the findings go, in paragraphs."""
    return wording.paragraphs(templates().get_template("caveat.jinja").render(analysis=analysis))


def page_context(analysis: Analysis, folder: Path) -> dict[str, Any]:
    """What the templates are filled with; draws the figures on the way."""
    sections = all_sections(analysis)
    figures = {name: figure for s in sections for name, (figure, _) in s.figures.items()}
    if picture := headline.picture(analysis):
        figures = {"headline": picture, **figures}
    return {
        "analysis": analysis,
        "answers": headline.answers(analysis),
        "introduction": introduction(analysis),
        "findings": findings(analysis),
        "caveat": caveat(analysis),
        "families": [asdict(family) for family in explorer_families(analysis)],
        "sections": sections,
        "images": save_figures(figures, folder / "figures"),
        "notes": NOTES,
        "units": UNITS,
    }


def what_was_stated(experiment: Experiment, analysis: Analysis) -> dict[str, Any] | None:
    """Question and expectations with what came of them, in words; None if there are none."""
    stated = expectation.statement(experiment.question, analysis)
    prose: Any = templates().get_template("expectation.jinja").module
    return expectation.in_words(stated, prose) if stated else None


def write_report(experiment: Experiment, runs: list[RunResults], folder: Path) -> None:
    analysis = Analysis(group_by_seed(runs), experiment.evaluation, experiment.expectation)
    stated = what_was_stated(experiment, analysis)
    context = page_context(analysis, folder) | {"stated": stated}
    for name, template in PAGES.items():
        page = templates().get_template(template).render(context, title=experiment.name)
        (folder / name).write_text(page, encoding="utf-8")
    tables.write_table(folder / "curves.csv", tables.curve_rows(runs))
    tables.write_table(folder / "arms.csv", [tables.arm_row(arm) for arm in analysis.arms])
    tables.write_table(folder / "runs.csv", [tables.run_row(run) for run in runs])
    tables.write_table(folder / "figure4.csv", figure4_csv(analysis))
    index = report_folder(experiment.name) / "index.html"
    (folder / "summary.txt").write_text(
        printable(expectation.summary(stated) + tables.summary(analysis, index)), encoding="utf-8"
    )


def main() -> None:
    frozen = freeze("report")
    experiment = frozen.experiment
    runs = read_runs(experiment)
    target = report_folder(experiment.name)
    with replace_folder(target) as folder:
        write_report(experiment, runs, folder)
        frozen.check("the next `dvc repro` writes it")
    print(target / "index.html")
