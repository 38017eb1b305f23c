"""Path-star graphs against their definition: draws enumerated, sequences read in plain Python."""

from collections import Counter
from itertools import permutations, product

import pytest
import torch
from scipy.stats import chisquare

from ftmodel.synthetic.path_star import PathStar
from tests.support.mutants import rejects

FULL = PathStar(degree=3, arm=3, labels=12)
STAR = ["ab", "bc", "cd", "ae", "ef", "fg", "ah", "hi", "ij"]


def text(edges=STAR, end="adbcd"):
    return "654321" + "".join(edge + "|" for edge in edges) + end


def tokens(*texts):
    return torch.tensor([[FULL.symbols.index(c) for c in t] for t in texts])


def all_draws(degree, arm, labels):
    """Every draw of labels, order and goal as the sequence that it gives; all equally likely."""
    blank, bar = labels, labels + 1
    for drawn in permutations(range(labels), 1 + degree * arm):
        start, rest = drawn[0], drawn[1:]
        arms = [rest[i : i + arm] for i in range(0, len(rest), arm)]
        edges = [edge for nodes in arms for edge in zip((start, *nodes), nodes, strict=False)]
        for order in permutations(edges):
            for path in arms:
                flat = [node for edge in order for node in (*edge, bar)]
                yield (blank, *flat, start, path[-1], *path)


@rejects("PathStar.log_probability: «lgamma(self.degree + 1)→»", "arms counted as if in an order")
@pytest.mark.parametrize("sizes", [(2, 1, 3), (2, 2, 5), (1, 3, 4), (3, 1, 5)])
def test_log_probability_counts_the_draws_of_a_sequence(sizes):
    draws = Counter(all_draws(*sizes))
    expected = [count / draws.total() for count in draws.values()]
    actual = PathStar(*sizes, blanks=1).log_probability(torch.tensor(list(draws))).exp()
    assert actual.tolist() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("sizes", "nodes"), [((2, 1, 3), 7), ((1, 2, 3), 8)])
def test_probabilities_of_all_sequences_sum_to_one(sizes, nodes):
    """Every string over all symbols: the first is given, the bars are left in place but tried."""
    star = PathStar(*sizes, blanks=1)
    blank, bar = sizes[2], sizes[2] + 1
    rows = torch.tensor(list(product(range(sizes[2] + 2), repeat=nodes)))
    fixed = torch.full((len(rows), 1), bar)
    parts = (torch.full_like(fixed, blank), rows[:, :2], fixed, rows[:, 2:4], fixed, rows[:, 4:])
    rows = torch.cat(parts, dim=1)
    assert star.log_probability(rows).exp().sum().item() == pytest.approx(1, rel=1e-9)
    for place in (0, 3, 6):
        other = rows[::7].clone()
        other[:, place] = 0
        assert star.log_probability(other).exp().sum() == 0


def test_samples_are_as_frequent_as_probable(rng):
    """By χ² over the 12 sequences of a star with two arms of one node."""
    n, star = 4800, PathStar(2, 1, 3, blanks=1)
    counts = Counter(map(tuple, star.sample(n, rng).tolist()))
    expected = n * star.log_probability(torch.tensor(list(counts))).exp()
    assert len(counts) == 12 and expected.sum().item() == pytest.approx(n)
    assert chisquare([*counts.values()], expected).pvalue > 0.001


def test_labels_goals_and_places_of_edges_are_uniform(rng):
    """By χ², of the full process."""
    rows = FULL.sample(4800, rng)
    edges = rows[:, 6:33].unflatten(1, (9, 3))[:, :, 1]
    place = (edges == rows[:, -4:-3]).long().argmax(1)  # of the edge to the goal
    for values, kinds in ((rows[:, -5], 12), (rows[:, -4], 12), (place, 9)):
        assert chisquare(values.bincount(minlength=kinds)).pvalue > 0.001


WRONG = {
    "another arm's path": text(end="adefg"),
    "path leaves the arm": text(end="adbfd"),
    "path out of order": text(end="adbdc"),
    "a blank twice": text().replace("1", "2"),
    "an arm forks": text([*STAR[:-1], "hj"]),
    "an arm of four, an arm of two": text([*STAR[:-1], "gj"]),
    "the path forks": text([*STAR[:-1], "cj"]),
    "two ways to a node": text([*STAR[:-1], "ib"]),
    "back to the start": text([*STAR[:-1], "ia"]),
    "cycle apart": text([*STAR[:6], "hi", "ij", "jh"]),
    "edge twice": text([*STAR[:-1], STAR[0]]),
    "four arms": text([*STAR[:7], "ak", "hi"]),
}


def test_a_reversed_path_is_the_same_graph_s_from_goal_to_start(rng):
    """Only that order is possible, and it is as probable."""
    reverse = PathStar(degree=3, arm=3, labels=12, reverse=True)
    forward, backward = (
        star.sample(5, torch.Generator().manual_seed(1)) for star in (FULL, reverse)
    )
    assert torch.equal(backward[:, :-3], forward[:, :-3])
    assert torch.equal(backward[:, -3:], forward[:, -3:].flip(1))
    assert torch.equal(reverse.log_probability(backward), FULL.log_probability(forward))
    assert (
        reverse.log_probability(forward).max() == FULL.log_probability(backward).max() == -torch.inf
    )


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_impossible_sequences_have_no_probability(wrong):
    assert FULL.log_probability(tokens(text())).isfinite()
    assert FULL.log_probability(tokens(wrong)).item() == -torch.inf
