"""What is said and drawn of z and the target: from the figures, and no more than they allow."""

from dataclasses import replace

import pytest

from pipelines.artifacts.results import Between, ByOffset, LatentDetails
from pipelines.report.blocks import MISSING, Cell
from pipelines.report.sections.target import (
    ROWS,
    against_posterior,
    aggregate,
    by_offset,
    start_row,
    what_z_says,
)
from pipelines.report.style import styles
from tests.support.figures import check_figure
from tests.support.mutants import rejects
from tests.support.pages import heights, numbers, printed
from tests.support.results import PAIR, arms_of, run, with_seeds, write_experiment, write_latent


def arms(folder, prior, valid, start=4.0):
    """A baseline and a Free Transformer, a seed for each of these shares of valid sequences."""
    write_experiment(folder, with_seeds(PAIR, len(prior)), {})
    for i, (mine, others) in enumerate(zip(prior, valid, strict=True)):
        write_latent(folder, f"free_s{i}", start + i, others, mine)
    return arms_of(folder)


def test_the_start_is_told_at_least_and_when_half_of_it_is(tmp_path):
    (row,) = start_row(arms(tmp_path, [1.0] * 2, [1.0] * 2)[1])
    assert printed(row.values()) == ["free", "4.50, spread 0.71", "5.83", "1"]


def test_where_next_to_nothing_is_told_or_a_position_not_measured_no_half_is(tmp_path):
    both = arms(tmp_path, [1.0], [1.0])
    first = both[1].first
    told = first.evaluation.latent
    for bits, shown in ((0.1, "0.10"), (-0.004, "0.00")):  # as sampling may bring it
        first.evaluation.latent = replace(told, start_bits=bits)
        (row,) = start_row(both[1])
        assert printed(row.values()) == ["free", shown, "5.83", "–"]
    known = ROWS["start known from z, at least, bits"]
    assert printed(known(arm) for arm in both) == ["–", "0.00"]
    first.evaluation.latent = told
    first.details.latent.start_bits[:] = [0.9, 1.4, 1.9, 4.0]
    assert start_row(both[1])[0]["half of the known ones by position"] == Cell("3")
    first.details.latent.start_bits[1] = None
    (row,) = start_row(both[1])
    assert printed(row.values()) == ["free", "4.00", "5.83", "–"]


@rejects(
    "target.against_posterior: «.get(c.verdict, c.verdict)→['lower' if c.mean < 0 else 'higher']»",
    "generations called worse within what seeds differ by",
)
@pytest.mark.parametrize(
    ("prior", "valid", "verdict", "figures"),
    [
        ([0.5, 0.52, 0.48], [0.98, 0.99, 0.97], "**worse**",
         ["−0.4800", "0.0129", "0.0358", "3", "3"]),
        ([0.9, 1.0, 0.8], [0.95, 0.96, 0.97], "not decided", ["−0.0600"]),
        ([1.0, 1.0], [0.5, 0.5], "**better**", ["+0.5000", "0.0000"]),
        ([0.1], [0.9], "not known", ["−0.8000"]),
    ],
)  # fmt: skip
def test_generations_are_worse_beyond_the_seeds_alone(tmp_path, prior, valid, verdict, figures):
    baseline, free = arms(tmp_path, prior, valid)
    found = against_posterior(free)
    assert str(found.verdict).startswith(verdict)
    assert numbers(found)[: len(figures)] == figures
    assert against_posterior(baseline) == MISSING


def test_a_gap_is_said_as_far_as_it_was_measured(tmp_path):
    free = arms(tmp_path, [0.5, 0.52], [0.98, 0.99])[1]
    # from below there is no gap to a learned prior
    for bits, cell in ((Between(1.5), "–"), (Between(None, 2.5), "≤ 2.5 ± 0.0")):
        for seed in free.runs:
            seed.evaluation.latent = replace(seed.evaluation.latent, aggregate_bits=bits)
        assert str(aggregate(free)) == cell


TWO = {"one": run(kappa=1.0), "two": run(kappa=2.0)}


def written(folder, runs):
    """Arms of which z tells 4 bits, and of a seed 1 one more, evenly over 4 positions."""
    write_experiment(folder, runs, {})
    for name in runs:
        write_latent(folder, name, 5.0 if name.endswith("_s1") else 4.0)
    return arms_of(folder)


def draw(arms):
    return what_z_says(arms, styles(arm.name for arm in arms))


def lines(axes, width):
    return heights(axes, linewidth=width, linestyle="-")


def dotted(axes):
    return heights(axes, linestyle=":")


def test_a_thin_line_a_seed_and_a_thick_one_through_their_means(tmp_path):
    """Free bits have paid for at most κ a position: dotted. What few sequences have, and what is
    null, is not drawn.
    """
    figure = draw(written(tmp_path, with_seeds(TWO)))
    check_figure("latent", figure, tmp_path)
    start, around, unfair = (axes.get_position() for axes in figure.axes)
    assert around.y1 < start.y0 and around.x1 < unfair.x0  # no panel on another
    assert (around.x0, unfair.x1, unfair.y1) == pytest.approx((start.x0, start.x1, around.y1))
    assert by_offset(ByOffset([0, 1], [0.5, 0.6], [30, 29])) == {0: 0.5}


def test_kappa_0_pays_for_nothing_and_what_is_below_0_is_seen(tmp_path):
    write_experiment(tmp_path, {"zero": run(kappa=0.0)}, {})
    write_latent(tmp_path, "zero", start=-1.0)
    start, around, _ = draw(arms_of(tmp_path)).axes
    assert dotted(start) == [[0.0] * 4] and not dotted(around)
    assert start.get_ylim()[0] < -1


def test_free_bits_of_many_tokens_may_all_be_spent_on_the_first(tmp_path):
    designs = {
        "sequence": {"free_bits": "sequence"},
        "batch": {"free_bits": "batch"},
        "every": {"per": "every", "every": 2},
    }
    many = written(tmp_path / "many", {n: run(kappa=1.0, latent=d) for n, d in designs.items()})
    assert dotted(draw(many).axes[0]) == []
    alone = written(tmp_path, {"one": run(kappa=1.0, latent={"free_bits": "position"})})
    assert len(dotted(draw(alone).axes[0])) == 1


def test_kl_around_the_target_is_that_of_tokens_with_a_z_of_their_own(tmp_path):
    arms = written(tmp_path, TWO)
    details = arms[0].first.details
    details.latent = replace(details.latent, from_start=None)
    _, around, _ = draw(arms).axes
    assert len(lines(around, 2)) == 1 and len(dotted(around)) == 1
    _, around, _ = draw(arms[:1]).axes
    assert not around.get_visible()
    details.latent = LatentDetails([None] * 4, [None] * 4, ByOffset([], [], []))
    # nothing could be measured: levels, and lines of no point
    assert [len(axes.lines) for axes in draw(arms[:1]).axes] == [3, 2, 1]


def test_a_learned_prior_is_neither_fair_bits_nor_paid_for_by_position(tmp_path):
    arms = written(tmp_path, TWO)
    learned = arms[0].first.evaluation
    learned.latent = replace(learned.latent, aggregate_bits=Between(None, 2.0))
    start, _, unfair = draw(arms).axes
    assert len(dotted(start)) == 1 and len(lines(unfair, 2)) == 1
    alone = draw(arms[:1])
    assert not dotted(alone.axes[0]) and not alone.axes[2].get_visible()
    (legend,) = alone.legends
    assert [text.get_text() for text in legend.texts] == ["one"]
