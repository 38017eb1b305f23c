"""The rule for differences between models."""

from itertools import product
from math import isnan, nan, sqrt
from statistics import fmean, stdev

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, t as student, ttest_ind, ttest_ind_from_stats

from ftmodel.analysis.differences import (
    REFUSED,
    DocumentError,
    SeedError,
    deciding_errors,
    difference,
    document_error,
    largest_margin,
    may_pool,
    pool_seeds,
)
from ftmodel.analysis.statistics import mean_and_error
from tests.support.mutants import rejects

DOCUMENTS = 50


def threshold(seeds, documents):
    return largest_margin(deciding_errors(seeds, documents))


def test_the_spread_within_models_knows_no_difference_of_their_means():
    alone = pool_seeds([[1.0, 2.0, 4.0]])
    assert (alone.spread, alone.freedom) == (pytest.approx(stdev([1, 2, 4])), 2)
    within = pool_seeds([[1.0, 2.0], [50.0, 53.0], [7.0]])
    assert (within.spread, within.freedom) == (pytest.approx(sqrt((0.5 + 4.5) / 2)), 2)
    none = pool_seeds([[1.0], [2.0]])
    assert isnan(none.spread) and none.freedom == 0


def verdict_of(mine, others, documents=None):
    return difference(mine, others, documents).verdict


@pytest.mark.parametrize(
    ("seed", "verdict"),
    [(0.467, "lower"), (0.468, "not decided"), (0.512, "not decided"), (0.513, "higher")],
)
def test_a_difference_that_seeds_may_make_is_none(seed, verdict):
    """t = 2.776 of 4 degrees of freedom; s = 0.01, so 2.776 · 0.01 · √(2/3) = 0.02267."""
    assert verdict_of([seed, seed + 0.01, seed + 0.02], [0.49, 0.50, 0.51]) == verdict
    # paired, these differ by 0.0057 ± 0.0003 at every seed; each model's own spread is 0.1
    assert verdict_of([0.495, 0.594, 0.694], [0.5, 0.6, 0.7]) == "not decided"


@rejects(
    "differences.difference: «max([→»half«, *spreads])→»",
    "an arm's own spread over seeds ignored in the verdict",
)
def test_a_difference_within_the_spread_of_either_arm_is_none():
    """With many seeds the test asks for less than the spread."""
    quiet, unquiet = [0.5] * 30, [0.35, 0.45] * 15
    for pair in ((quiet, unquiet), (unquiet, quiet)):
        assert difference(*pair).threshold == pytest.approx(stdev(unquiet))
    assert verdict_of(quiet, [0.46, 0.53] * 15) == "not decided"
    few = [0.5, 0.7]
    assert difference(few, [0.5, 0.6] * 15).threshold == pytest.approx(stdev(few))


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_two_models_alone_are_compared_by_the_t_test_of_student_or_welch(seeds):
    draw, refusals = np.random.default_rng(seeds), 0
    for _ in range(40):
        mine, others = draw.normal(size=seeds).tolist(), draw.normal(1, 2, size=seeds + 1).tolist()
        found = difference(mine, others)
        equal = pool_seeds([mine, others]).equality >= REFUSED
        refusals += not equal
        significant = ttest_ind(mine, others, equal_var=equal).pvalue < 0.05
        apart = abs(fmean(mine) - fmean(others)) > max(stdev(mine), stdev(others))
        assert (found.verdict in ("lower", "higher")) == (significant and apart)
        assert found.is_pooled == equal
    assert 0 < refusals < 40


def test_the_spread_is_that_of_all_models_where_the_test_lets_them_be_pooled():
    pool = [[0.50, 0.52], [0.40, 0.43], [0.90, 0.92, 0.94], [0.7]]
    found = difference(pool[0], pool[1], pool=pool_seeds(pool))
    s = sqrt((0.0002 + 0.00045 + 0.0008) / 4)
    assert found.is_pooled and found.seeds == found.pooled.error == pytest.approx(s)
    assert found.pooled.freedom == 4
    assert found.threshold == pytest.approx(student.ppf(0.975, 4) * s)
    assert found.other_seeds == found.own.error == pytest.approx(sqrt((0.0002 + 0.00045) / 2))
    # a model of one seed has the spread of the others
    one = difference(pool[3], pool[1], pool=pool_seeds(pool))
    assert one.threshold == pytest.approx(student.ppf(0.975, 4) * s * sqrt(1 + 1 / 2))


