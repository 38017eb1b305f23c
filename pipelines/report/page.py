"""Stage `report`: compare arms with each other and the paper."""

import base64
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipelines.artifacts.curve import write_table
from pipelines.artifacts.run_results import RunResults, read_finished, read_runs
from pipelines.compare.arms import group_by_seed
from pipelines.config.load import freeze
from pipelines.config.schema import Experiment
from pipelines.host.errors import UserError, printable
from pipelines.host.files import replace_folder, report_folder
from pipelines.report import blocks, expectation, tables, verdicts
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Picture, figures
from pipelines.report.html import explorer_families, html
from pipelines.report.sections import all_sections
from pipelines.report.sections.figure4 import figure4_csv
from pipelines.report.verdicts import findings, how_far
from pipelines.tracking.store import run_pages

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def save_figures(drawn: Iterable[Picture], folder: Path) -> dict[str, str]:
    """Write each picture as a PNG; returns them as data URIs, for a page that stands alone."""
    folder.mkdir()
    uris = {}
    for each in drawn:
        path = folder / f"{each.name}.png"
        each.figure.savefig(path, dpi=each.figure.dpi if each.name == "figure4" else 140)
        uris[path.name] = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
    return uris


def first_screen(analysis: Analysis, stated: expectation.Statement) -> list[Block]:
    """The question, the picture and the verdicts; on the page, links follow."""
    drawn = verdicts.picture(analysis)
    alt = "Each arm’s held-out bound minus its baseline’s; lower is better"
    pictures = [Picture("headline", drawn, alt)] if drawn else []
    asked, outcomes = expectation.question(stated), expectation.blocks(stated)
    return [*asked, *pictures, *outcomes, *findings(analysis)]


def write_report(experiment: Experiment, runs: list[RunResults], folder: Path) -> None:
    """Write the report on ``runs``. If others are missing, the title says so, and no expectation is
    judged yet.
    """
    title, stated = experiment.name, expectation.Statement()
    in_mlflow = run_pages(experiment.name)
    shown_at = {run.name: in_mlflow.get(run.manifest.tracking_key, "") for run in runs}
    analysis = Analysis(group_by_seed(runs), experiment.evaluation, pages=shown_at)
    if len(runs) < len(experiment.runs):
        title += f": {len(runs)} of {len(experiment.runs)} runs are finished"
    else:
        analysis = replace(analysis, expectation=experiment.expectation)
        stated = expectation.statement(experiment.question, analysis)
    first, sections = first_screen(analysis, stated), all_sections(analysis)
    shown = [*first, *(block for section in sections for block in section.blocks)]
    images = save_figures(figures(shown), folder / "figures")
    top = blocks.markdown_of(first)
    rest = "\n\n".join(
        [blocks.markdown_of(how_far(analysis)), *map(blocks.section_markdown, sections)]
    )
    families, index = explorer_families(analysis), report_folder(experiment.name) / "index.html"
    summary = expectation.summary(stated) + tables.summary(analysis, index)
    pages = {"report.md": f"# {title}\n\n{top}\n\n{rest}\n", "summary.txt": printable(summary)}
    content = {"title": title, "families": families, "sections": sections}
    content |= {"first": html(top, images), "rest": html(rest, images)}
    for name in ("index.html", "explorer.html"):
        pages[name] = TEMPLATES.get_template(f"{name}.jinja").render(content)
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, rows in {
        "curves": tables.curve_rows(runs),
        "arms": [tables.arm_row(arm) for arm in analysis.arms],
        "runs": [tables.run_row(run) for run in runs],
        "figure4": figure4_csv(analysis),
    }.items():
        write_table(folder / f"{name}.csv", rows)


def main(so_far: bool = False) -> None:
    frozen = freeze("report")
    experiment = frozen.experiment
    target = report_folder(experiment.name)
    early = target.with_name(f"{target.name}.so_far")  # no experiment has a dot in its name
    runs = read_finished(experiment) if so_far else read_runs(experiment)
    if not runs:
        raise UserError(f"no run of {experiment.name} is finished yet")
    with replace_folder(early if so_far else target) as folder:
        write_report(experiment, runs, folder)
        frozen.check("the next `dvc repro` writes it")
    if not so_far:
        shutil.rmtree(early, ignore_errors=True)
    print((early if so_far else target) / "index.html")
