"""What Hydra makes of arms, seeds and runs: every arm with every seed, and the suite's runs."""

import shutil

import pytest

from pipelines.config.compose import compose_config
from tests.support.settings import composed_by_hydra, refusal


def experiment(*overrides):
    return composed_by_hydra("experiment=kappa_text", *overrides)


def test_every_arm_runs_once_with_every_seed_and_is_scored_by_the_suite():
    made = experiment("seeds=[7,3]", "arms.free_k1.tokens=4_096_000")
    assert len(made.runs) == 2 * len(made.arms) == 16
    for name, arm in made.arms.items():
        for seed in (7, 3):
            assert vars(made.runs[f"{name}_s{seed}"]) == vars(arm) | {"seed": seed}
    assert made.runs["free_k1_s3"].tokens == 4_096_000  # a change of an arm reaches its runs
    assert made.suite_runs == {name: "stdlib" for name in made.runs}


def test_expectations_name_arms_and_not_the_runs_of_their_seeds():
    entry = "expectation=[{{arm: {}, than: baseline, bound: lower}}]"
    assert experiment(entry.format("free_k1")).expectation
    said = refusal(experiment, entry.format("free_k1_s0"))
    assert "expectation.0.arm: 'free_k1_s0' is not one of" in said


def test_a_suite_scores_the_runs_on_text_alone():
    made = composed_by_hydra("experiment=four_thresholds")
    assert made.suite_runs == {"text_baseline": "stdlib", "text_free_k1_2": "stdlib"}
    assert composed_by_hydra("experiment=four_thresholds", "suite=none").suite_runs == {}


MISTAKES = [
    ("seeds=[]", "seeds: empty; arms need at least one"),
    ("seeds=[a]", "seeds.0: Value 'a' of type 'str' could not be converted"),
    ("seeds=[0,-1]", "seeds.1: -1 is not a number"),
    ("seeds=[1,1]", "seeds.1: 1 is repeated"),
    ("arms.free_k1=3", "arms.free_k1: Invalid type assigned: int is not a subclass of Arm"),
    ("+arms.free_k1.seed=3", "arms.free_k1.seed: 'seed' is not one of data, model"),
    ("arms.free_k1.tokens=???", "arms.free_k1.tokens is missing"),
    ("arms.free_k1.kappa_bits=99", "arms.free_k1.kappa_bits: 99.0 is outside 0 … 8"),
    ("+arms={A: {data: stdlib, model: text_small, kappa_bits: 1, tokens: 9999}}", "arms.A: a name"),
]


@pytest.mark.parametrize(("override", "words"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_one_line_with_the_key_as_written(override, words):
    line = refusal(experiment, override).removeprefix("conf/: ").removeprefix("conf: ")
    assert line.startswith(words), line


def test_a_copied_experiment_that_keeps_its_name_is_refused(conf):
    """It would replace the results of the other."""
    copied = conf / "conf/experiment/copied.yaml"
    shutil.copy(conf / "conf/experiment/smoke.yaml", copied)
    words = "name: conf/experiment/copied.yaml and conf/experiment/smoke.yaml are both called smoke"
    for override in ("experiment=copied", "experiment=smoke"):
        assert refusal(compose_config, [override]).startswith(f"conf/: {words}")
    assert compose_config(["experiment=copied", "name=other"]).name == "other"
    copied.write_text(copied.read_text().replace("name: smoke", "name: 'smoke_2' # mine"))
    assert compose_config(["experiment=copied"]).name == "smoke_2"


COMPUTED = [
    "runs.free_k1_s0.kappa_bits=0.25",
    "~runs.free_k1_s0",
    "+runs.extra={data: stdlib, model: text_small, kappa_bits: 1, tokens: 9999}",
    "trainings.free_k1_s0.run=baseline_s0",
    "suite_runs.free_k1_s0=other",
]


@pytest.mark.parametrize("override", COMPUTED)
def test_an_override_of_what_is_made_of_arms_and_seeds_is_refused(override):
    """It would be lost: Hydra would change a copy."""
    said = refusal(experiment, override)
    assert said.startswith(f"conf/: {override.lstrip('+~').partition('=')[0]}")
    assert "computed from other settings, such as arms and seeds" in said