def test_an_arm_of_ten_times_the_spread_is_not_pooled():
    """Then Welch's test of the two decides."""
    pool = [[0.50, 0.51, 0.52], [0.45, 0.46, 0.48], [0.61, 0.60, 0.62], [0.9, 1.0, 1.1]]
    quiet = difference(pool[0], pool[1], pool=pool_seeds(pool))
    welch = ttest_ind_from_stats(0.51, 0.01, 3, fmean(pool[1]), stdev(pool[1]), 3, False)
    assert not quiet.is_pooled and quiet.equality < 0.01
    assert quiet.mean / quiet.seeds == pytest.approx(welch.statistic)
    assert quiet.threshold / quiet.seeds == pytest.approx(student.ppf(0.975, quiet.own.freedom))
    wide = difference(pool[3], pool[0], pool=pool_seeds(pool))
    assert wide.seeds == pytest.approx(sqrt((0.1**2 + 0.01**2) / 3))
    assert wide.seeds > wide.pooled.error > quiet.seeds
    assert difference(pool[0], pool[1], pool=pool_seeds(pool[:3])).is_pooled


@pytest.mark.parametrize("sizes", [(2, 2), (2, 2, 2, 2, 2, 2), (2, 3, 5)])
def test_equal_spreads_are_refused_as_often_as_the_level_says(sizes):
    draw = np.random.default_rng(len(sizes))
    p = [pool_seeds([draw.normal(size=n).tolist() for n in sizes]).equality for _ in range(2000)]
    for level in (0.05, REFUSED, 0.5):
        error = sqrt(level * (1 - level) / 2000)
        assert abs(np.mean(np.array(p) < level) - level) < 4 * error


def test_without_two_repeated_models_spreads_are_not_tested():
    assert isnan(pool_seeds([[1.0, 2.0], [3.0]]).equality)
    assert isnan(pool_seeds([[1.0, 1.0], [3.0, 3.0]]).equality)
    found = difference([0.5, 0.5, 0.5], [0.4, 0.4])
    assert found.verdict == "higher" and found.own == SeedError(0, 3)
    assert verdict_of([0.5, 0.5], [0.5, 0.5]) == "not decided"


def test_a_p_value_of_the_test_is_at_least_that_of_one_draw_and_refuses_below_its_level():
    quiet = [1e-9 * seed for seed in range(5)]
    assert pool_seeds([quiet, [*range(5)]]).equality == pytest.approx(1 / 20_001, rel=1e-9)
    assert may_pool(REFUSED) and not may_pool(0.999 * REFUSED)


def test_errors_over_documents_count_beside_seeds():
    apart = ([0.40, 0.41], [0.50, 0.51])
    assert verdict_of(*apart, DocumentError(0.01, 99)) == "lower"
    assert verdict_of(*apart, DocumentError(0.06, 99)) == "not decided"
    assert verdict_of(*apart, None) == "lower"  # not stored: seeds alone
    assert verdict_of(*apart, DocumentError(nan, 0)) == "not known"
    assert verdict_of([0.4], [0.5], DocumentError(0.04, 99)) == "lower"  # no seeds: documents alone
    assert verdict_of([0.4], [0.5], DocumentError(0.04, 3)) == "not decided"  # t = 3.18
    assert verdict_of([0.4], [0.5], None) == "not known"


def test_variances_add_and_what_both_errors_have_counts_once():
    """Errors of e over seeds and of 1 over documents that share s: error² = e² + 1 − s, and freedom
    = (e² + 1 − s)² / (e⁴/8 + (1 − s)²/100).
    """
    for e, shared in product((1.0, 1.5), (0.0, 0.5, 0.9)):
        variance = e**2 + 1 - shared
        freedom = variance**2 / (e**4 / 8 + (1 - shared) ** 2 / 100)
        found = threshold(SeedError(e, 8), DocumentError(1.0, 100, shared))
        assert found == pytest.approx(student.ppf(0.975, freedom) * sqrt(variance))


def test_a_second_error_never_makes_a_difference_count():
    """Of few seeds t is so large that documents would, by their degrees of freedom."""
    seeds, documents = student.ppf(0.975, 1), student.ppf(0.975, 99)
    assert threshold(SeedError(1.0, 1), DocumentError(0.4, 99)) == pytest.approx(seeds)
    assert threshold(SeedError(0.1, 1), DocumentError(1.0, 99, 1.0)) == pytest.approx(documents)
    assert threshold(SeedError(0.0, 1), DocumentError(0.0, 99)) == 0


