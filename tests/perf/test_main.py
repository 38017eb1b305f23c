"""`python -m perf`: what is measured is kept, whatever becomes of the next one."""

import json
import os

import pytest

from perf import __main__ as command
from pipelines.common.errors import UserError
from tests.support.commands import call

GOOD = """
from perf.measure import Picture, figure
def measure(turns, quick):
    return [
        figure("here ÷ there", [1.0, 2.0, 4.0], "ratio", at_least=2.5),
        figure("all", [34_000.0] * turns, "tokens/s"),
        figure("mine", [os.getpid()], "process", at_most=2e9),
        Picture("Growth", b"png"),
    ]
"""
LACKING = """
from perf.measure import Missing
def measure(turns, quick):
    raise Missing("no GPU")
"""
FAKES = {
    "good": GOOD,
    "lacking": LACKING,
    "broken": "def measure(turns, quick): return 1 / 0",
    "killed": "def measure(turns, quick): os._exit(9)",
    "first": "import nowhere",
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Calls the command with the fakes; gives exit code, entries and page."""
    package = tmp_path / "fakes"
    package.mkdir()
    for name, text in FAKES.items():
        (package / f"{name}.py").write_text(f'"""A fake.\n\nMore."""\nimport os\n{text}')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(command, "PACKAGE", "fakes")
    monkeypatch.setattr(command, "NAMES", tuple(FAKES))

    def run_perf(*arguments):
        out = tmp_path / "bench"
        with pytest.raises(SystemExit) as ended:
            call("perf", *arguments, "--out", str(out))
        entries = json.loads((out / "perf.json").read_text())
        return ended.value.code, entries, (out / "perf.md").read_text()

    return run_perf


def test_a_benchmark_is_written_with_where_it_ran(run, tmp_path, capsys):
    code, entries, page = run("good", "--turns", "3")
    assert code == 0
    good = entries["good"]
    assert [figure["met"] for figure in good["figures"]] == [False, None, True]
    assert good["versions"]["torch"] == good["machine"]["torch"]
    assert good["turns"] == 3 and good["seconds"] > 0 and not good["quick"]
    assert good["figures"][2]["median"] != os.getpid(), "not in a process of its own"
    assert "| here ÷ there | 2 (1 to 4) | ratio | ≥ 2.5 | no |" in page
    assert "| all | 34,000 | tokens/s |  |  |" in page
    assert "A fake.\n" in page and "More." not in page
    assert (tmp_path / "bench" / "good_1.png").read_bytes() == b"png"
    assert "![Growth](good_1.png)" in page
    assert "good: 3 figures, 1 of 2 targets met" in capsys.readouterr().err


@pytest.mark.slow
def test_a_failure_stops_no_other_and_fails_the_command(run, capsys):
    assert run("good", "lacking")[0] == 0
    code, entries, page = run("broken", "killed", "first", "lacking")
    assert code == 1
    assert "in measure" in entries["broken"]["failure"]
    assert "ZeroDivisionError" in page
    assert "BrokenProcessPool" in entries["killed"]["failure"]
    assert "No module named 'nowhere'" in entries["first"]["failure"]
    assert entries["lacking"]["skipped"] == "no GPU" and "no GPU" in page
    assert "here ÷ there" in page, "what was measured before is lost"
    assert len(capsys.readouterr().err.splitlines()) == 6


def test_an_unknown_name_is_one_line(run, monkeypatch, tmp_path):
    with pytest.raises(UserError, match=r"no benchmark 'fast'; there are good, "):
        call("perf", "good", "fast", "--out", str(tmp_path / "no"))
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("content", ["{", "[1]", '{"good": {"figures": []}}'])
def test_another_file_of_that_name_is_one_line_before_anything_is_measured(run, tmp_path, content):
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench/perf.json").write_text(content)
    with pytest.raises(UserError, match=r"perf\.json cannot be read"):
        run("good")
