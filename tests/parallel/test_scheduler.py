"""Stages side by side, with little scripts for stages."""

import os
import signal
import sys
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from unittest.mock import Mock

import pytest

from pipelines.parallel import scheduler as scheduler_module
from pipelines.parallel.scheduler import Graph, Scheduler, StageJob, error_of
from pipelines.parallel.screen import Screen
from tests.support.mutants import rejects

LOGS = Path("logs/smoke")
WAIT_FOR = """
import pathlib, time
while not pathlib.Path({path!r}).exists():
    time.sleep(0.01)
"""


class Scripts(Scheduler):
    """Stages are scripts; writes down who starts and ends, and in which slot."""

    def __init__(self, scripts, slots, lock):
        super().__init__(slots, LOGS, lock, Screen(len(scripts)))
        self.scripts, self.events = scripts, []

    def command(self, name):
        return [sys.executable, "-c", self.scripts[name]]

    def start(self, name):
        super().start(name)
        self.events.append(f"+{name}")
        assert len({job.slot for job in self.jobs}) == len(self.jobs) <= len(self.slots)

    def end(self, job, *rest):
        super().end(job, *rest)
        self.events.append(f"-{job.name}")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a graph of scripts to its end; all that it has started is gone after the test."""
    monkeypatch.chdir(tmp_path)
    look_seconds = scheduler_module.LOOK_SECONDS / 20
    monkeypatch.setattr(scheduler_module, "LOOK_SECONDS", look_seconds)
    made = []
    with open("lock", "ab") as lock:

        def run(needs, scripts=None, slots=2, priorities=None):
            every = dict.fromkeys(needs, "") | (scripts or {})
            scripts = Scripts(every, [{"SLOT": str(i)} for i in range(slots)], lock.fileno())
            made.append(scripts)
            graph = Graph({name: set(others) for name, others in needs.items()}, set())
            return scripts, scripts.run(graph, set(needs), priorities or {})

        yield run
    for scripts in made:
        for job in scripts.jobs:
            job.process.kill()


NEEDS = {"a": "", "b": "", "c": "a", "d": "ab", "e": "d"}


@rejects("Scheduler.run: «graph.needs[name] & names→set()»", "stages that do not wait")
@pytest.mark.parametrize("slots", [1, 2])
def test_each_runs_once_and_after_what_it_needs(run, slots):
    every = {"a": "b", "b": "ce", "c": "", "d": "c", "e": ""}  # the order is not that of the names
    scripts, outcome = run(every, slots=slots)
    events = scripts.events
    assert sorted(events) == sorted(sign + name for name in every for sign in "+-")
    for name, needs in every.items():
        for need in needs:
            assert events.index(f"-{need}") < events.index(f"+{name}")
    assert outcome.seconds.keys() == every.keys()
    assert not outcome.failed and not outcome.interrupted
    assert scripts.screen.ended == len(every)


def test_two_run_at_the_same_time_each_in_its_slot(run):
    meet = "import os, pathlib; pathlib.Path({mine!r}).write_text(os.environ['SLOT'])"
    scripts = {
        name: meet.format(mine=name) + WAIT_FOR.format(path=other)
        for name, other in (("a", "b"), ("b", "a"))
    }
    run({"a": "", "b": ""}, scripts)
    assert {Path(name).read_text() for name in "ab"} == {"0", "1"}


def test_the_longest_way_is_started_first(run):
    """Twice: logs of an earlier call are there then."""
    for priorities, order in (({"c": 2.0, "b": 1.0, "d": 0.0}, "cbad"), ({"d": 1.0}, "dabc")):
        scripts, _ = run(dict.fromkeys("abcd", ""), slots=1, priorities=priorities)
        assert [name for sign, name in scripts.events if sign == "+"] == [*order]


def test_the_seconds_of_a_stage_are_those_since_it_began(monkeypatch):
    monkeypatch.setattr(scheduler_module, "monotonic", lambda: 107.5)
    assert StageJob("a", 0, Path("a.log"), Mock(), began=100.0).seconds == 7.5


@rejects("Scheduler.end: log«→; sorter.done(job.name)» self", "what needs a failed stage goes on")
def test_one_that_fails_or_is_killed_stops_what_needs_it_and_nothing_else(run):
    failing = "print('data: a lamp is broken'); raise SystemExit(2)"
    killed = "import os; os.kill(os.getpid(), 9)"
    scripts, outcome = run(NEEDS | {"f": "b", "g": "b", "h": "g"}, {"a": failing, "g": killed})
    assert outcome.seconds.keys() == {"b", "f"}
    assert outcome.failed == {"a": LOGS / "a.log", "g": LOGS / "g.log"}
    assert error_of(LOGS / "a.log") == "data: a lamp is broken"
    assert not {"+c", "+d", "+e", "+h"} & set(scripts.events)


@pytest.mark.parametrize(
    "end",
    [
        "ERROR: failed to reproduce 'a': failed to run: a, is busy, it is being blocked by",
        "ERROR: failed to reproduce 'a': output 'x' does not exist",
    ],
)
def test_what_a_stage_says_itself_is_no_lock_whatever_its_encoding(run, end):
    said = b"caf\xe9: Unable to acquire lock\n" + end.encode()
    fails_once = f"""if True:
        import os
        if os.path.exists("tried"):
            os._exit(0)
        open("tried", "w").close()
        os.write(1, {said!r})
        os._exit(1)
    """
    _, outcome = run({"a": "", "b": ""}, {"a": fails_once})
    assert outcome.failed.keys() == {"a"} and outcome.seconds.keys() == {"b"}


@rejects("Scheduler.no_orphans: except «BaseException→Exception»", "stages outlive an interrupt")
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_no_stage_goes_on_alone_if_the_scheduler_fails(run, monkeypatch, error):
    wait = "import time; open('begun', 'w').close()\nwhile True: time.sleep(0.01)"

    def fail(self, logs):
        if Path("begun").exists():
            raise error

    monkeypatch.setattr(Screen, "update", fail)
    stopped, interrupt = [], Scripts.interrupt
    monkeypatch.setattr(
        Scripts, "interrupt", lambda self: stopped.extend(self.jobs) or interrupt(self)
    )
    with pytest.raises(error):
        run({"a": ""}, {"a": wait})
    assert [job.process.returncode for job in stopped] == [-signal.SIGINT]


def test_one_that_another_command_of_dvc_locks_out_is_tried_again(run):
    locked = """if True:
        import pathlib, sys
        with open("tries", "a+") as file:
            tries = file.tell()
            file.write("x")
        if tries < 2:
            sys.exit("ERROR: '/x' is busy, it is being blocked by:\\n  (PID 7): dvc repro")
    """
    scripts, outcome = run(NEEDS, {"d": locked})
    assert outcome.seconds.keys() == NEEDS.keys()
    assert scripts.events.count("+d") == 3


@rejects("scheduler.interrupts: «numbers.append(signal.SIGHUP)→pass»", "stages outlive a terminal")
def test_the_end_of_the_terminal_is_an_interrupt_but_not_under_nohup():
    before = signal.getsignal(signal.SIGHUP)
    try:
        for given in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(signal.SIGHUP, given)
            with scheduler_module.interrupts():
                kept = signal.getsignal(signal.SIGHUP) == given
            assert kept == (given == signal.SIG_IGN)
            assert signal.getsignal(signal.SIGHUP) == given
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.fixture
def no_nohup():
    """A terminal's end is not ignored, though the tests may run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_reaches_every_stage_and_starts_no_other(run, no_nohup, number):
    stopped = """if True:
        import os, pathlib, signal, sys, time
        me = pathlib.Path({name!r})
        signal.signal(signal.SIGINT, lambda *_: (me.write_text("stopped"), os._exit(130)))
        open({name!r} + ".ready", "w").close()
        if {name!r} == "b":
            while not os.path.exists("a.ready"):
                time.sleep(0.01)
            os.kill({me}, {number})
        while True:
            time.sleep(0.01)
    """
    scripts = {name: stopped.format(name=name, me=os.getpid(), number=int(number)) for name in "ab"}
    before = signal.getsignal(number)
    made, outcome = run(NEEDS | {"ready": ""}, scripts)
    assert outcome.interrupted and not outcome.failed
    assert [Path(name).read_text() for name in "ab"] == ["stopped", "stopped"]
    assert {event for event in made.events if event[0] == "+"} == {"+a", "+b"}
    assert signal.getsignal(number) == before


@rejects("Scheduler.start: «pass_fds=[self.lock],→»", "the pipeline is free while stages run on")
def test_the_lock_is_held_for_as_long_as_a_stage_runs(run, tmp_path):
    """Even if who started it is killed: the stage has the lock open."""
    look = """if True:
        import os
        held = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        print([path for path in held if path.endswith("/lock")])
    """
    run({"a": ""}, {"a": look})
    assert (LOGS / "a.log").read_text() == f"{[str(tmp_path / 'lock')]}\n"
    with open("lock", "ab") as other:
        flock(other, LOCK_EX | LOCK_NB)  # nobody has it any more


def test_the_error_is_the_end_of_what_the_stage_said(tmp_path):
    log = tmp_path / "a.log"
    said = [f"line {i}" for i in range(40)]
    dvc = "ERROR: failed to reproduce 'a': failed to run: python -m pipelines.a, exited with 2"
    log.write_text("\n".join([*said, "", dvc, ""]))
    assert error_of(log).splitlines() == said[-20:]
    own = "ERROR: failed to reproduce 'a': Unable to read RWLock-file '.dvc/tmp/rwlock'"
    log.write_text(own)
    assert error_of(log) == own
