"""What a run may start from, and the list by which DVC makes its parent a dependency."""

from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from pipelines.config.arms import arm_of_each, family_of, group_by_seed
from pipelines.config.init_from import InitFrom
from pipelines.config.load import parse
from pipelines.host.errors import UserError
from tests.support.mutants import rejects
from tests.support.settings import changed, composed_by_hydra, refusal, smoke

ROOT = Path(__file__).parents[2]
CHILD = "runs.free_k1.init_from="
SEPARATE = "runs.free_k1.latent.encoder=separate"


def test_a_list_that_does_not_fit_is_refused():
    config = changed()
    config.trainings.free_k1.parent = "elsewhere"
    with pytest.raises(UserError, match=r"^conf: trainings\.free_k1: .*elsewhere.*, not \{"):
        parse(config, "conf")
    del config.trainings
    with pytest.raises(UserError, match=r"^conf: trainings\.baseline: left out, not \{"):
        parse(config, "conf")


@rejects("dvc.yaml: «- ${item.parent}→»", "training without its parent in DVC")
def test_dvc_knows_the_path_of_every_parent():
    text = "runs.text_free_k1_2.init_from={hf: models/llama}"
    made = composed_by_hydra("experiment=smoke", f"{CHILD}{{run: baseline}}", text)
    parents = {name: training.parent for name, training in made.trainings.items()}
    assert parents == {
        "baseline": "data/tokens/target",
        "free_k1_8": "data/tokens/target",
        "free_k1": "checkpoints/smoke/baseline",
        "text_free_k1_2": "models/llama",
    }
    stage = OmegaConf.load(ROOT / "dvc.yaml").stages.train
    plain = OmegaConf.to_container(stage, resolve=False)
    assert plain["foreach"] == "${trainings}" and "${item.parent}" in plain["do"]["deps"]


@rejects("arms.family_of: «arms[start.run]→start.run»", "parents of other seeds kept apart")
@rejects('resolvers.each_seed: «seed→seeds[0]»}"}', "a child of every seed starts from one run")
def test_an_arm_starts_from_the_run_of_its_own_seed_and_stays_one_arm():
    parent = "arms.free_k1.init_from.run=baseline"
    made = composed_by_hydra("experiment=kappa_text", "seeds=[3,5]", parent)
    starts = [made.runs[f"free_k1_s{seed}"].init_from.run for seed in (3, 5)]
    assert starts == ["baseline_s3", "baseline_s5"]
    assert made.trainings["free_k1_s5"].parent == "checkpoints/kappa_text/baseline_s5"
    assert group_by_seed(made.runs)["free_k1"] == ["free_k1_s3", "free_k1_s5"]
    arms = arm_of_each(made.runs)
    three, five = (family_of(made.runs[f"free_k1_s{seed}"], arms) for seed in (3, 5))
    folder = replace(made.runs["free_k1_s3"], init_from=InitFrom(hf="baseline"))
    assert three == five != family_of(folder, arms), "no folder is the arm of its name"


def test_runs_from_other_parents_are_other_arms():
    second = "runs.free_k1={kappa_bits: 0.125, seed: 1}"
    made = smoke(second, "runs.free_k1_8.init_from={run: baseline}")
    assert [*group_by_seed(made.runs)] == [*made.runs]
    assert group_by_seed(smoke(second).runs)["free_k1_8"] == ["free_k1_8", "free_k1"]


def test_what_may_differ_from_the_parent_is_accepted():
    """How its latent is trained, whether the block that reads z is named, and its encoder: a new
    separate one begins at random, and one that is there is taken over.
    """
    changes = "runs.free_k1.latent={free_bits: sequence, gradient: score}"
    smoke(f"{CHILD}{{run: free_k1_8}}", changes, "runs.free_k1.latent_block=2")
    smoke(f"{CHILD}{{hf: x, copy_encoder: false}}", SEPARATE)
    smoke(f"{CHILD}{{run: baseline, copy_encoder: false}}", SEPARATE)
    theirs = "runs.free_k1_8.latent={encoder: separate, encoder_layers: 2}"
    smoke(f"{CHILD}{{run: free_k1_8}}", SEPARATE, theirs)


LOOP = [f"{CHILD}{{run: free_k1_8}}", "runs.free_k1_8.init_from={run: free_k1}"]
MISTAKES = [
    ([f"{CHILD}{{run: baseline, hf: x}}"], "init_from.run: a run starts from"),
    ([f"{CHILD}{{hf: ' '}}"], "init_from.hf: empty"),
    ([f"{CHILD}{{run: baselin}}"], "init_from.run: 'baselin' is not one of "),
    ([f"{CHILD}{{run: free_k1}}"], "init_from.run: free_k1 starts, through other"),
    (LOOP, " starts, through other runs, from this run itself"),
    ([f"{CHILD}{{run: text_free_k1_2}}"], "init_from.run: its data are stdlib, not target"),
    ([f"{CHILD}{{latent_rms: 0.5}}"], "init_from.latent_rms: 0.5, but the run has no"),
    ([f"{CHILD}{{hf: x, copied_lr: -1}}"], "init_from.copied_lr: -1.0 must be at least 0"),
    ([f"{CHILD}{{hf: x}}", SEPARATE], "init_from.copy_encoder: true, but a separate encoder"),
    ([f"{CHILD}{{run: baseline}}", SEPARATE], "init_from.copy_encoder: true, but a separate enco"),
    ([f"{CHILD}{{hub: x}}"], "'hub' is not one of hf, run"),
    (["runs.baseline.init_from={hf: x}", "runs.baseline.extra_blocks=1"],
     "runs.baseline.extra_blocks: 1, but its parent has none"),
    (["runs.baseline.init_from={hf: x}", "runs.baseline.random_prefix=1"],
     "runs.baseline.random_prefix: 1, but its parent has none"),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "words"), MISTAKES, ids=[m[1] for m in MISTAKES])
def test_a_mistake_is_one_line(overrides, words):
    assert words in refusal(smoke, *overrides)


CHANGES = {
    "n_layers=4": "n_layers is 4, not 2",
    "head_width=4": "head_width is 4, not 8",
    "qk_norm=true": "qk_norm is True, not False",
    "latent_bits=5": "latent_bits is 5, not 8",
    "latent.map=linear": "latent.map is linear, not table",
    "latent_block=1": "latent_block is 1, not 2",
}


@rejects('config.ADAPTABLE: «→"qk_norm", »"context', "a parent's qk_norm lost", case="qk_norm=true")
@rejects(
    'arms.latent_settings: «latent_bits": config.latent_bits, "→»',
    "a latent of other bits taken over",
    case="latent_bits=5",
)
@pytest.mark.parametrize("change", CHANGES)
def test_a_parent_of_another_architecture_is_refused(change):
    config = changed(f"{CHILD}{{run: free_k1_8}}", "runs.free_k1_8.model=other")
    config.models.other = config.models.target_small
    parse(config, "conf")
    OmegaConf.update(config, "models.other.architecture", OmegaConf.from_dotlist([change]))
    assert f"free_k1.init_from.run: its {CHANGES[change]}" in refusal(parse, config, "conf")
