"""A line for each stage that runs, on a terminal and in a log."""

import io
import re

import pytest
from rich.console import Console

from pipelines.host.console import Bar
from pipelines.parallel import screen as screen_module
from pipelines.parallel.screen import PROGRESS, Screen, duration, last_line


def test_a_duration_in_hours_minutes_and_seconds():
    assert [duration(seconds) for seconds in (0.4, 59.6, 3661)] == ["0:00", "1:00", "1:01:01"]


def test_the_newest_line_of_a_log_has_no_control_characters(tmp_path):
    log = tmp_path / "log"
    log.touch()
    assert last_line(log) == ""
    log.write_bytes(b"x" * 10_000 + b"\nsecond\x1b[2J\n \n")
    assert last_line(log) == "second\N{REPLACEMENT CHARACTER}[2J"
    log.write_bytes(b"\xff half")
    assert last_line(log) == "\N{REPLACEMENT CHARACTER} half"
    log.write_bytes(b"x" * 10_000)
    assert last_line(log) == "x" * 8192


@pytest.fixture
def bar_line(tmp_path, capsys):
    """What training leaves in its log."""
    bar = Bar(20, desc="free_k1")
    bar.set_postfix({"loss": "2.1 nats", "tokens/s": "5,000"}, refresh=False)
    bar.update(2)
    bar.close()
    line = capsys.readouterr().err
    (tmp_path / "log").write_text(line)
    return line.strip()


def test_without_a_terminal_a_line_of_progress_is_printed_once(tmp_path, bar_line, capsys):
    log, done = tmp_path / "log", f"train@free_k1: {'done ' * 40}in 0:04"
    assert PROGRESS.search(bar_line), bar_line
    with Screen(3) as screen:
        assert screen.environment == {}
        for _ in range(3):
            screen.update([("train@free_k1", log, 2.0)])
        log.write_text("WARNING: a word\n")
        screen.update([("train@free_k1", log, 3.0)])
        screen.say(done)
    shown = capsys.readouterr().err
    assert shown == f"train@free_k1: {bar_line}\n{done}\n"
    assert "loss=2.1 nats, tokens/s=5,000" in shown


def test_a_terminal_shows_each_stage_with_its_time_and_its_newest_line(
    tmp_path, bar_line, monkeypatch
):
    clock = iter([100.0, 162.0])
    monkeypatch.setattr(screen_module, "monotonic", lambda: next(clock))
    screen = Screen(3)
    file = io.StringIO()
    screen.console = Console(file=file, force_terminal=True, width=60, no_color=True)
    screen.live.console = screen.console
    with screen:
        assert screen.environment["PROGRESS_SECONDS"]
        (tmp_path / "empty").touch()
        logs = [("train@free_k1", tmp_path / "log", 62.0), ("report", tmp_path / "empty", 1.0)]
        screen.update(logs)
        shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue()).splitlines()
    assert [line.rstrip() for line in shown] == [
        "0 of 3 stages, 1:02",
        f"train@free_k1     1:02  {bar_line}"[:59] + "…",
        "report            0:01",
    ]
    assert file.getvalue().endswith("\x1b[2K")  # nothing of it stays
