"""What a sweep's report of its own still takes from this package, with templates/macros.html.jinja
and templates/rule.jinja: it goes with that report.
"""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from matplotlib.figure import Figure

from pipelines.common.printable import printable
from pipelines.compare.arms import Arm
from pipelines.report import page, wording
from pipelines.report.blocks import Picture
from pipelines.report.markdown import escaped
from pipelines.report.sections.glossary import notes

NOTES = notes()


def paragraphs(text: str) -> list[str]:
    """What blank lines divide, each on one line."""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]


def templates(folder: Path) -> Environment:
    environment = page.templates()
    environment.loader = FileSystemLoader([folder, page.TEMPLATES])
    environment.filters |= {"paragraphs": paragraphs, "markdown": escaped, "printable": printable}
    environment.globals |= {"count": wording.count, "in_words": wording.in_words}
    return environment


def save_figures(figures: dict[str, Figure], folder: Path) -> dict[str, str]:
    uris = page.save_figures((Picture(*each, "") for each in figures.items()), folder)
    return {name.removesuffix(".png"): uri for name, uri in uris.items()}


def collapses(arms: list[Arm]) -> list[str]:
    rule = "KL under a tenth of κ throughout the last third of training"
    names = ", ".join(arm.name for arm in arms if arm.collapsed)
    return [f"The latent collapsed ({rule}): {names}."] if names else []
