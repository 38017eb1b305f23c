"""Which arms stand side by side as designs, and how a design is called."""

import pytest

from pipelines.compare.comparison import design_words, designs
from tests.compare.made_up import baseline, free_transformer
from tests.support.mutants import rejects

LINEAR = {"latent.map": "linear"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "its model's"),
        ({"latent.map": "linear", "latent_bits": 16}, "map linear, H 16"),
        ({"latent.per": "every", "latent.every": 8}, "a code every 8"),
        ({"latent.per": "sequence", "latent_block": 3}, "a code per sequence, block 3"),
        ({"latent.encoder_layers": 2}, "encoder blocks 2"),
    ],
)
def test_a_design_is_called_by_its_changes(changes, words):
    assert design_words(free_transformer("free", 1.0, design=changes)) == words


@rejects("comparison.designs: «arm.run.kappa_bits,→»", "designs of several κ side by side")
def test_only_free_transformers_that_are_alike_otherwise_stand_side_by_side():
    """Each against the first with its model's design, if there is one."""
    arms = [
        free_transformer("linear", 1.0, design=LINEAR),
        baseline("base", 9.0),
        free_transformer("own", 1.3),
        free_transformer("residual", 1.4, design={"latent.inject": "residual"}),
        free_transformer("own_too", 1.2),
    ]
    changes = [{"kappa": 2.0}, {"kappa_warmup_steps": 3}, {"beta": 2.0}, {"tokens": 9}]
    changes += [{"model": "large"}, {"data": "other"}]
    arms += [free_transformer(str(i), 1.0, design=LINEAR, **c) for i, c in enumerate(changes)]
    alone = free_transformer("alone", 1.0, kappa=3.0)  # without another design
    (group,) = designs([*arms, alone])
    assert [arm.name for arm in group.arms] == ["own", "linear", "residual"]
    assert [each.other.name for each in group.others] == ["own", "own"]
    assert [each.mean for each in group.others] == pytest.approx([-0.3, 0.1])