def test_the_error_over_documents_is_paired_and_a_ratio_of_sums():
    """Closed form for two documents: the error is |d1 t2 − d2 t1| · 2 / (t1 + t2)²."""
    mine, others = torch.tensor([[90.0, 41.0]]), torch.tensor([[100.0, 50.0]])
    found = document_error(mine, others, torch.tensor([60.0, 20.0]))
    assert found == DocumentError(pytest.approx(abs(-10 * 20 + 9 * 60) * 2 / 80**2), 1)
    # two seeds each: differences of documents are 2 and 6, their residuals 1 and 3, less 2 each
    found = document_error(torch.tensor([[1.0, 3.0], [2.0, 8.0]]), torch.zeros(2, 2))
    assert found == DocumentError(pytest.approx(2), 1, pytest.approx(1))
    alone = document_error(torch.ones(2, 1), torch.zeros(2, 1))
    assert isnan(alone.error) and (alone.freedom, alone.interaction) == (0, 0)


@rejects("differences.exact_margin: isf(LEVEL / «2→1», discordant", "McNemar's test one-sided")
@rejects(
    "differences.difference: «documents.exact if documents else→»",
    "a t-test alone of few documents",
)
@pytest.mark.parametrize(("gained", "lost"), [(5, 0), (6, 0), (9, 2), (10, 2), (14, 4), (15, 4)])
def test_few_documents_that_pass_or_fail_are_judged_by_mcnemars_exact_test(gained, lost):
    base = torch.tensor([[0.0] * gained + [1.0] * lost + [1.0] * 20])
    free = torch.tensor([[1.0] * gained + [0.0] * lost + [1.0] * 20])
    documents = document_error(free, base)
    means = [[each.mean().item()] for each in (free, base)]
    refused = binomtest(gained, gained + lost).pvalue <= 0.05
    assert (verdict_of(*means, documents) == "higher") == refused
    assert (difference(*means, DocumentError(documents.error, 1000)).verdict) == "higher"


@rejects(
    "differences.difference: max(largest_margin(errors), «exact→0.0»)",
    "a difference of 0 ± 0 of few documents",
)
def test_models_that_pass_the_same_few_documents_may_differ_on_others():
    none = torch.zeros(2, 16)
    found = difference([0.0, 0.0], [0.0, 0.0], document_error(none, none))
    assert found.threshold == pytest.approx(binomtest(0, 16).proportion_ci(method="exact").high)
    assert document_error(none + 0.5, none).exact == 0


@rejects(
    "differences.interaction_squares: «residuals - residuals→scores - scores»",
    "what a seed does to all documents in the interaction",
)
def test_the_interaction_is_what_seeds_move_on_single_documents():
    """Seeds that lift all tokens alike have none; else the variance of a seed's own residuals."""
    draw = torch.Generator().manual_seed(0)
    sizes = torch.randint(5, 20, (400,), generator=draw).double()
    rates = torch.randn(1, 400, generator=draw) + torch.tensor([[0.0], [0.1], [0.4]])
    assert document_error(rates * sizes, sizes * rates, sizes).interaction == pytest.approx(0)
    noise = torch.randn(200, 400, generator=draw) * sizes  # many seeds: each an error of its own
    expected = np.mean([mean_and_error(each, sizes)["se"] ** 2 for each in noise])
    found = document_error(rates * sizes + noise[:3], rates[:2] * sizes + noise[3:5], sizes)
    assert found.interaction == pytest.approx(expected * (1 / 3 + 1 / 2), rel=0.1)


EQUAL = (1, 1, 1, 1, 1, 1)  # spreads of arms over seeds, that of the baseline first
GROWING = (1, 1, 1, 1.5, 2, 4)  # as with κ


def false_alarms(seeds, spreads, documents, effect=None, experiments=600):
    """How often the whole rule tells each of several arms from the first, though none differs; or,
    with a smallest ``effect``, calls it equivalent, though it differs by just that much. The
    standard deviations are of means over documents: of a seed (by ``spreads``), of an arm on these
    documents (None: scores of documents are not stored), and half of that of a seed on them.
    """
    draw, arms, unit = np.random.default_rng(seeds), len(spreads), sqrt(DOCUMENTS)
    found = []
    for _ in range(experiments):
        totals = (
            draw.normal(size=(arms, seeds, 1)) * np.array(spreads)[:, None, None]
            + draw.normal(size=(arms, 1, DOCUMENTS)) * (documents or 0) * unit
            + draw.normal(size=(arms, seeds, DOCUMENTS)) * (documents or 0) / 2 * unit
        )
        totals[1:] += effect or 0.0
        bounds, scores = totals.mean(2).tolist(), torch.from_numpy(totals)
        errors = [None if documents is None else document_error(of, scores[0]) for of in scores[1:]]
        pool, pairs = pool_seeds(bounds), zip(bounds[1:], errors, strict=True)
        found.append(
            [difference(each, bounds[0], error, pool, effect).verdict for each, error in pairs]
        )
    wrong = ["lower", "higher"] if effect is None else ["equivalent"]
    return np.isin(found, wrong).mean(axis=0).tolist()


