"""What docs/performance.md shows of the planner is what the planner prints."""

import re
from pathlib import Path

import pytest

from tests.support.commands import call

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/performance.md").read_text()
COMMANDS = re.findall(r"^\$ python -m pipelines\.plan (.*)\n((?:.*\n)*?)```", PAGE, re.MULTILINE)


def test_the_page_shows_both_experiments_and_both_strategies():
    assert len(COMMANDS) == 3


@pytest.mark.parametrize(("arguments", "shown"), COMMANDS, ids=[c for c, _ in COMMANDS])
def test_a_shown_output_is_what_the_planner_prints(monkeypatch, capsys, arguments, shown):
    monkeypatch.chdir(ROOT)
    call("plan", *arguments.split())
    assert capsys.readouterr().out == shown
    assert "computed, not measured" in shown
