"""The planner in this process, without composing an experiment twice."""

from contextlib import chdir
from functools import cache
from pathlib import Path

from pipelines.compose import compose_config
from pipelines.config.load import parse
from pipelines.config.schema import Experiment

ROOT = Path(__file__).parents[2]


@cache  # no test changes an experiment
def composed(*overrides: str) -> Experiment:
    with chdir(ROOT):
        return parse(compose_config(list(overrides)), "conf/")
