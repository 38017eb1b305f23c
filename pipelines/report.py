"""Stage `report`: the arms side by side, and beside the paper.    python -m pipelines.report

Reads results/<experiment>/<run>/ of every run in params.yaml and writes report/<experiment>/:
index.html (one self-contained page), report.md, figures/, curves.csv, arms.csv and summary.txt.
"""

import base64
import csv
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from ftmodel.objective import LN2
from pipelines import errors, plots
from pipelines.arms import Arm, by_data, read_arms, training_bits
from pipelines.findings import NOTES, caveat, findings, introduction
from pipelines.paper import Row, character_kinds, figure4_rows, number, our_panel, read_paper
from pipelines.schema import Experiment, load_experiment
from pipelines.stage import replace_folder


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


def draw(arms: list[Arm], rows: list[Row]) -> dict[str, Figure]:
    """The figures of the report by file name; a run has the same colour in all of them."""
    style = plots.styles(arm.name for arm in arms)
    figures = {"figure4": plots.figure4(rows)} if rows else {}
    for data, group in by_data(arms).items():
        kappas = {a.name: a.run.kappa_bits for a in group if a.run.kappa_bits is not None}
        curves = {arm.name: arm.curve for arm in group}
        figures[f"curves_{data}"] = plots.curves(curves, style, kappas)
    if bits := {arm.name: arm.details["kl_per_bit"] for arm in arms if not arm.baseline}:
        figures["kl_per_bit"] = plots.kl_per_bit(bits)
    return figures


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


def curve_rows(arms: list[Arm]) -> list[dict[str, Any]]:
    """Training bounds of all arms, one row a point, for `dvc plots`."""
    return [
        {
            "run": arm.name,
            "tokens": int(row["tokens"]),
            "step": int(row["step"]),
            "bits_per_token": training_bits(row),
            "ce_bits_per_token": row["ce_nats"] / LN2,
            "kl_bits_per_token": row.get("kl_bits"),
        }
        for arm in arms
        for row in arm.curve
    ]


def arm_row(arm: Arm) -> dict[str, Any]:
    """Everything measured on an arm, at full precision, under flat names."""
    row = {"run": arm.name, **vars(arm.run), "latent_bits": arm.latent_bits}
    for key, value in arm.metrics.items():
        if not isinstance(value, dict):
            row[key] = value
            continue
        for part, inner in value.items():
            if isinstance(inner, dict):
                row |= {f"{part}_{key}": inner["mean"], f"{part}_{key}_se": inner["se"]}
            else:
                row[f"{key}_{part}"] = inner
    return row


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """A CSV with the union of the rows' columns, in the order of their first appearance."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def summary(arms: list[Arm], iwae_samples: int, page: Path) -> str:
    """One aligned line an arm; bits/token is the column to compare arms by on one data set."""
    cells = [summary_row(arm) for arm in arms]
    table = [list(cells[0]), *(list(row.values()) for row in cells)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    notes = (
        f"bits/token: NLL of a baseline, IWAE-{iwae_samples} bound of a Free Transformer; "
        "± standard error",
        "gap: bound − exact entropy, nats/token; spread: with pinned z ÷ with fresh z; "
        "noise: with pinned z",
        "",
        f"The report is in {page}; `make ui` opens the MLflow UI.",
    )
    return "\n".join((*lines, "", *notes, ""))


def summary_row(arm: Arm) -> dict[str, str]:
    kl, per_byte = arm.figure("kl"), arm.figure(arm.bound_key, "bits_per_byte")
    panel = our_panel(arm) if arm.on_target else None
    pinned = panel.pinned_scores if panel else None
    return {
        "run": arm.name + (" (collapsed)" if arm.collapsed else ""),
        "data": arm.run.data,
        "κ": arm.kappa,
        "bits/token": str(arm.bound),
        "KL bits": f"{kl.mean:.4f}" if kl else "–",
        "gap": f"{arm.gap.mean:.4f}" if arm.gap else "–",
        "valid": f"{panel.fresh_scores.valid:.2f}" if panel else "–",
        "spread": number(panel.ratio, 2) if panel else "–",
        "noise": number(pinned.noise, 2) if pinned else "–",
        "bits/byte": str(per_byte) if per_byte else "–",
    }


def printable(text: str) -> str:
    """The text with control characters, which HTML forbids, shown as replacement characters."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=lambda name: "html" in (name or ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "printable": printable}
    environment.globals |= {"character_kinds": character_kinds, "zip": zip}
    return environment


def report_folder(experiment: Experiment) -> Path:
    return Path("report") / experiment.name


def write_report(experiment: Experiment, arms: list[Arm], folder: Path) -> None:
    rows = figure4_rows(arms, read_paper())
    context = {
        "experiment": experiment,
        "arms": arms,
        "by_data": by_data(arms),
        "columns": columns(experiment.evaluation.iwae_samples),
        "introduction": introduction(arms, experiment.evaluation.iwae_samples),
        "findings": findings(arms),
        "caveat": caveat(arms),
        "notes": NOTES,
        "figure4": rows,
        "images": save_figures(draw(arms, rows), folder / "figures"),
    }
    environment = templates()
    for template, name in (("report.html.jinja", "index.html"), ("report.md.jinja", "report.md")):
        page = environment.get_template(template).render(context)
        (folder / name).write_text(page)
    write_table(folder / "curves.csv", curve_rows(arms))
    write_table(folder / "arms.csv", [arm_row(arm) for arm in arms])
    index = report_folder(experiment) / "index.html"
    text = summary(arms, experiment.evaluation.iwae_samples, index)
    (folder / "summary.txt").write_text(text)


def main() -> None:
    experiment = load_experiment()
    arms = read_arms(experiment)
    target = report_folder(experiment)
    with replace_folder(target) as folder:
        write_report(experiment, arms, folder)
    print(target / "index.html")


if __name__ == "__main__":
    errors.run(main)
