"""What a run may start from, and the list by which DVC makes its parent a dependency."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from pipelines.common.errors import UserError
from pipelines.compose import compose_config
from pipelines.config.arms import group_by_seed
from pipelines.config.load import parse
from tests.support.mutants import rejects

ROOT = Path(__file__).parents[2]
CHILD = "runs.free_k1.init_from="


@pytest.fixture(autouse=True)
def _in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def smoke(*overrides):
    return parse(compose_config(["experiment=smoke", *overrides]), "conf")


def test_a_list_that_does_not_fit_is_refused():
    config = compose_config(["experiment=smoke"])
    config.trainings.free_k1.parent = "elsewhere"
    with pytest.raises(UserError, match=r"^conf: trainings\.free_k1: does not fit runs\.free_k1"):
        parse(config, "conf")


@rejects(
    "dvc.yaml", "- ${item.parent} # the model", "# the model", "training without its parent in DVC"
)
def test_dvc_knows_the_path_of_every_parent():
    made = smoke(f"{CHILD}{{run: baseline}}", "runs.text_free_k1_2.init_from={hf: models/llama}")
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


@rejects(
    "hydra_plugins/seeds.py",
    "{start['run']}_s{seed}",
    "{start['run']}_s{seeds[0]}",
    "a child of every seed starts from the same run",
)
def test_an_arm_starts_from_the_run_of_its_own_seed_and_stays_one_arm():
    made = smoke("experiment=kappa_text", "seeds=[3,5]", "arms.free_k1.init_from.run=baseline")
    starts = [made.runs[f"free_k1_s{seed}"].init_from.run for seed in (3, 5)]
    assert starts == ["baseline_s3", "baseline_s5"]
    assert made.trainings["free_k1_s5"].parent == "checkpoints/kappa_text/baseline_s5"
    assert group_by_seed(made.runs)["free_k1"] == ["free_k1_s3", "free_k1_s5"]


def test_runs_from_other_parents_are_other_arms():
    made = smoke(
        "runs.free_k1={kappa_bits: 0.125, seed: 1}",
        "runs.free_k1_8.init_from={run: baseline}",
    )
    assert [*group_by_seed(made.runs)] == [*made.runs]
    made = smoke("runs.free_k1={kappa_bits: 0.125, seed: 1}")
    assert group_by_seed(made.runs)["free_k1_8"] == ["free_k1_8", "free_k1"]


OTHER = (
    "+models={other: {architecture: {n_layers: 4, d_model: 16, n_heads: 2, n_kv_heads: 1,"
    " ffn_width: 32, context: 65, latent_bits: 8}, optim: {batch_size: 8, lr: 0.001}}}"
)
OTHER_LATENT = OTHER.replace("n_layers: 4", "n_layers: 2").replace("bits: 8", "bits: 5")
OTHER_LATENT = OTHER_LATENT.replace("context: 65", "context: 65, rope_theta: 100.0")
OTHER_HEADS = OTHER_LATENT.replace("bits: 5", "bits: 8, head_width: 4")
D_BY_N = OTHER_HEADS.replace("head_width: 4", "head_width: 8, qk_norm: true")
MISTAKES = [
    ([f"{CHILD}{{run: baseline, hf: x}}"], r"free_k1\.init_from\.run: a run starts from"),
    ([f"{CHILD}{{hf: ' '}}"], r"runs\.free_k1\.init_from\.hf: empty"),
    ([f"{CHILD}{{run: baselin}}"], r"runs\.free_k1\.init_from\.run: 'baselin' is not one of "),
    ([f"{CHILD}{{run: free_k1}}"], r"runs\.free_k1\.init_from\.run: free_k1 starts, by way of"),
    (
        [f"{CHILD}{{run: free_k1_8}}", "runs.free_k1_8.init_from={run: free_k1}"],
        r"init_from\.run: free_k1(_8)? starts, by way of others, from this run itself",
    ),
    ([f"{CHILD}{{run: text_free_k1_2}}"], r"its data are stdlib, not target"),
    (
        ["runs.baseline.init_from={run: free_k1}", "runs.free_k1.model=other", OTHER],
        r"runs\.baseline\.init_from\.run: its n_layers is 4, not 2",
    ),
    (
        [f"{CHILD}{{run: free_k1_8}}", "runs.free_k1_8.model=other", OTHER_HEADS],
        r"free_k1\.init_from\.run: its head_width is 4, not 8",
    ),
    (
        [f"{CHILD}{{run: free_k1_8}}", "runs.free_k1_8.model=other", D_BY_N],
        r"free_k1\.init_from\.run: its qk_norm is True, not False",
    ),
    (
        [f"{CHILD}{{run: free_k1_8}}", "runs.free_k1_8.model=other", OTHER_LATENT],
        r"free_k1\.init_from\.run: its latent_bits is 5, not 8",
    ),
    (
        [f"{CHILD}{{run: free_k1_8}}", "runs.free_k1.latent.map=linear"],
        r"free_k1\.init_from\.run: its latent\.map is table, not linear$",
    ),
    (
        [f"{CHILD}{{run: free_k1_8}}", "runs.free_k1.latent_block=1"],
        r"free_k1\.init_from\.run: its latent_block is 2, not 1",
    ),
    ([f"{CHILD}{{latent_rms: 0.5}}"], r"free_k1\.init_from\.latent_rms: 0\.5, but the run has no"),
    ([f"{CHILD}{{copied_lr: 0.001}}"], r"free_k1\.init_from\.copied_lr: 0\.001, but the run has"),
    ([f"{CHILD}{{hf: x, copied_lr: -1}}"], r"init_from\.copied_lr: -1\.0 is not a"),
    ([f"{CHILD}{{hf: x, latent_rms: -1}}"], r"init_from\.latent_rms: -1\.0 is not a number"),
    ([f"{CHILD}{{hf: x, copy_encoder: 1}}"], r"init_from\.copy_encoder: Value '1'"),
    (
        [f"{CHILD}{{hf: x}}", "runs.free_k1.latent.encoder=separate"],
        r"free_k1\.init_from\.copy_encoder: true, but a separate encoder cannot be copied",
    ),
    (
        [f"{CHILD}{{run: baseline}}", "runs.free_k1.latent.encoder=separate"],
        r"free_k1\.init_from\.copy_encoder: true, but a separate encoder cannot be copied",
    ),
    ([f"{CHILD}{{hub: x}}"], r"Key 'hub' not in 'InitFrom'"),
    (
        ["runs.baseline.init_from={hf: x}", "runs.baseline.extra_blocks=1"],
        r"runs\.baseline\.extra_blocks: 1, but its parent has no such block",
    ),
    (["~trainings"], r"trainings\.baseline: does not fit runs\.baseline"),
]  # fmt: skip


def test_a_new_separate_encoder_begins_at_random_and_one_that_is_there_is_taken_over():
    separate = "runs.free_k1.latent.encoder=separate"
    smoke(f"{CHILD}{{hf: x, copy_encoder: false}}", separate)
    smoke(f"{CHILD}{{run: baseline, copy_encoder: false}}", separate)
    both = [separate, "runs.free_k1_8.latent={encoder: separate, encoder_layers: 2}"]
    smoke(f"{CHILD}{{run: free_k1_8}}", *both)


def test_a_latent_may_be_trained_on_in_another_way():
    """With a hinge and a gradient of its own; the block that reads z is named or not."""
    changes = "runs.free_k1.latent={free_bits: sequence, gradient: score}"
    smoke(f"{CHILD}{{run: free_k1_8}}", changes, "runs.free_k1.latent_block=2")


@rejects(
    "model/config.py", 'n_kv_heads", "head_width", "', 'n_kv_heads", "', "a parent of other heads"
)
@rejects(
    "model/config.py",
    '"qkv_bias", "qk_norm", "norm_eps"',
    '"qkv_bias", "norm_eps"',
    "a parent with norms of queries and keys taken over without",
)
@rejects(
    "config/parents.py",
    'return {"latent_bits": config.latent_bits, "latent_block"',
    'return {"latent_block"',
    "a latent of other bits taken over",
)
@pytest.mark.parametrize(("overrides", "words"), MISTAKES, ids=[m[1] for m in MISTAKES])
def test_a_mistake_is_one_line(overrides, words):
    with pytest.raises(UserError, match=words) as caught:
        smoke(*overrides)
    assert "\n" not in str(caught.value)
