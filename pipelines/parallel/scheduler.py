"""Runs stages of a graph side by side, each as `dvc repro --single-item` in a slot of its own.

The graph is the pipeline as DVC reads it from dvc.yaml: stages, what each depends on, what changed.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from dvc.repo import Repo

from pipelines.host.dvc import dvc_command, dvc_environment
from pipelines.parallel.screen import Screen, duration
from pipelines.parallel.slots import Slot

LOOK_SECONDS = 0.2  # between two looks at the processes
LOCKED = ("is busy, it is being blocked by", "Unable to acquire lock")  # by another DVC command
ERROR = re.compile("^ERROR: ", re.MULTILINE)  # DVC's; the last is why it ended
DVC_GOES_ON = r"^(?:Generating lock file|Updating lock file|To track the changes|Use `dvc push`)"
OWN = re.compile(rf"^> .*\n((?s:.*?))(?:{DVC_GOES_ON}|\Z)", re.MULTILINE)
# whatever the stage said
FAILED_LINE = re.compile("^ERROR: failed to reproduce .*: failed to run: ")
MAX_ERROR_LINES = 20


@dataclass
class Graph:
    """Stages by the names that DVC gives them: `train@baseline`."""

    needs: dict[str, set[str]]  # the stages whose outputs each reads
    always: set[str]  # stages that DVC runs at every call

    def upstream(self, names: Iterable[str]) -> set[str]:
        """The named stages and all that they need, directly or not."""
        every: set[str] = set()
        new = set(names)
        while new:
            every |= new
            new = {need for name in new for need in self.needs[name]} - every
        return every

    def downstream(self, names: Iterable[str]) -> set[str]:
        """The named stages and all that need them, directly or not."""
        wanted = set(names)
        return {name for name in self.needs if self.upstream([name]) & wanted}

    def priorities(self, costs: dict[str, float]) -> dict[str, float]:
        """For each stage, the cost of the longest way from its start to the end of the pipeline."""
        longest = dict.fromkeys(self.needs, 0.0)
        # From the last stage back, so that all that need a stage have been seen before it
        for name in reversed([*TopologicalSorter(self.needs).static_order()]):
            longest[name] += costs.get(name, 0.0)
            for need in self.needs[name]:
                longest[need] = max(longest[need], longest[name])
        return longest

    def elapsed(self, seconds: dict[str, float], slots: int) -> float:
        """How long the pipeline takes with so many ``slots``, given each stage's ``seconds``."""
        priorities = self.priorities(seconds)
        sorter = TopologicalSorter(self.needs)
        sorter.prepare()
        now, ready = 0.0, [*sorter.get_ready()]
        running: list[tuple[float, str]] = []  # when each ends
        while ready or running:
            ready.sort(key=lambda name: -priorities[name])
            while ready and len(running) < slots:
                name = ready.pop(0)
                heappush(running, (now + seconds[name], name))
            now, ended = heappop(running)
            sorter.done(ended)
            ready += sorter.get_ready()
        return now


def read_graph() -> Graph:
    """The graph of the current folder's pipeline, with params.yaml as it is now.

    Raises DvcException, for example if two stages write one path.
    """
    with Repo(".") as repo:
        graph = repo.index.graph
        names = {stage: stage.addressing for stage in graph}
        needs = {
            name: {names[need] for need in graph.successors(stage)} for stage, name in names.items()
        }
        return Graph(needs, {name for stage, name in names.items() if stage.always_changed})


def changed_stages() -> dict[str, list[str]]:
    """Stages whose command, parameters, dependencies or outputs differ from dvc.lock, with the
    names of the dependencies and parameters that have changed since a stage ran last.
    """
    changed = {}
    with Repo(".") as repo:
        ran = {s.addressing for s in repo.index.stages if any(dep.hash_info for dep in s.deps)}
        for name, reasons in repo.status().items():
            stage = name.rpartition(":")[2]
            inputs: dict[str, Any] = {}
            for reason in reasons if stage in ran else []:
                inputs |= reason.get("changed deps", {}) if isinstance(reason, dict) else {}
            settings = inputs.pop("params.yaml", {})  # a word if there is no such file
            inputs |= settings if isinstance(settings, dict) else {}
            changed[stage] = sorted(key for key, how in inputs.items() if how == "modified")
    return changed


@dataclass
class StageJob:
    """A stage at work."""

    name: str
    slot: int
    log: Path
    process: subprocess.Popen[bytes]
    began: float = field(default_factory=monotonic)

    @property
    def seconds(self) -> float:
        return monotonic() - self.began


