"""Plans of the sweeps in conf/sweep/."""

from contextlib import chdir
from functools import cache
from pathlib import Path

from pipelines.sweep.plan import SweepPlan, compose_plan

ROOT = Path(__file__).parents[2]


@cache  # no test changes a plan
def plan_of(*overrides: str, name: str = "smoke") -> SweepPlan:
    with chdir(ROOT):
        return compose_plan(name, list(overrides))[0]
