"""Every setting of these groups stands in the table of a page."""

from dataclasses import fields
from pathlib import Path

import pytest

from ftmodel.designs.design import LatentDesign
from pipelines.config.schema import Compute, Evaluation, InitFrom
from pipelines.config.suite import PassAtK, Suite

PAGES = {
    Compute: "performance.md",
    Evaluation: "measurement.md",
    InitFrom: "experiments.md",
    LatentDesign: "experiments.md",
    PassAtK: "benchmarks.md",
    Suite: "benchmarks.md",
}


@pytest.mark.parametrize("group", PAGES)
def test_every_setting_is_in_its_page(group: type) -> None:
    page = (Path("docs") / PAGES[group]).read_text()
    rows = " ".join(line for line in page.splitlines() if line.startswith("|"))
    named = {field.name for field in fields(group)} - {"name", "tasks", "hf", "run"}
    missing = {name for name in named if f"{name}`" not in rows and f"{name}.…`" not in rows}
    assert not missing
