"""The topics of a report: the modules of this package that have a `section`, in the order in which
docs/report.md explains them.
"""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from pipelines.report import sections
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section
from pipelines.report.explanations import paragraphs

MODULES = [
    import_module(f"{sections.__name__}.{each.name}")
    for each in iter_modules(sections.__path__)
    if each.name != "all_sections"
]
SECTIONS: list[Callable[[Analysis], Section | None]] = [module.section for module in MODULES]


def all_sections(analysis: Analysis) -> list[Section]:
    """The sections that have something to show, and what may not be compared, in short."""
    shown = [section for make in SECTIONS if (section := make(analysis))]
    shown.append(Section("comparisons", "What may not be compared", []))
    place = {title: i for i, title in enumerate(paragraphs())}
    return sorted(shown, key=lambda section: place.get(section.title, len(place)))
