"""Every setting of these groups, and its limits, stand in a table of a page."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from ftmodel.designs.design import LatentDesign
from ftmodel.model.config import ModelConfig
from ftmodel.model.limits import in_words
from pipelines.config.data import Distributions, Files, Hub, ProcessData, TextData
from pipelines.config.schema import Compute, EvaluationConfig, InitFrom, Optim
from pipelines.config.suite import PassAtK, Suite
from tests.support.mutants import rejects

PAGES = {
    Compute: "performance.md",
    EvaluationConfig: "measurement.md",
    InitFrom: "experiments.md",
    LatentDesign: "experiments.md",
    PassAtK: "benchmarks.md",
    Suite: "benchmarks.md",
}
OF_LIMITS = {
    **PAGES,
    **dict.fromkeys((ModelConfig, Optim), "experiments.md"),
    **dict.fromkeys((Distributions, Files, Hub, ProcessData, TextData), "data.md"),
}
PREFIXES = {Compute: "compute.", PassAtK: "pass_at_k."}  # of names in the tables


def tables(page: str) -> list[list[str]]:
    """The lines of each table of a page."""
    found = re.findall(r"(?:^\|.*\n)+", (Path("docs") / page).read_text(), re.MULTILINE)
    return [table.splitlines() for table in found]


@pytest.mark.parametrize("group", PAGES)
def test_every_setting_is_in_its_page(group: type) -> None:
    rows = " ".join(line for table in tables(PAGES[group]) for line in table)
    named = {field.name for field in fields(group)} - {"name", "tasks", "hf", "run"}
    missing = {name for name in named if f"{name}`" not in rows and f"{name}.samples`" not in rows}
    assert not missing


def stated_limits(page: str) -> dict[str, str]:
    """By the name of each setting; one entry of a row's limits may be of all its settings."""
    stated = {}
    for head, _, *rows in tables(page):
        columns = [cell.strip() for cell in head.split("|")]
        if "limits" in columns:
            for row in rows:
                cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
                names = re.findall(r"`([^`]+)`", cells[1])
                shown = re.split(r", (?=[a-z])", cells[columns.index("limits")])
                stated |= dict(zip(names, shown * (len(names) // len(shown)), strict=True))
    return stated


@rejects("beta2: float = limited(0.95, «at_least→above»", "a limit that no page states")
@pytest.mark.parametrize("group", OF_LIMITS)
def test_a_table_states_the_limits(group: type) -> None:
    stated, prefix = stated_limits(OF_LIMITS[group]), PREFIXES.get(group, "")
    limited = {f"{prefix}{each.name}": words for each in fields(group) if (words := in_words(each))}
    assert limited and limited == {name: stated.get(name) for name in limited}