@dataclass
class StageOutcome:
    """What became of the stages. The rest was never started, because what it needs was missing."""

    seconds: dict[str, float] = field(default_factory=dict)  # of stages that ended well
    failed: dict[str, Path] = field(default_factory=dict)  # their logs, the first to fail first
    interrupted: bool = False


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Collects the signals that ask this process to stop, as they come: Ctrl-C, SIGTERM, or the
    terminal's end, which nohup ignores.
    """
    asked: list[int] = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {
        number: signal.signal(number, lambda number, _: asked.append(number)) for number in numbers
    }
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Scheduler:
    """Starts a stage once all that it needs has ended well and a slot is free."""

    def __init__(self, slots: list[Slot], logs: Path, lock: int, screen: Screen) -> None:
        """``lock`` is the file descriptor that keeps others out of the pipeline. The stages hold
        it, too, so it is kept for as long as one of them runs, even if this process is killed.
        """
        self.slots, self.logs, self.lock, self.screen = slots, logs, lock, screen
        self.free = [*reversed(range(len(slots)))]  # the last is taken first
        self.jobs: list[StageJob] = []
        self.outcome = StageOutcome()
        logs.mkdir(parents=True, exist_ok=True)

    def run(self, graph: Graph, names: set[str], priorities: dict[str, float]) -> StageOutcome:
        """Run the stages ``names``, high priority first; what else they need is there already."""
        sorter = TopologicalSorter({name: graph.needs[name] & names for name in sorted(names)})
        sorter.prepare()
        ready: list[str] = []
        with interrupts() as asked, self.no_orphans():
            answered = 0  # signals that were passed on
            while True:
                # Start what is ready, the longest way first. After a signal nothing is started, and
                # the loop ends with the last stage
                ready += sorter.get_ready()
                ready.sort(key=lambda name: -priorities.get(name, 0.0))
                while ready and self.free and not asked:
                    self.start(ready.pop(0))
                if not self.jobs:
                    break
                sleep(LOOK_SECONDS)
                # Every further signal is passed on to all stages, too
                if len(asked) > answered:
                    answered = len(asked)
                    self.interrupt()
                for job in [job for job in self.jobs if job.process.poll() is not None]:
                    self.end(job, sorter, ready)
                self.screen.update([(job.name, job.log, job.seconds) for job in self.jobs])
            self.outcome.interrupted |= bool(asked)  # between two stages, too
        return self.outcome

    @contextmanager
    def no_orphans(self) -> Iterator[None]:
        """Stop the stages and wait for them if this process fails."""
        try:
            yield
        except BaseException:
            self.interrupt()
            for job in self.jobs:
                job.process.wait()
            raise

    def start(self, name: str) -> None:
        """Start a stage in a free slot, with that slot's cores and GPUs."""
        slot = self.free.pop()
        log = self.logs / f"{name}.log"
        environment = {**dvc_environment(), **self.screen.environment, **self.slots[slot]}
        with open(log, "wb") as file:
            process = subprocess.Popen(
                self.command(name),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a signal is passed on to all of it, once
                pass_fds=[self.lock],
            )
        self.jobs.append(StageJob(name, slot, log, process))

    def command(self, name: str) -> list[str]:
        return dvc_command("--wait-for-lock", "repro", "--single-item", name)

    def end(self, job: StageJob, sorter: "TopologicalSorter[str]", ready: list[str]) -> None:
        """Free a stage's slot, and see to what comes of it: if it did well, others become ready; if
        another DVC command kept it from running, it is ready itself.
        """
        self.jobs.remove(job)
        self.free.append(job.slot)
        if job.process.returncode == 0:
            sorter.done(job.name)
            self.outcome.seconds[job.name] = job.seconds
            self.screen.ended += 1
            self.screen.say(f"{job.name}: done in {duration(job.seconds)}")
        elif self.outcome.interrupted:
            self.screen.say(f"{job.name}: stopped after {duration(job.seconds)}")
        elif locked_out(job.log):
            ready.append(job.name)
            self.screen.say(f"{job.name}: another DVC command blocks it; trying again")
        else:
            self.outcome.failed[job.name] = job.log
            self.screen.say(f"{job.name}: failed after {duration(job.seconds)}: {job.log}", "red")

    def interrupt(self) -> None:
        """Ask all running stages to stop."""
        self.outcome.interrupted = True
        for job in self.jobs:
            with suppress(ProcessLookupError):
                os.killpg(job.process.pid, signal.SIGINT)
        self.screen.say(f"stopping {', '.join(job.name for job in self.jobs)}")


def read_log(log: Path) -> str:
    """What a stage and DVC printed, in whatever encoding."""
    return log.read_text(encoding="utf-8", errors="replace")


def own_lines(log: Path) -> list[str]:
    """What a stage printed, without what DVC printed before and after."""
    printed = OWN.search(read_log(log))
    return printed[1].splitlines() if printed else []


def locked_out(log: Path) -> bool:
    """Whether DVC's last error says that another of its commands kept it from running the stage."""
    *_, last = ERROR.split(read_log(log))
    return any(words in last for words in LOCKED) and not FAILED_LINE.match(f"ERROR: {last}")


def error_of(log: Path) -> str:
    """The last lines that a stage printed, without what DVC says about every failure."""
    lines = read_log(log).splitlines()
    own = [line for line in lines if line.strip() and not FAILED_LINE.search(line)]
    return "\n".join(own[-MAX_ERROR_LINES:])
