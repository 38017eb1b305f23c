"""Seeds as an axis of an experiment: every arm with every seed, and one line for a mistake."""

import subprocess
import sys
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
    return parse(compose_config(["experiment=kappa_text", *overrides]), "conf")


def test_every_arm_runs_once_with_every_seed():
    made = experiment("seeds=[7,3]")
    assert len(made.runs) == 2 * len(made.arms) == 16
    for name, arm in made.arms.items():
        for seed in (7, 3):
            assert vars(made.runs[f"{name}_s{seed}"]) == vars(arm) | {"seed": seed}


def test_a_change_of_an_arm_reaches_its_runs():
    made = experiment("arms.free_k1.tokens=4_096_000", "arms.baseline.extra_blocks=3")
    assert {made.runs[f"free_k1_s{seed}"].tokens for seed in (0, 1)} == {4_096_000}
    assert {made.runs[f"baseline_s{seed}"].extra_blocks for seed in (0, 1)} == {3}


MISTAKES = [
    ("seeds=[]", "seeds: empty; arms need at least one"),
    ("seeds=3", "seeds: Invalid value assigned: int is not a ListConfig"),
    ("seeds=[0,1,0]", "seeds.2: 0 is repeated"),
    ("seeds=[a]", "seeds.0: Value 'a' of type 'str' could not be converted"),
    ("seeds=[0,-1]", "seeds.1: -1 is not a number"),
    ("arms.free_k1=3", "arms.free_k1: Invalid type assigned: int is not a subclass of Arm"),
    ("+arms.free_k1.seed=3", "arms.free_k1.seed: Key 'seed' not in 'Arm'"),
    ("+arms.free_k1.kapa_bits=1", "arms.free_k1.kapa_bits: Key 'kapa_bits' not in"),
    ("arms.free_k1.kapa_bits=1", "arms.free_k1.kapa_bits: Key 'kapa_bits' not in"),
    ("arms.free_k1.tokens=???", "arms.free_k1.tokens is missing"),
    ("arms.free_k1.kappa_bits=99", "arms.free_k1.kappa_bits: 99.0 is outside 0 … 8"),
    ("arms.free_k1.extra_blocks=1", "arms.free_k1.extra_blocks: 1; a baseline may"),
    ("+arms={A: {data: stdlib, model: text_small, kappa_bits: 1, tokens: 9999}}", "arms.A: a name"),
]


@pytest.mark.parametrize(
    "override",
    [
        "runs.free_k1_s0.kappa_bits=0.25",
        "runs.free_k1_s0={kappa_bits: 0.25}",
        "++runs.free_k1_s0.kappa_bits=0.25",
        "~runs.free_k1_s0",
        "+runs.extra={data: stdlib, model: text_small, kappa_bits: 1, tokens: 9999}",
        "trainings.free_k1_s0.run=baseline_s0",
        "suite_runs.free_k1_s0=other",
    ],
)
def test_an_override_of_what_is_made_of_arms_and_seeds_is_refused(override):
    """It would be lost: Hydra would change a copy."""
    key = override.lstrip("+~").partition("=")[0]
    with pytest.raises(UserError) as caught:
        experiment(override)
    assert str(caught.value).startswith(f"conf/: {key}")
    assert "computed from other settings, such as arms and seeds" in str(caught.value)


@pytest.mark.parametrize(("override", "words"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_one_line_with_the_key_as_written(override, words):
    with pytest.raises(UserError) as caught:
        experiment(override)
    line = str(caught.value).removeprefix("conf/: ").removeprefix("conf: ")
    assert line.startswith(words), line
    assert "\n" not in line


def test_compose_ends_with_exit_code_2():
    command = [sys.executable, "-m", "pipelines.compose", "experiment=kappa_text", "seeds=[1,1]"]
    before = (ROOT / "params.yaml").read_bytes()
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr == "error: conf/: seeds.1: 1 is repeated\n"
    assert (ROOT / "params.yaml").read_bytes() == before
