"""`python -m perf` and `perf.gpu`: what is measured is kept, whatever becomes of the next part."""

from math import inf

import pytest

from perf import parts
from perf.measure import Measurement, print_table
from perf.parts import Part, is_measured, run_parts
from pipelines.host.errors import UserError
from tests.support.mutants import rejects

MODULES = {
    "good": "print('| here ÷ there | 2 |')",
    "broken": "print('so far'); 1 / 0",
    "killed": "import os; os._exit(9)",
    "long": "import time; time.sleep(60)",
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs parts, named after the module of each; returns the exit code and the page."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(parts, "git_revision", lambda: "abc")
    for module, text in MODULES.items():
        (tmp_path / f"{module}.py").write_text(text)

    def run(minutes=inf, **modules):
        made = {name: Part([module], 1, "≥ 2") for name, module in modules.items()}
        with pytest.raises(SystemExit) as ended:
            run_parts(made, made, tmp_path / "page", "Title", minutes)
        return ended.value.code, (tmp_path / "page.md").read_text()

    return run


@rejects(
    "parts.run_parts: all_succeeded = «False→True»", "a GPU's part that fails, and exit code 0"
)
def test_a_part_that_fails_stops_no_other_and_its_error_is_on_the_page(run):
    code, page = run(first="broken", second="killed", third="good")
    assert code == 1
    first, second, third = page.split("## ")[1:]
    assert "so far" in first and "ZeroDivisionError" in first
    assert "failed: exit code 9" in second
    assert "Target: ≥ 2" in third and "commit abc, " in third and "| here ÷ there | 2 |" in third


def test_what_is_measured_is_kept_until_the_code_is_another(run, tmp_path, monkeypatch):
    assert run(first="good")[0] == 0
    assert is_measured(tmp_path / "page/first.md")
    code, page = run(first="broken", second="good")
    assert code == 1
    assert "failed" not in page and page.count("here ÷ there") == 2
    monkeypatch.setattr(parts, "git_revision", lambda: "def")
    assert not is_measured(tmp_path / "page/first.md")
    assert "ZeroDivisionError" in run(first="broken")[1]
    assert not is_measured(tmp_path / "page/first.md")


def test_a_part_ends_when_its_time_is_over_and_the_next_is_not_begun(run, tmp_path):
    code, page = run(minutes=0.005, first="long", second="good")
    assert code == 1
    assert "failed: not done after 0 s" in page
    assert page.partition("## second")[2].endswith("not measured: not tried\n")


@rejects(
    "parts.run_parts: «→if name == [*names][-1]:\n            »write_file(page",
    "a page written once, at the end",
)
def test_an_interruption_loses_nothing_that_was_measured(run, tmp_path, monkeypatch):
    run_part = parts.run_part

    def interrupted(part, seconds):
        if part.arguments == ["long"]:
            raise KeyboardInterrupt
        return run_part(part, seconds)

    monkeypatch.setattr(parts, "run_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(first="good", second="long")
    page = tmp_path / "page.md"
    assert page.exists() and "here ÷ there" in page.read_text()


def test_an_unknown_name_ends_it_before_anything_is_measured(tmp_path):
    with pytest.raises(UserError, match="measurement 'fast' is not one of good"):
        run_parts({"good": Part(["good"])}, ["fast"], tmp_path / "page", "Title")
    assert not [*tmp_path.iterdir()]


@rejects("measure.print_table: if «quick→False» and", "a rehearsal that shows met and missed")
def test_a_table_says_which_targets_are_met_but_not_at_toy_size(capsys):
    measurements = [
        Measurement("speed", [1.0, 2.0, 4000.0], "tokens/s", at_least=2.5),
        Measurement("time ÷ planner", [1.0], "ratio", at_most=1.15),
    ]
    verdicts = []
    for quick in (False, True):
        print_table(measurements, quick)
        _, _, speed, time = capsys.readouterr().out.splitlines()
        assert speed.startswith("| speed | 2 (1 to 4,000) | tokens/s | ≥ 2.5 |")
        assert time.startswith("| time ÷ planner | 1 | ratio | ≤ 1.15 |")
        verdicts += [row.split("|")[-2].strip() for row in (speed, time)]
    assert verdicts == ["missed", "met", "rehearsed", "rehearsed"]
