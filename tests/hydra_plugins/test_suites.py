"""Which runs a suite scores: those on text, if it has benchmarks at all."""

from pathlib import Path

import pytest

from pipelines.common.errors import UserError
from pipelines.compose import compose_config
from pipelines.config.load import parse

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def experiment(*overrides):
    return parse(compose_config(["experiment=quickstart", *overrides]), "conf")


def test_a_suite_scores_the_runs_on_text_alone():
    assert experiment().suite_runs == {"text_baseline": "stdlib", "text_free_k1_2": "stdlib"}


def test_without_benchmarks_no_run_is_scored():
    assert experiment("suite=none").suite_runs == {}


def test_every_arm_is_scored_with_every_seed():
    made = experiment("experiment=kappa_text", "seeds=[3]")
    assert made.suite_runs == {name: "stdlib" for name in made.runs}


MISTAKES = [
    ("suite=papper", "In 'config': Could not find 'suite/papper'"),
    ("suite.limit=0", "suite.limit: 0 must be at least 1"),
    ("suite.samples=0", "suite.samples: 0 must be at least 1"),
    ("suite.batch_tokens=-1", "suite.batch_tokens: -1 must be at least 1"),
    ("suite.seed=-1", "suite.seed: -1 is outside 0"),
    ("suite.scoring=prior", "suite.scoring: Invalid value 'prior', expected one of"),
    ("suite.run_code=perhaps", "suite.run_code: Value 'perhaps'"),
    (
        "+suite.tasks={x: {task: piqa, key: acc}}",
        "suite.tasks.x.key: 'acc' is not <metric>,<filter>",
    ),
    (
        "+suite.tasks={x: {task: piqa, key: 'a,b', shots: -1}}",
        "suite.tasks.x.shots: -1 is negative",
    ),
    ("+suite.tasks={x: {task: piqa}}", "suite.tasks.x.key is missing"),
    ("+suite.tasks={X: {task: piqa, key: 'a,b'}}", "suite.tasks.X: a name is lower-case"),
    ("+suite.limits=3", "suite.limits: Key 'limits' not in 'Suite'"),
    ("runs.text_baseline=null", "runs.text_baseline"),
    ("+suite_runs={nobody: stdlib}", "suite_runs.nobody: stdlib, not left out; conf/"),
]


@pytest.mark.parametrize(("override", "words"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_one_line_with_the_key(override, words):
    with pytest.raises(UserError) as caught:
        experiment(override)
    line = str(caught.value).removeprefix("conf/: ").removeprefix("conf: ")
    assert line.startswith(words), line
    assert "\n" not in line
