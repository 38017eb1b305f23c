"""Where text comes from: each kind has a dataclass in config/data.py and a reader here."""

from collections.abc import Callable
from typing import Any

from pipelines.config.data import Distributions, Files, Hub, Part
from pipelines.data.sources.base import Source
from pipelines.data.sources.files import FileSource, distribution_source
from pipelines.data.sources.hub import HubSource

READERS: dict[type[Part], Callable[[str, Any], Source]] = {
    Files: FileSource,
    Hub: HubSource,
    Distributions: distribution_source,
}


def open_source(key: str, part: Part) -> Source:
    """The source that ``key`` describes; raises UserError if there is none."""
    return READERS[type(part)](key, part)
