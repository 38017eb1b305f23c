"""The difference that a planned experiment can find: the rule applied to other simulated data."""

from dataclasses import replace
from math import inf, isnan, sqrt

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import nct, t

from ftmodel.analysis.differences import difference, document_error, pool_seeds
from ftmodel.analysis.power import (
    DocumentSpread,
    detectable,
    power,
    seeds_to_detect,
    seeds_to_equate,
)
from tests.support.mutants import rejects

DOCUMENTS = DocumentSpread(40, error=0.3, interaction=0.5)


def verdicts(spreads, seeds, delta, documents=None, effect=None, experiments=300):
    """The rule's verdicts on experiments whose documents are drawn one by one."""
    draws = np.random.default_rng(1)
    found = []
    for _ in range(experiments):
        bounds = [draws.normal(0, spread, seeds) for spread in spreads]
        bounds[0] += delta
        error = None
        if documents:
            n = documents.n
            noise = draws.normal(size=(2, seeds, n)) * documents.interaction * sqrt(n)
            shared = draws.normal(size=n) * documents.error * sqrt(n)
            own = [sqrt(spread**2 - documents.interaction**2) for spread in spreads[:2]]
            levels = draws.normal(size=(2, seeds, 1)) * np.reshape(own, (2, 1, 1))
            scores = torch.tensor(levels + noise)
            scores[0] += torch.tensor(shared + delta)
            error = document_error(*scores)
            bounds[:2] = [each.mean(1).numpy() for each in scores]
        pool = pool_seeds([each.tolist() for each in bounds])
        mine, other = (each.tolist() for each in bounds[:2])
        found.append(difference(mine, other, error, pool, effect).verdict)
    return found


@rejects("Power.detectable: effect - self.one_sided)« - self.mean→»", "noise left out of power")
@rejects("power.power: np.«square→sqrt»(spreads", "spreads for variances of other arms")
@pytest.mark.parametrize(
    ("spreads", "seeds", "documents"),
    [((1, 1, 5, 5, 5, 5), 3, None), ((1, 0.5), 10, None), ((0.7, 0.6), 4, DOCUMENTS)],
)
def test_the_rule_finds_the_detectable_difference_in_four_of_five_experiments(
    spreads, seeds, documents
):
    delta = detectable(spreads, seeds, documents)
    rate = verdicts(spreads, seeds, delta, documents).count("higher") / 300
    assert rate == pytest.approx(0.8, abs=0.09)  # three standard errors of both simulations


def test_the_interaction_is_that_of_both_models():
    error = DOCUMENTS.error_of(4)
    assert error.interaction == pytest.approx(0.5**2 / 4 + 0.5**2 / 4)
    assert error.error == pytest.approx(sqrt(0.3**2 + error.interaction))
    assert error.freedom == 39


@rejects("Power.detectable: «effect→0» - self", "differences that are called equivalent count")
def test_a_difference_below_the_smallest_effect_is_called_equivalent_and_not_found():
    plain, with_effect = (detectable((0.01, 0.01), 5, effect=effect) for effect in (0.0, 0.1))
    assert plain < 0.05 < with_effect
    found = verdicts((0.01, 0.01), 5, with_effect, effect=0.1)
    assert found.count("higher") / 300 == pytest.approx(0.8, abs=0.09)


def test_by_documents_alone_it_is_that_of_a_t_test():
    documents = DocumentSpread(12, error=0.01, interaction=0.0)
    shift = brentq(lambda shift: nct.sf(t.ppf(0.975, 11), 11, shift) - 0.8, 0, 10)
    # the error is known exactly here, and estimated in the t-test
    assert detectable((0.0, 0.0), 3, documents) == pytest.approx(0.01 * shift, rel=0.08)


@rejects('power.power: "«one_sided→margin»")', "equivalence by the two-sided margin in power")
def test_equal_models_are_called_equivalent_from_the_promised_number_of_seeds_on():
    n = int(seeds_to_equate(1.2, (1.0, 1.0)))
    chances = [power((1.0, 1.0), seeds, None).equivalent(1.2) for seeds in (n - 1, n)]
    assert chances[0] < 0.8 <= chances[1]
    rate = verdicts((1.0, 1.0), 9, 0, effect=1.2).count("equivalent") / 300
    assert rate == pytest.approx(power((1.0, 1.0), 9, None).equivalent(1.2), abs=0.1)
    assert power((1.0, 1.0), 5, None).equivalent(0.0) == 0


def test_small_effects_need_more_seeds_and_none_is_found_below_a_spread():
    needed = [seeds_to_detect(effect, (1.0, 1.0)) for effect in (4, 2, 1.5, 0.9)]
    assert needed == sorted(needed) and needed[0] < needed[1] < needed[2] and needed[3] == inf
    assert detectable((1.0, 1.0), int(needed[1])) <= 2 < detectable((1.0, 1.0), int(needed[1]) - 1)
    assert seeds_to_equate(0.9, (1.0, 1.0)) < inf
    fewer = replace(DOCUMENTS, error=3.0)
    assert seeds_to_detect(2, (1.0, 1.0), fewer) == inf  # more seeds do not help with documents


def test_one_seed_each_promises_nothing():
    assert isnan(detectable((1.0, 1.0), 1, DOCUMENTS))
