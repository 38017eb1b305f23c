"""Plans of the sweeps in conf/sweep/."""

from pipelines.sweep.plan import Plan, compose_plan


def plan_of(*overrides: str, name: str = "smoke") -> Plan:
    return compose_plan(name, list(overrides))[0]
