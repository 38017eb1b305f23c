"""Which arms are a ladder of sizes, and the figures of each rung."""

from math import log

import pytest

from pipelines.report.sections.ladder import LARGER_TAX, RECOVERY, TAX, USE, ladders, rung
from tests.compare.made_up import baseline, free_transformer
from tests.support.mutants import rejects

NATS = log(2)


def of_size(size, model, ratio=10):
    """Settings of an arm of a model with this many parameters and ``ratio`` tokens for each."""
    return {"model": model, "evaluation": {"parameters": size, "trained_tokens": ratio * size}}


def rungs(*sizes, last_ratio=10, kappas=(1.0,), last_kappas=(1.0,)):
    """A plain baseline of each size, and a Free Transformer of each κ."""
    arms = []
    for i, size in enumerate(sizes):
        last = i == len(sizes) - 1
        settings = of_size(size, f"m{i}", last_ratio if last else 10)
        arms.append(baseline(f"b{i}", 1.2, **settings))
        for kappa in last_kappas if last else kappas:
            arms.append(free_transformer(f"f{i}_{kappa}", 1.1, kappa=kappa, **settings))
    return arms


def test_a_rung_has_the_figures_of_its_arms_in_nats():
    """In bits: bounds of 1.30 and 1.34 over mean NLLs of 1.2 and 1.1, and over a CE of 1.0."""
    larger = [
        baseline(f"plus{i}", bound, extra_blocks=i) for i, bound in ((3, 1.1), (1, 9), (2, 9))
    ]
    design = free_transformer("design", 9, design={"map": "linear"})
    late = free_transformer("late", 9, kappa_warmup_steps=5)  # of the same κ
    free = free_transformer("free", 1.30, 1.34, kl=0.25)
    none = free_transformer("none", 1.4, kappa=0.0, kl=0.001)
    prefix = baseline("prefix", 9, random_prefix=2)
    plain = baseline("base", 1.19, 1.21)
    found = rung([prefix, *larger, design, free, late, none, plain])
    assert (found.baseline, found.larger) == (plain, larger[0])
    assert {kappa: use.arm for kappa, use in found.uses.items()} == {1.0: free, 0.0: none}
    assert (found.parameters, found.tokens_per_parameter) == (1000, 5.0)
    figures = found.figures(1.0)
    assert figures[TAX] == pytest.approx([0.10 * NATS, 0.14 * NATS])
    assert figures[LARGER_TAX] == pytest.approx([0.20 * NATS, 0.24 * NATS])
    assert figures[USE] == pytest.approx([0.30 * NATS, 0.34 * NATS])
    assert figures[RECOVERY] == pytest.approx([(1.2 - 1.0) / 0.25])
    assert found.figures(0.0)[RECOVERY] == []
    alone = rung([plain, prefix, free])
    assert alone.larger is None and alone.figures(1.0)[LARGER_TAX] == []


def test_a_rung_needs_a_plain_baseline_and_a_free_transformer():
    base, free = baseline("base", 1.2), free_transformer("free", 1.1)
    assert rung([base, free])
    for family in ([base], [free], [free, baseline("plus", 1.1, extra_blocks=1)]):
        assert rung(family) is None


@rejects("Ladder.kappas: «set.intersection→set.union»", "a threshold that one size has")
def test_sizes_are_in_order_with_the_values_of_kappa_that_all_have():
    arms = rungs(300, 100, 200, kappas=(2.0, 0.0, 1.0), last_kappas=(1.0, 0.0, 4.0))
    arms.append(baseline("plus", 1.0, extra_blocks=1, **of_size(200, "m2")))
    arms += [baseline("elsewhere", 1.0, data="other"), free_transformer("too", 1, data="other")]
    (found,) = ladders(arms)
    assert (found.data, found.kappas) == ("text", [0.0, 1.0])
    assert [each.parameters for each in found.rungs] == [100, 200, 300]
    assert {*found.points(TAX, 1.0)} == {100, 200, 300}
    assert {*found.points(LARGER_TAX, 1.0)} == {200}


@rejects("ladder.build_ladder: «max(ratios)→ratios[-1]»", "sizes of other tokens per parameter")
@pytest.mark.parametrize(
    ("arms", "count"),
    [
        (rungs(100, 200, 300), 1),
        (rungs(100, 200), 0),
        (rungs(100, 200, 300, 300), 0),  # which of two of a size is on the line?
        (rungs(100, 200, 300, last_ratio=11), 1),
        (rungs(100, 200, 300, last_ratio=12), 0),
        (rungs(200, 300, 100, last_ratio=12), 0),
        (rungs(100, 200, 300, last_kappas=(2.0,)), 0),  # no κ that all have
    ],
)
def test_a_ladder_has_three_sizes_at_constant_tokens_per_parameter(arms, count):
    assert len(ladders(arms)) == count