@rejects("differences.deciding_errors: seeds«, both→»", "the larger of two errors in place of both")
@rejects("differences.margin: «float(stdtrit(freedom, 1 - level / 2))→2.0»", "2 in place of t")
@pytest.mark.parametrize(
    ("seeds", "spreads", "documents", "worst"),
    [
        (2, EQUAL, 1, None),
        (3, EQUAL, 1, None),
        (5, EQUAL, 1, None),
        (2, GROWING, 1, 0.11),
        (3, GROWING, 1, 0.07),
        (5, GROWING, 1, 0.06),
        (2, EQUAL, None, None),  # as at budgets before the last
        (2, GROWING, None, None),
    ],
)
def test_equal_arms_are_told_apart_in_one_case_of_twenty(seeds, spreads, documents, worst):
    """On average: an arm of four times the spread more often, as it may be pooled."""
    rates = false_alarms(seeds, spreads, documents)
    assert fmean(rates) == pytest.approx(0.05, abs=0.01)
    assert worst is None or max(rates) == pytest.approx(worst, abs=0.025)


@rejects("differences.difference: «2 * LEVEL→4 * LEVEL»", "one-sided tests at 10 %")
@pytest.mark.parametrize(("seeds", "documents"), [(2, 1), (3, 1), (5, 1), (2, None)])
def test_arms_that_differ_by_the_smallest_effect_are_called_equivalent_in_one_case_of_twenty(
    seeds, documents
):
    assert fmean(false_alarms(seeds, EQUAL, documents, effect=8.0)) == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize(
    ("effect", "mean", "verdict"),
    [
        (None, 0.0, "not decided"),
        (0.0182, 0.0, "equivalent"),  # 2.132 · 0.01 · √(2/3) = 0.01741
        (0.0174, 0.0, "not decided"),
        (0.0182, 0.001, "not decided"),
        (0.1, 0.05, "equivalent"),  # not 0 either
        (0.06, 0.05, "higher"),
        (0.1, -0.05, "equivalent"),
        (0.06, -0.05, "lower"),
    ],
)
def test_what_is_surely_smaller_than_the_smallest_effect_is_equivalent(effect, mean, verdict):
    """t = 2.132 is the 95 % quantile for 4 degrees of freedom."""
    mine, others = ([mean + x for x in (0.49, 0.5, 0.51)], [0.49, 0.5, 0.51])
    found = difference(mine, others, smallest_effect=effect)
    assert found.verdict == verdict
    assert found.furthest == pytest.approx(abs(mean) + 2.776 * 0.01 * sqrt(2 / 3), abs=1e-5)
    assert found.p_value == pytest.approx(ttest_ind(mine, others).pvalue)


def test_the_p_value_is_the_largest_of_all_tests_and_below_the_level_where_a_difference_counts():
    seeds, documents = ([0.40, 0.41], [0.50, 0.51]), DocumentError(0.03, 99, 0.03**2)
    over_seeds = difference(*seeds).p_value
    found = difference(*seeds, documents)
    assert found.p_value == max(over_seeds, 2 * student.sf(0.1 / 0.03, 99))
    at = difference([found.threshold, found.threshold + 0.01], [0.0, 0.01], documents)
    assert at.p_value == pytest.approx(0.05) and isnan(difference([1.0], [2.0]).p_value)
    assert difference([1.0, 1.0], [1.0, 1.0]).p_value == 1.0
    assert difference([1.0, 1.0], [2.0, 2.0]).p_value == 0.0


@rejects(
    "differences.pooled_error: «pool.freedom→len(seeds) + len(other_seeds) - 2»",
    "a pooled spread with the t of two arms",
)
def test_pooling_sees_with_two_seeds_what_two_arms_alone_do_not():
    """A difference of 3.5 spreads among eight arms of two seeds: 77 against 41 of 100."""
    draw, pooled, alone = np.random.default_rng(0), 0, 0
    for _ in range(300):
        bounds = (draw.normal(size=(8, 2)) + [[3.5]] + np.eye(8, 1) * -3.5).tolist()
        pooled += difference(bounds[1], bounds[0], pool=pool_seeds(bounds)).verdict == "higher"
        alone += difference(bounds[1], bounds[0]).verdict == "higher"
    assert alone / 300 == pytest.approx(0.41, abs=0.1)
    assert pooled / 300 == pytest.approx(0.77, abs=0.1)
