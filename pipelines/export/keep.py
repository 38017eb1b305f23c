"""Keeps a report's sections for git, made from the same results as the report, and registers the
best arm of each family.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from json import dumps
from os.path import relpath
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from pipelines.artifacts.checkpoint import Manifest, peek_manifest
from pipelines.artifacts.curve import training_seconds
from pipelines.artifacts.results import UNITS
from pipelines.artifacts.run_results import RunResults, read_runs
from pipelines.compare.arms import families, group_by_seed
from pipelines.compare.comparison import contrast_bounds
from pipelines.config.arms import family_words
from pipelines.config.compose import compose_config
from pipelines.config.load import PARAMS, load_experiment
from pipelines.config.schema import Experiment
from pipelines.host.errors import UserError, not_one_of
from pipelines.host.files import check_writable, checkpoint_path
from pipelines.report.blocks import Section, Text, anchor, explained, figures, markdown_of
from pipelines.report.expectation import outcome_blocks, question_blocks
from pipelines.report.page import Report, report_on, save_figure
from pipelines.tracking.sync import register_model

README = """\
# Part of the report, experiment `{name}`

{content}

- Command: ``{command}``, then `ftlab keep {folder}`, on {day}
- Commit of the trainings: {commits}
- Device: {devices}
- Time: {total} of training steps in {count} runs (h:mm:ss)

| run | seed | tokens | training steps, h:mm:ss |
|---|---|---|---|
{rows}
"""


def differing(before: dict[str, Any], after: dict[str, Any], path: str = "") -> Iterator[str]:
    """Overrides that turn one composed mapping into the other; deletions come first."""
    prefix = f"{path}." if path else ""
    yield from (f"~{prefix}{key}" for key in before if key not in after)
    added = {key: value for key, value in after.items() if key not in before}
    if added and path:
        yield f"+{path}={as_hydra(added)}"
    else:
        yield from (f"+{key}={as_hydra(value)}" for key, value in added.items())
    for key in (key for key in after if key in before):
        if isinstance(before[key], dict) and isinstance(after[key], dict):
            yield from differing(before[key], after[key], prefix + key)
        elif before[key] != after[key]:
            yield f"{prefix}{key}={as_hydra(after[key])}"


def as_hydra(value: Any) -> str:
    """A value in Hydra's grammar: JSON without quotes around keys."""
    return re.sub(r'"([^"\\]+)":', r"\1:", dumps(value, separators=(",", ":"), ensure_ascii=False))


def stated(config: Any) -> dict[str, Any]:
    """A composed experiment without what conf/ derives: trainings, and runs made from arms."""
    content: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
    content.pop("trainings", None)
    if content.get("arms"):
        content.pop("runs", None)
    return content


def command(experiment: str) -> str:
    """The command that composes params.yaml, its differences from conf/ included, and runs it."""
    try:
        plain = stated(compose_config([f"experiment={experiment}"]))
    except UserError:
        return f"make repro EXPERIMENT={experiment} (conf/ has no experiment of this name)"
    changes = list(differing(plain, stated(OmegaConf.load(PARAMS))))
    if not changes:
        return f"make repro EXPERIMENT={experiment}"
    # as arguments, which need quoting for one shell: SET's pass two
    return shlex.join(["ftlab", "repro", f"experiment={experiment}", *changes])


def recorded_by(runs: list[RunResults], field: Callable[[Manifest], str]) -> str:
    """A field that the trainings have recorded, with the runs' names unless all agree."""
    by_value: dict[str, list[str]] = {}
    for run in runs:
        by_value.setdefault(field(run.manifest) or "not recorded", []).append(run.name)
    if len(by_value) == 1:
        return next(iter(by_value))
    return "; ".join(f"{value} ({', '.join(names)})" for value, names in by_value.items())


