"""Brings an experiment up to date: composes it, waits for its turn, and runs what has changed."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from dvc.exceptions import DvcException

from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.compose import compose_valid, write_params
from pipelines.config.load import load_experiment
from pipelines.config.schema import Experiment
from pipelines.host.dvc import (
    allow_no_git,
    dvc_command,
    dvc_environment,
    git_refusal,
    pipeline_alone,
    repair,
)
from pipelines.host.errors import UserError
from pipelines.host.files import report_folder
from pipelines.parallel.plan import Assumptions, RunPlan
from pipelines.parallel.scheduler import (
    Graph,
    Scheduler,
    StageOutcome,
    changed_stages,
    error_of,
    own_lines,
    read_graph,
    read_log,
)
from pipelines.parallel.screen import Screen, duration
from pipelines.parallel.slots import Slot, make_slots

RAN = re.compile(r"^Running stage '(.+)':$", re.M)
ANY_GPU = Assumptions(flops=1.0, mfu=1.0, memory=1.0, price=None)  # FLOPs and bytes need none


def dvc_repro(output: BinaryIO | None = None) -> int:
    """Run `dvc repro` with this Python's commands; returns its exit code."""
    command = dvc_command("--wait-for-lock", "repro")
    process = subprocess.Popen(command, env=dvc_environment(), stdout=output)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # DVC got it as well, and is ending its stage
            continue


def main(overrides: Sequence[str], wait: bool, jobs: str | None) -> None:
    compose_valid(overrides)  # a mistake ends this before it waits
    if reason := git_refusal(Path()):  # DVC would fail after its first stage, or its last
        raise UserError(reason)
    with pipeline_alone(wait) as lock:
        config = compose_valid(overrides)
        if allow_no_git(Path()):
            print(
                "no git here: DVC works without it from now on (core.no_scm in .dvc/config.local)"
            )
        repair()
        write_params(config)
        bring_up_to_date(load_experiment(), jobs, lock)
    print((report_folder(config.name) / "summary.txt").read_text(encoding="utf-8"), end="")


def bring_up_to_date(experiment: Experiment, jobs: str | None, lock: int) -> None:
    """Run what has changed: by DVC alone where there is one slot, else side by side."""
    plans = [RunPlan(RunSpec(experiment, name), ANY_GPU) for name in experiment.runs]
    if jobs == "ray" or os.environ.get("RAY_ADDRESS"):
        slots = cluster_slots(experiment, None if jobs == "ray" else jobs)
    else:
        largest = max(each.memory.total for each in plans)
        slots = make_slots(experiment.compute, len(plans), largest, int(jobs) if jobs else None)
    if len(slots) == 1:
        if code := dvc_repro():
            raise SystemExit(code)
        return
    costs = {stage: flops for each in plans for stage, flops in stage_flops(each).items()}
    try:
        side_by_side(slots, costs, Path("logs") / experiment.name, lock)
    except DvcException as error:
        raise UserError(" ".join(str(error).split())) from None


def stage_flops(plan: RunPlan) -> dict[str, float]:
    """Rough FLOPs of a run's training and evaluation; the longest way is started first."""
    name = plan.spec.name
    return {f"train@{name}": plan.flops, f"evaluate@{name}": plan.evaluation_flops}


def cluster_slots(experiment: Experiment, jobs: str | None) -> list[Slot]:
    """Slots on the cluster of RAY_ADDRESS, or on one of this machine. Stages go to it by
    themselves, each with the resources that `compute` asks for.
    """
    import ray  # all else needs none

    from pipelines.cluster.connection import connect, runs_at_once

    connect()
    fitting = runs_at_once(experiment.compute)
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    return [{} for _ in range(int(jobs) if jobs else min(fitting, len(experiment.runs)))]


def side_by_side(slots: list[Slot], costs: dict[str, float], logs: Path, lock: int) -> None:
    """Run what has changed side by side, and then `dvc repro`, which should have nothing to do."""
    graph = read_graph()
    always = graph.upstream(graph.always)
    with Screen(len(graph.needs)) as screen:
        threads = slots[0].get("OMP_NUM_THREADS")
        each = f" (threads of each: {threads})" if threads else ""
        screen.say(f"{len(slots)} stages side by side{each}; logs are in {logs}/")
        screen.say("a report on the runs that are finished: ftlab report --so-far")
        scheduler = Scheduler(slots, logs, lock, screen)
        # What has changed is known only after the stages that look at files and code every time
        outcome = scheduler.run(graph, always, {})
        if not outcome.failed and not outcome.interrupted:
            for stage in sorted(outcome.seconds):  # say which code has changed
                for line in own_lines(logs / f"{stage}.log"):
                    screen.say(line)
            inputs = {name: names for name, names in changed_stages().items() if name not in always}
            for names in sorted({tuple(names) for names in inputs.values() if names}):
                which = ", ".join(name for name in inputs if tuple(inputs[name]) == names)
                screen.say(f"{which}: run again, as these changed: {', '.join(names)}")
            changed = graph.downstream(inputs) - always
            screen.total = len(always | changed)
            outcome = scheduler.run(graph, changed, graph.priorities(costs))
        report(screen, outcome, graph)
    # Whatever has changed while the stages ran is run again
    again = logs / "repro.log"
    with open(again, "wb") as file:
        if code := dvc_repro(file):
            print(error_of(again), file=sys.stderr)
            raise SystemExit(code)
    ran = set(RAN.findall(read_log(again))) - always
    if ran:
        print(f"changed while others ran, and run again: {', '.join(sorted(ran))}")


def report(screen: Screen, outcome: StageOutcome, graph: Graph) -> None:
    """Show what became of the stages; raises UserError if one failed, SystemExit if stopped."""
    work = sum(outcome.seconds.values())
    total = len(graph.needs)
    screen.say(
        f"{len(outcome.seconds)} of {total} stages had work to do: {duration(work)} of it in "
        f"{duration(screen.elapsed)}"
    )
    if outcome.failed:
        first, log = next(iter(outcome.failed.items()))
        screen.say(error_of(log))
        others = [name for name in outcome.failed if name != first]
        also = f"; so did {', '.join(others)}" if others else ""
        waiting = sorted(graph.downstream(outcome.failed) - set(outcome.failed))
        left = f"; not started: {', '.join(waiting)}" if waiting else ""
        raise UserError(f"{first} failed; its output is in {log}{also}{left}")
    if outcome.interrupted:
        screen.say("stopped; the same command continues from here")
        raise SystemExit(130)
