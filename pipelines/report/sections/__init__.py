"""The topics of a report: functions that return blocks, each named as its section is."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import iter_modules

from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Section, explanations

Topic = Callable[[Analysis], Sequence[Block]]
TOPICS: dict[str, tuple[str, Topic]] = {}  # title and function by name


def titled(title: str) -> Callable[[Topic], Topic]:
    """Make a function a section of the report; docs/report.md explains it under this title."""

    def add(topic: Topic) -> Topic:
        TOPICS[topic.__name__] = title, topic
        return topic

    return add


def all_sections(analysis: Analysis) -> list[Section]:
    """Sections with something to show, in the order of docs/report.md; `comparisons` always."""
    for module in iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
    sections = [Section(name, title, topic(analysis)) for name, (title, topic) in TOPICS.items()]
    shown = [section for section in sections if section.blocks]
    shown.append(Section("comparisons", "What may not be compared", []))
    place = {title: i for i, title in enumerate(explanations())}
    return sorted(shown, key=lambda section: place.get(section.title, len(place)))
