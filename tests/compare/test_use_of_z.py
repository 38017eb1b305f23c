"""What z is worth: which arms and seeds ignore it, and what it recovers of a baseline's NLL."""

import pytest

from pipelines.compare.comparison import negligible, uses_of_z
from tests.compare.made_up import Estimate, baseline, free_transformer
from tests.support.mutants import rejects


@pytest.mark.parametrize(
    ("use", "se", "ignored"),
    [
        (0.2249, 0.0, True),  # 5 % of a KL of 4.5
        (0.2251, 0.0, False),
        (0.2251, 0.1126, True),  # two errors
        (0.25, 0.125, False),
    ],
)
def test_use_within_two_errors_or_5_percent_of_the_kl_is_negligible(use, se, ignored):
    assert negligible(Estimate(use, se), Estimate(4.5, 0.0)) is ignored


@pytest.mark.parametrize(("kappa", "ignored"), [(0.5, [True, False]), (0.0, [False, False])])
def test_a_kappa_of_0_pays_for_no_bits_so_that_none_are_ignored(kappa, ignored):
    arms = [free_transformer("no", 1.0, kappa=kappa), free_transformer("yes", 1.25, kappa=kappa)]
    assert [use.ignored for use in uses_of_z(arms)] == ignored


@pytest.mark.parametrize(
    ("kappa", "bounds", "divided"),
    [
        (1.0, [1.25, 1.0, 1.25], ([0, 2], [1])),
        (1.0, [1.25, 1.25], None),
        (1.0, [1.0, 1.0], None),
        (0.0, [1.25, 1.0], None),
    ],
)
def test_seeds_are_divided_if_some_use_z_and_others_ignore_it(kappa, bounds, divided):
    (use,) = uses_of_z([free_transformer("free", *bounds, kappa=kappa)])
    seeds = use.divided and tuple([run.run.seed for run in runs] for runs in use.divided)
    assert seeds == divided


@rejects("comparison.uses_of_z: «→not »other.", "recovery against the baseline with more blocks")
def test_figures_and_recovery_are_means_over_seeds_against_the_plain_baseline():
    """Of a KL of 0.5 with CE 1.0, and a mean NLL of 1.2: (1.2 − 1.0) / 0.5."""
    arms = [
        baseline("plus", 1.0, extra_blocks=1),
        free_transformer("free", 1.1, 1.3, se=0.1),
        baseline("prefix", 1.0, random_prefix=4),
        baseline("large", 1.0, model="large"),
        baseline("base", 1.1, 1.3),
        free_transformer("long", 1.4, tokens=9000),
    ]
    free, alone = uses_of_z(arms)
    assert [free.arm, free.baseline, alone.arm, alone.baseline] == [arms[1], arms[4], arms[5], None]
    means = [each.mean for each in (free.kl, free.use, free.waste, free.ce)]
    assert means == pytest.approx([0.5, 0.2, 0.3, 1.0])
    assert free.recovery == pytest.approx(0.4) and alone.recovery is None


@pytest.mark.parametrize(
    ("kappa", "least"), [(0.0, 0.005), (0.125, 0.005 / 8), (1.0, 0.005), (4.0, 0.005)]
)
def test_nothing_is_recovered_by_a_kl_of_next_to_nothing(kappa, least):
    for kl, shown in ((0.99 * least, None), (least, 0.2 / least)):
        arms = [baseline("base", 1.2), free_transformer("free", 1.1, kl=kl, kappa=kappa)]
        assert uses_of_z(arms)[0].recovery == (shown and pytest.approx(shown))