def hours(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def content_of(report: Report, sections: list[Section], docs: str) -> str:
    """The statement and these sections in Markdown, with pictures beside it. ``docs``: where the
    documentation lies from there.
    """
    stated = [*question_blocks(report.stated), *outcome_blocks(report.stated)]
    parts = [markdown_of(stated)] if stated else []
    for each in sections:
        more = Text(f"[How to read it](../../docs/report.md#{anchor(each.title)})")
        body = [explained(each.title)[0], more, *each.blocks]  # the rest is in git already
        parts.append(f"## {each.title}\n\n{markdown_of(body)}")
    content = "\n\n".join(parts)
    return content.replace("](figures/", "](").replace("](../../docs/", f"]({docs}/")


def readme(experiment: Experiment, runs: list[RunResults], content: str, folder: str) -> str:
    seconds = [training_seconds(run.curve) for run in runs]
    rows = [
        f"| {run.name} | {run.run.seed} | {run.run.tokens:,} | {hours(took)} |"
        for run, took in zip(runs, seconds, strict=True)
    ]
    return README.format(
        name=experiment.name,
        content=content,
        command=command(experiment.name),
        folder=folder,
        day=datetime.now(UTC).date(),
        commits=recorded_by(runs, lambda manifest: manifest.git_revision),
        devices=recorded_by(runs, lambda manifest: manifest.device),
        total=hours(sum(seconds)),
        count=len(runs),
        rows="\n".join(rows),
    )


def keep_report(target: Path, names: Sequence[str]) -> None:
    """Write sections of the report, by default Figure 4, or the bounds of an experiment without it;
    links to this machine's MLflow are left out.
    """
    experiment = load_experiment()
    runs = read_runs(experiment)
    report = report_on(experiment, runs)
    by_name = {section.name: section for section in report.sections}
    for name in names:
        if name not in by_name:
            raise UserError(f"--section: {not_one_of(name, by_name)}")
    default = "figure4" if "figure4" in by_name else "bounds"
    sections = [by_name[name] for name in names or [default]]
    content = content_of(report, sections, relpath("docs", target))
    arguments = " ".join((str(target), *(f"--section {name}" for name in names)))
    text = readme(experiment, runs, content, arguments)
    check_writable(target)
    for picture in figures([block for section in sections for block in section.blocks]):
        save_figure(picture, target)
    (target / "README.md").write_text(text, encoding="utf-8")
    print(target / "README.md")


def register_best(experiment: Experiment) -> None:
    """Give the best arm in each group of arms that may be compared an alias in MLflow's model
    registry. Raises UserError if results are missing or MLflow does not have them.
    """
    bounds_alone = replace(experiment, suite_runs={})
    groups = families(group_by_seed(read_runs(bounds_alone)))
    for group in groups:
        best = min(group, key=lambda arm: arm.bound().mean)
        run = min(best.runs, key=lambda run: run.bound(best.unit).mean)
        others = [contrast_bounds(arm, best, best.unit, group) for arm in group if arm is not best]
        alike = [each.arm.name for each in others if each.verdict != "higher"]
        words = f"{best.name} has the lowest bound, {best.bound()} {UNITS[best.unit]}"
        if alike:
            words += f"; not shown to be higher: {', '.join(alike)}"
        path = checkpoint_path(experiment.name, run.name)
        if not (manifest := peek_manifest(path)):
            raise UserError(f"{path}: no readable checkpoint here; `dvc repro` makes it")
        alias = "best"
        if len(groups) > 1:
            alias = "-".join(["best", *family_words(run.family)])
        version = register_model(manifest, alias, f"{words}.")
        print(f"{experiment.name}@{alias}, version {version}, is {run.name}: {words}")


def main(folder: str | None = None, register: bool = False, section: Sequence[str] = ()) -> None:
    if section and not folder:
        raise UserError("--section: name a folder to keep it in")
    if register:
        register_best(load_experiment())
    if folder:
        keep_report(Path(folder), section)
    elif not register:
        raise UserError("name a folder for the report, or --register")
