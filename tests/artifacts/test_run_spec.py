"""What follows from a run's settings."""

import pytest

from pipelines.artifacts.run_spec import RunSpec
from tests.support.settings import smoke


@pytest.mark.parametrize(
    ("preset", "own", "changes"),
    [
        (None, {}, {}),
        (None, {"latent_bits": 8, "latent_block": 3}, {}),  # behind half of the four blocks
        (None, {"latent_bits": 4, "latent_block": 2}, {"latent_bits": 4, "latent_block": 2}),
        (2, {"latent_block": 2}, {}),
        (2, {"latent_block": 3}, {"latent_block": 3}),
    ],
)
def test_a_design_is_told_by_what_it_changes_of_its_preset(preset, own, changes):
    experiment = smoke()
    vars(experiment.models["target_small"].architecture).update(n_layers=4, latent_block=preset)
    vars(experiment.runs["free_k1"]).update(own)
    assert RunSpec(experiment, "free_k1").design_changes == changes


def test_a_run_has_the_steps_of_its_largest_budget():
    experiment = smoke()
    experiment.runs["free_k1"].budgets = [2600, 5200]
    spec = RunSpec(experiment, "free_k1")
    assert (spec.batch_tokens, spec.steps) == (520, 20)
