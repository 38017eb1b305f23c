"""A progress bar is for terminals; a log gets a plain line every tenth."""

import os
import re
import subprocess
import sys

import pytest

from pipelines.host import console
from pipelines.host.console import Bar, say
from pipelines.host.files import ROOT


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console, "perf_counter", lambda: now[0])
    return now


def lines(capsys):
    said = capsys.readouterr()
    assert said.out == "" and "\r" not in said.err and "\x1b" not in said.err
    return said.err.splitlines()


@pytest.mark.parametrize(("total", "parts"), [(20, 1), (1000, 7)])
def test_a_log_has_a_line_every_tenth(clock, capsys, total, parts):
    with Bar(total, desc="a run") as bar:
        for _ in range(0, total, parts):
            clock[0] += 1
            bar.set_postfix({"loss": "2"}, refresh=False)
            bar.update(min(parts, total - bar.n))
    said = lines(capsys)
    assert len(said) == 10
    assert said[-1] == f"a run: 100% {total}/{total} left 00:00, loss=2"
    assert all(re.match(r"a run: +\d+% \d+/\d+ left [\d:]+, loss=2$", line) for line in said)


def test_what_was_done_before_is_counted_but_not_said(clock, capsys):
    with Bar(10, initial=8, desc="x") as bar:
        clock[0] += 4
        bar.update()
        say("between")
        bar.update()
    assert lines(capsys) == ["x:  90% 9/10 left 00:04", "between", "x: 100% 10/10 left 00:00"]


@pytest.mark.parametrize("options", [{"delay": 1}, {"disable": True}], ids=str)
def test_what_is_over_at_once_or_disabled_says_nothing(clock, capsys, options):
    with Bar(10, **options) as bar:
        bar.update(10)
    assert lines(capsys) == []


def test_without_a_total_there_is_a_line_every_half_minute(clock, capsys):
    with Bar(unit="B", unit_scale=True, desc="text") as bar:
        for _ in range(100):
            clock[0] += 1
            bar.update(1e6)
    said = lines(capsys)
    assert len(said) == 3 and "30.0MB" in said[0]


def test_other_libraries_show_no_bars_in_a_log(tmp_path):
    program = (
        "import sys; sys.argv = ['ftlab', '--help']; from pipelines import cli; cli.main();"
        "from tqdm.auto import tqdm; import datasets; [*tqdm(range(3))];"
        "datasets.Dataset.from_dict({'a': [1, 2]}).map(lambda row: row)"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT), "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")
