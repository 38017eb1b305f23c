"""Stage `report`: compare arms with each other and the paper."""

import base64
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import matplotlib
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipelines.artifacts.curve import write_table
from pipelines.artifacts.run_results import RunResults, read_finished, read_runs
from pipelines.compare.arms import group_by_seed
from pipelines.config.load import freeze
from pipelines.config.schema import Experiment
from pipelines.host.errors import UserError, printable
from pipelines.host.files import replace_folder, report_folder
from pipelines.report import expectation, tables
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Picture, Section, figures, markdown_of, section_markdown
from pipelines.report.expectation import Statement
from pipelines.report.html import definitions_html, explorer_families, html, section_html
from pipelines.report.sections import all_sections
from pipelines.report.sections.figure4 import figure4_csv
from pipelines.report.verdicts import facts, findings, headline, how_far
from pipelines.tracking.store import run_pages
from pipelines.tracking.sync import sync_report

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True)
class Report:
    """What a report says, as blocks."""

    analysis: Analysis
    stated: Statement
    sections: Sequence[Section]

    @property
    def first_screen(self) -> list[Block]:
        """The question, what was trained, the picture and the verdicts; on the page, links
        follow.
        """
        asked = expectation.marked(expectation.question_blocks(self.stated))
        outcomes = expectation.marked(expectation.outcome_blocks(self.stated))
        shown = [*facts(self.analysis), *headline(self.analysis)]
        return [*asked, *shown, *outcomes, *findings(self.analysis)]


def report_on(
    experiment: Experiment, runs: list[RunResults], pages: Mapping[str, str] | None = None
) -> Report:
    """The report on ``runs``; ``pages`` in MLflow by run. If others are missing, no expectation is
    judged yet.
    """
    matplotlib.rcdefaults()  # figures are the same whatever the user's matplotlibrc says
    complete = len(runs) == len(experiment.runs)
    expected = experiment.expectation if complete else []
    analysis = Analysis(
        group_by_seed(runs),
        experiment.evaluation,
        expected,
        pages or {},
        experiment.smallest_effect,
    )
    stated = Statement()
    if complete:
        stated = expectation.statement(experiment.question, analysis)
    return Report(analysis, stated, all_sections(analysis))


def save_figure(picture: Picture, folder: Path) -> Path:
    path = folder / f"{picture.name}.png"
    picture.figure.savefig(path, dpi=picture.figure.dpi if picture.name == "figure4" else 140)
    return path


def data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def write_report(experiment: Experiment, runs: list[RunResults], folder: Path) -> None:
    """Write the report on ``runs``. If others are missing, the title says so."""
    title = experiment.name
    if len(runs) < len(experiment.runs):
        title += f": {len(runs)} of {len(experiment.runs)} runs are finished"
    in_mlflow = run_pages(experiment.name)
    pages = {run.name: in_mlflow.get(run.manifest.tracking_key, "") for run in runs}
    report = report_on(experiment, runs, pages)
    analysis, sections = report.analysis, report.sections
    first, caveats = report.first_screen, how_far(analysis)

    # figures: files beside report.md, and data within index.html, which stands alone
    (folder / "figures").mkdir()
    images = {}
    for picture in figures([*first, *(block for each in sections for block in each.blocks)]):
        path = save_figure(picture, folder / "figures")
        images[path.name] = data_uri(path.read_bytes())
        if picture.narrow:
            png = BytesIO()
            picture.narrow.savefig(png, format="png", dpi=140)
            images[f"narrow {path.name}"] = data_uri(png.getvalue())

    parts = [markdown_of(first), markdown_of(caveats), *map(section_markdown, sections)]
    index = report_folder(experiment.name) / "index.html"
    summary = expectation.summary(report.stated) + tables.summary(analysis, index)
    content = {
        "title": title,
        "families": explorer_families(analysis),
        "sections": sections,
        "first": html(first, images),
        "rest": html(caveats, images) + "".join(section_html(each, images) for each in sections),
        "definitions": definitions_html(),
    }
    texts = {
        "report.md": "\n\n".join([f"# {title}", *parts]) + "\n",
        "summary.txt": printable(summary),
        "index.html": TEMPLATES.get_template("index.html.jinja").render(content),
        "explorer.html": TEMPLATES.get_template("explorer.html.jinja").render(content),
    }
    for name, text in texts.items():
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
    sync_report(experiment.name)
    print((early if so_far else target) / "index.html")
