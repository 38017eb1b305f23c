"""A grid of arms: which arms it makes, their names, and mistakes."""

import re
from pathlib import Path

import pytest
import yaml

from pipelines.config.grid import grid, name_of
from tests.support.mutants import rejects
from tests.support.settings import composed_by_hydra, refusal

ROOT = Path(__file__).parents[2]
ARM = {"data": "stdlib", "model": "text_small", "tokens": 2_048_000}


def test_the_example_of_the_docs_composes():
    """With all its arms, each complete and trained with every seed."""
    page = (ROOT / "docs/experiments.md").read_text()
    (example,) = (
        block for block in re.findall(r"```yaml\n(.*?)```", page, re.S) if "grid" in block
    )
    arms = yaml.safe_load(example)["arms"]
    made = composed_by_hydra("experiment=kappa_text", "expectation=[]", f"arms='{arms.strip()}'")
    assert [*made.arms] == [
        "baseline", "baseline_extra_blocks_1", "free_k1_4", "free_k1_4_map_linear",
        "free_k1_2", "free_k1_2_map_linear",
    ]  # fmt: skip
    assert made.runs["baseline_extra_blocks_1_s1"].extra_blocks == 1
    latent = made.runs["free_k1_4_map_linear_s0"]
    assert (latent.kappa_bits, latent.latent.map, latent.seed) == (0.25, "linear", 0)
    assert len(made.runs) == 12


@rejects("grid.name_points: «settings.get(KAPPA_KEY, kappa_bits) is None→False»", "two baselines")
def test_a_baseline_is_one_arm_whatever_is_listed_of_the_latent():
    arms = grid(ARM | {"kappa_bits": [None, 0], "latent": {"map": ["table", "linear"]}, "beta": 2})
    assert [*arms] == ["baseline", "free_k0_map_table", "free_k0_map_linear"]
    assert arms["baseline"].beta == 1 and arms["free_k0_map_table"].beta == 2


def test_a_value_may_be_several_settings_and_budgets_are_one_value():
    designs = [{}, {"prior": "learned"}, {"per": "every", "every": 8}]
    arms = grid(ARM | {"kappa_bits": 1, "latent": designs, "budgets": [1000, 2000]})
    assert [*arms] == ["free_k1", "free_k1_prior_learned", "free_k1_per_every_every_8"]
    assert all(arm.budgets == [1000, 2000] for arm in arms.values())
    arms = grid(ARM | {"kappa_bits": 1, "budgets": [[1000], [1000, 2000]]})
    assert [*arms] == ["free_k1_budgets_1000", "free_k1_budgets_1000_2000"]


def test_names():
    assert name_of({"run.seed": 0, "run.kappa_bits": 0.015625}) == "free_k1_64_seed_0"
    assert name_of({"run.kappa_bits": 1.5}) == "free_k3_2"
    assert name_of({"run.kappa_bits": 0.0018611728721}) == "free_k0p00186117"
    assert name_of({"run.init_from.run": "a-b.c", "optim.clip": None}) == "run_a_b_c_clip_none"
    assert name_of({"optim.lr": 1e-5, "architecture.tied": True}) == "lr_1em05_tied_true"
    assert name_of({"run.latent.map": "a", "architecture.latent.map": "b"}) == (
        "run_latent_map_a_architecture_latent_map_b"
    )


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{beta: 2}", "arms: ${grid}: kappa_bits is missing; null is the baseline"),
        ("{kappa_bits: []}", "arms: ${grid}: kappa_bits: empty; list at least one value"),
        ("{kappa_bits: 1, latent: {map: [linear, linear]}}",
         "arms: ${grid}: latent.map.1: linear is repeated"),
        ("{kappa_bits: [1, 1.00000001]}", "arms: two different settings would be called free_k1"),
        ("{kappa_bits: 1, lr: 2}", "arms.free_k1.lr: 'lr' is not one of data, model"),
        ("{kappa_bits: 1, latent: {map: [table, tree]}}",
         "arms.free_k1_map_tree.latent.map: 'tree' is not one of table, linear"),
        ("{kappa_bits: [1, 9]}", "arms.free_k1.data is missing"),
        ("free", "arms: ${grid} takes mappings of an arm's settings, not free"),
        ("", "arms: ${grid} takes at least one mapping"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_names_the_key(template, words):
    said = refusal(composed_by_hydra, "experiment=kappa_text", f"arms='${{grid:{template}}}'")
    assert said.removeprefix("conf/: ").removeprefix("conf: ").startswith(words)


def test_an_arm_of_a_grid_is_changed_in_its_grid():
    made = "arms='${grid:{kappa_bits: [null, 1], data: stdlib, model: text_small, tokens: 5120}}'"
    said = refusal(composed_by_hydra, "experiment=kappa_text", made, "arms.free_k1.tokens=3")
    assert "arms.free_k1.tokens: computed by ${grid}" in said
