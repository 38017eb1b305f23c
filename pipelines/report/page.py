"""Stage `report`: the arms side by side, and beside the paper.    python -m pipelines.report

Reads results/<experiment>/<run>/ of every run in params.yaml, and what data/tokens/ says of the
data, and writes report/<experiment>/: index.html (one self-contained page), report.md, figures/,
curves.csv, arms.csv (means over seeds), runs.csv, figure4.csv and summary.txt.
"""

import base64
import csv
import json
from dataclasses import dataclass
from io import BytesIO
from math import isnan
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from ftmodel.model.objective import LN2
from pipelines.artifacts.results import UNITS, Estimate, Measured, read_runs, training_bits
from pipelines.common.atomic_files import replace_folder
from pipelines.config.load import load_experiment
from pipelines.config.schema import Experiment
from pipelines.report import plots
from pipelines.report.arms import Arm, by_data, group_by_seed, over_seeds, recipe
from pipelines.report.benchmarks import plot as benchmark_plots
from pipelines.report.benchmarks import text as benchmark_words
from pipelines.report.benchmarks.paper_tables import read_tables
from pipelines.report.benchmarks.table import Benchmarks, benchmarks
from pipelines.report.benchmarks.terminal import aligned, summary_lines
from pipelines.report.benchmarks.text import percent
from pipelines.report.comparison import Comparison, compare
from pipelines.report.sections.all_sections import sections
from pipelines.report.sections.budgets import budget_table
from pipelines.report.sections.figure4 import (
    character_kinds,
    figure4_rows,
    number,
    our_panel,
    read_paper,
)
from pipelines.report.sections.figure4_csv import figure4_csv
from pipelines.report.verdicts import (
    BUDGETS,
    NOTES,
    caveat,
    count,
    findings,
    in_words,
    introduction,
    signed,
)

TOKENS = Path("data/tokens")
TEMPLATES = Path(__file__).with_name("templates")
COLUMNS = ("nll", "elbo", "iwae", "prior", "kl", "ce")


@dataclass(frozen=True)
class Column:
    """A measured figure; ``comparable`` says whether arms may be compared by it."""

    key: str
    label: str
    comparable: bool


def columns(iwae_samples: int) -> list[Column]:
    return [
        Column("nll", "NLL (exact)", True),
        Column("elbo", "ELBO bound", True),
        Column("iwae", f"IWAE-{iwae_samples} bound", True),
        Column("prior", "prior-sample bound (loose)", False),
        Column("kl", "KL", False),
        Column("ce", "reconstruction CE", False),
    ]


def data_words(data: str) -> list[str]:
    """How large a text is, and how much of its held-out part the training part has too."""
    folder = TOKENS / data
    if not (folder / "metadata.json").exists():
        return [f"{folder} has no metadata.json, so nothing is known of its size"]
    splits = json.loads((folder / "metadata.json").read_text())["splits"]
    parts = [
        f"{name}: {count_of(split['documents'], 'document')}, "
        f"{count_of(split['tokens'], 'token')}, {count_of(split['bytes'], 'byte')}"
        for name, split in splits.items()
    ]
    return [*parts, overlap_words(folder)]


def count_of(number: int, noun: str) -> str:
    return count(number, noun).replace(str(number), f"{number:,}", 1)


def overlap_words(folder: Path) -> str:
    if not (folder / "overlap.json").exists():
        return "whether held-out text is in the training text too was not looked at"
    found = json.loads((folder / "overlap.json").read_text())
    share = found["tokens_overlapping"] / max(1, found["tokens"])
    return (
        f"{100 * share:.2f} % of {found['tokens']:,} held-out tokens, in "
        f"{found['documents_with_overlap']:,} of {count_of(found['documents'], 'document')}, "
        f"are in {found['n']}-grams of tokens that the training text has too"
    )


@dataclass(frozen=True)
class Differences:
    """The arms of one data set against its baselines, side by side."""

    controls: list[Arm]
    rows: list[tuple[Arm, list[Comparison | None]]]  # a comparison for each control


def differences(comparisons: list[Comparison], arms: list[Arm]) -> Differences:
    here = [c for c in comparisons if c.arm in arms]
    controls = [arm for arm in arms if any(c.other is arm for c in here)]
    found = {(c.arm.name, c.other.name): c for c in here}
    compared = [arm for arm in arms if any(c.arm is arm for c in here)]
    rows = [(a, [found.get((a.name, control.name)) for control in controls]) for a in compared]
    return Differences(controls, rows)


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


