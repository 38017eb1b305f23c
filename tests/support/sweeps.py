"""Plans of the sweeps in conf/sweep/."""

from contextlib import chdir
from functools import cache

from pipelines.sweep.plan import SweepPlan, compose_plan
from tests import ROOT


@cache  # no test changes a plan
def plan_of(*overrides: str, name: str = "smoke") -> SweepPlan:
    with chdir(ROOT):
        return compose_plan(name, list(overrides))[0]