def curve_rows(runs: list[Measured]) -> list[dict[str, Any]]:
    """Training bounds of all runs, one row a point, for `dvc plots`."""
    return [
        {
            "run": one.name,
            "tokens": int(row["tokens"]),
            "step": int(row["step"]),
            "bits_per_token": training_bits(row),
            "ce_bits_per_token": row["ce_nats"] / LN2,
            "kl_bits_per_token": row.get("kl_bits"),
        }
        for one in runs
        for row in one.curve
    ]


def run_row(one: Measured) -> dict[str, Any]:
    """Every number measured on a run, at full precision, under flat names."""
    row = {"run": one.name, **vars(one.run), "latent_bits": one.latent_bits}
    row["budgets"] = " ".join(map(str, one.run.budgets))
    row |= flat_figures(one.metrics)
    for task, entry in (one.suite or {"tasks": {}})["tasks"].items():
        row |= {f"suite_{task}": entry["value"], f"suite_{task}_se": entry["se"]}
    return row


def flat_figures(figures: dict[str, Any], outer: str = "") -> dict[str, Any]:
    """{"bits_per_token": {"nll": {"mean": …, "se": …}}} as nll_bits_per_token, …_se; no lists."""
    row: dict[str, Any] = {}
    for key, value in figures.items():
        name = f"{key}_{outer}" if outer in UNITS else f"{outer}_{key}".removeprefix("_")
        if isinstance(value, dict) and value.keys() == {"mean", "se"}:
            row |= {name: value["mean"], f"{name}_se": value["se"]}
        elif isinstance(value, dict):
            row |= flat_figures(value, name)
        elif not isinstance(value, list):
            row[name] = value
    return row


def arm_row(arm: Arm) -> dict[str, Any]:
    """Mean and spread over seeds of everything measured on an arm, at full precision."""
    row = {"arm": arm.name, **recipe(arm.run), "latent_bits": arm.first.latent_bits}
    row |= {"seeds": " ".join(map(str, arm.seeds)), "n": len(arm.runs)}
    for unit in UNITS:
        for column in (*COLUMNS, "exact"):
            row |= estimate_row(f"{column}_{unit}", arm.figure(column, unit))
    row |= estimate_row("gap_nats_per_token", arm.gap)
    row |= estimate_row("elbo_gap_nats_per_token", arm.elbo_gap)
    row |= {"parameters": arm.parameters, "trained_tokens": arm.trained_tokens}
    row |= {"tokens_per_second": arm.tokens_per_second}
    row |= estimate_row("last_third", over_seeds(arm.last_third) if arm.last_third else None)
    row |= {} if arm.baseline else {"collapsed": len(arm.collapsed)}
    return row | suite_row(arm)


def suite_row(arm: Arm) -> dict[str, Any]:
    """The arm's benchmarks, final and over the last third of training."""
    row: dict[str, Any] = {}
    for found in benchmarks([arm]):
        for scores, name in ((found.final, "suite_{}"), (found.last_third, "suite_{}_last_third")):
            for task, by_arm in scores.items():
                score = by_arm.get(arm.name)
                row |= estimate_row(name.format(task), score.value if score else None)
    return row


def estimate_row(name: str, found: Estimate | None) -> dict[str, Any]:
    if found is None:
        return {}
    row = {name: found.mean} | ({} if isnan(found.se) else {f"{name}_se": found.se})
    return row if isnan(found.spread) else row | {f"{name}_spread": found.spread}


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """A CSV with the union of the rows' columns, in the order of their first appearance."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def summary(arms: list[Arm], iwae_samples: int, page: Path) -> str:
    """One aligned line an arm; the first of the columns in bits is the one to compare arms by.
    Below it the scores on a suite, if there is one.
    """
    cells = [summary_row(arm) for arm in arms]
    heads = [head for head in cells[0] if any(row[head] != "–" for row in cells)]
    table = [heads, *([row[head] for head in heads] for row in cells)]
    lines = aligned([list(column) for column in zip(*table, strict=True)])
    notes = {
        "bits/token": f"bits: NLL of a baseline, IWAE-{iwae_samples} bound of a Free Transformer; "
        "± standard error over documents",
        "seeds": "seeds: how many, and the standard deviation of the bound over them, bits/byte "
        "for text",
        "gap": "gap: bound − exact entropy, nats/token",
        "pinned": "pinned: spread of the target with pinned z ÷ with fresh z; noise: with pinned z",
    }
    return "\n".join(
        (
            *lines,
            "",
            *(note for head, note in notes.items() if head in heads),
            *summary_lines(benchmarks(arms)),
            "",
            f"The report is in {page}; `make ui` opens the MLflow UI.",
            "",
        )
    )


def summary_row(arm: Arm) -> dict[str, str]:
    kl, bound = arm.figure("kl", "bits_per_token"), arm.bound()
    figures = our_panel(arm).figures if arm.first.on_target else None
    spread = "" if isnan(bound.spread) else f": {bound.spread:.4f}"
    return {
        "arm": arm.name + (f" ({arm.collapse})" if arm.collapsed else ""),
        "data": arm.run.data,
        "κ": arm.first.kappa,
        "seeds": f"{len(arm.runs)}{spread}",
        "bits/byte": str(bound) if arm.unit == "bits_per_byte" else "–",
        "bits/token": str(arm.bound("bits_per_token")),
        "KL bits": f"{kl.mean:.4f}" if kl else "–",
        "gap": f"{arm.gap.mean:.4f}" if arm.gap else "–",
        "valid": f"{figures.valid_fresh:.2f}" if figures else "–",
        "pinned": number(figures.ratio, 2) if figures else "–",
        "noise": number(figures.noise_pinned, 2) if figures else "–",
    }


def printable(text: str) -> str:
    """The text with control characters, which HTML forbids, shown as replacement characters."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def templates(folder: Path = TEMPLATES) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=lambda name: "html" in (name or ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "printable": printable}
    environment.globals |= {
        "character_kinds": character_kinds,
        "zip": zip,
        "in_words": in_words,
        "signed": signed,
        "percent": percent,
    }
    return environment


def report_folder(experiment: Experiment) -> Path:
    return Path("report") / experiment.name


def benchmark_context(found: list[Benchmarks]) -> dict[str, Any]:
    """What the templates of benchmarks are made from; nothing where none were run."""
    if not found:
        return {"benchmarks": []}
    tables = read_tables()
    views = benchmark_words.views(found, tables)
    return {
        "benchmarks": views,
        "paper_tables": benchmark_words.whole(views, tables),
        "benchmark_suite": benchmark_words.suite_words(found),
        "benchmark_notes": benchmark_words.notes(found),
        "monte_carlo_words": benchmark_words.MONTE_CARLO,
        "late_words": benchmark_words.LATE,
        "training_words": benchmark_words.TRAINING,
    }


def benchmark_figures(views: list[benchmark_words.View], arms: list[Arm]) -> dict[str, Figure]:
    """Of families with budgets; an arm has the same colour as in the other figures."""
    style = plots.styles(arm.name for arm in arms)
    return {
        view.figure: benchmark_plots.during_training(view.found, style)
        for view in views
        if view.found.tasks and benchmark_plots.with_budgets(view.found)
    }


def write_report(experiment: Experiment, runs: list[Measured], folder: Path) -> None:
    arms = group_by_seed(runs)
    scored = benchmarks(arms)
    on_benchmarks = benchmark_context(scored)
    paper = read_paper()
    rows = figure4_rows(arms, paper)
    groups, comparisons, made = by_data(arms), compare(arms), sections(arms)
    figures = {name: figure for section in made for name, (figure, _) in section.figures.items()}
    figures |= {"figure4": plots.figure4(rows)} if rows else {}
    figures |= benchmark_figures(on_benchmarks["benchmarks"], arms)
    context = {
        "experiment": experiment,
        "arms": arms,
        "runs": runs,
        "by_data": groups,
        "differences": {name: differences(comparisons, group) for name, group in groups.items()},
        "budgets": {name: budget_table(group, comparisons) for name, group in groups.items()},
        "corpora": {
            data: data_words(data)
            for data, group in groups.items()
            if group[0].first.source == "text"
        },
        "units": UNITS,
        "columns": columns(experiment.evaluation.iwae_samples),
        "introduction": introduction(arms, experiment.evaluation.iwae_samples),
        "findings": findings(arms),
        "caveat": caveat(arms),
        "notes": NOTES,
        "budget_words": BUDGETS,
        "figure4": rows,
        "sections": made,
        "images": save_figures(figures, folder / "figures"),
        **on_benchmarks,
    }
    environment = templates()
    for template, name in (("report.html.jinja", "index.html"), ("report.md.jinja", "report.md")):
        page = environment.get_template(template).render(context)
        (folder / name).write_text(page)
    write_table(folder / "curves.csv", curve_rows(runs))
    write_table(folder / "arms.csv", [arm_row(arm) for arm in arms])
    write_table(folder / "runs.csv", [run_row(one) for one in runs])
    write_table(folder / "figure4.csv", figure4_csv(rows, paper))
    index = report_folder(experiment) / "index.html"
    text = summary(arms, experiment.evaluation.iwae_samples, index)
    (folder / "summary.txt").write_text(text)


def main() -> None:
    experiment = load_experiment()
    runs = read_runs(experiment)
    target = report_folder(experiment)
    with replace_folder(target) as folder:
        write_report(experiment, runs, folder)
    print(target / "index.html")
