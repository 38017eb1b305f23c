"""The scores of generated sequences: the samples printed in the paper, and cases made by hand."""

from math import isnan
from pathlib import Path

import pytest

from ftmodel.synthetic.target_scores import (
    is_valid,
    mean_position,
    noise_overlap,
    score_groups,
    spread,
)

SAMPLES = Path(__file__).parents[2] / "docs/paper/figure4_samples.txt"


def figure_4():
    """{κ: [the group with fresh z, two groups that share z]}, five sequences each."""
    groups = {}
    for line in SAMPLES.read_text().splitlines():
        if line.startswith("kappa_bits"):
            groups[float(line.split()[1])] = current = [[]]
        elif line.startswith("#"):
            continue
        elif line:
            current[-1].append(line)
        else:
            current.append([])
    return groups


def body(*parts):
    """A body of 64 characters that begins with the parts and ends with blanks."""
    return "".join(parts).ljust(64, "_")


def test_the_file_holds_three_groups_of_five_for_each_kappa():
    shape = {kappa: [len(g) for g in groups] for kappa, groups in figure_4().items()}
    assert shape == {kappa: [5, 5, 5] for kappa in (1 / 64, 1 / 8, 1, 8)}


@pytest.mark.parametrize(
    ("kappa", "fresh", "pinned"), [(1 / 64, 7.9, 8.5), (1 / 8, 14.7, 0.7), (1, 11.6, 0.3)]
)
def test_the_papers_samples_show_when_z_decides_the_position(kappa, fresh, pinned):
    groups = figure_4()[kappa]
    assert score_groups(groups[:1]).spread == pytest.approx(fresh, abs=0.05)
    assert score_groups(groups[1:]).spread == pytest.approx(pinned, abs=0.05)


@pytest.mark.parametrize(
    ("kappa", "overlaps"),
    [(1 / 64, [0.0, 0.0]), (1 / 8, [0.0, 0.10]), (1, [0.40, 0.44]), (8, [0.71, 0.55])],
)
def test_the_papers_samples_show_when_z_decides_the_noise(kappa, overlaps):
    groups = figure_4()[kappa][1:]
    assert [score_groups([g]).noise for g in groups] == pytest.approx(overlaps, abs=0.005)
    assert score_groups(groups).noise == pytest.approx(sum(overlaps) / 2, abs=0.005)


@pytest.mark.parametrize(("kappa", "valid"), [(1 / 64, 1.0), (1 / 8, 1.0), (1, 1.0), (8, 0.0)])
def test_the_papers_samples_are_valid_until_z_carries_too_much(kappa, valid):
    scores = score_groups(figure_4()[kappa])
    assert (scores.valid, scores.groups, scores.group_size) == (valid, 3, 5)


@pytest.mark.parametrize(
    "text",
    [
        body("TTTTTTTT"),
        body("_" * 56, "TTTTTTTT"),
        body("___TTT!TTTT"),
        body("___!TTTTTTT"),
        body("___TTTTTTT!"),
        body("_" * 56, "TTTTTTT!"),
        body("!" * 56, "TTTTTTTT"),
        body("___!T!!!!!!"),
        body("!TTTTTTTT!", "_!"),
    ],
    ids=[
        "at the start",
        "at the end",
        "! inside",
        "! on its first place",
        "! on its last place",
        "! on the last place of all",
        "! everywhere else",
        "one letter left",
        "! around it",
    ],
)
def test_one_target_and_noise_is_valid(text):
    assert is_valid(text, "T")


@pytest.mark.parametrize(
    "text",
    [
        body("___TTTTTTT"),
        body("___TTTTTTTTT"),
        body("TTTTTTTT____TTTTTTTT"),
        body("TTTTTTTT", "_" * 48, "TTTTTTTT"),
        body("___TTTT_TTT"),
        body("___TTTTTTTT__T"),
        body("___TTTTTTTT__F"),
        body("___FFFFFFFF"),
        body("___TTTFTTTT"),
        body("___TTTTTTTT>"),
        body(),
        body("!!!!!!!!"),
        body("TTTTTTT"),
        body("_" * 57, "TTTTTTT"),
        body("___TTTTTTTT")[:63],
        body("___TTTTTTTT") + "_",
    ],
    ids=[
        "7 letters",
        "9 letters",
        "two targets",
        "a target at both ends",
        "a hole",
        "a letter astray",
        "a foreign letter",
        "the wrong letter's target",
        "a foreign letter inside",
        "an arrow",
        "no target",
        "only noise",
        "cut off by the start",
        "cut off by the end",
        "63 long",
        "65 long",
    ],
)
def test_anything_else_is_not_valid(text):
    assert not is_valid(text, "T")


def test_mean_position_counts_the_letters_that_are_left():
    assert mean_position(body("__TTTTTTTT"), "T") == 5.5
    assert mean_position(body("__T!!!!!!T"), "T") == 5.5
    assert mean_position(body("!!"), "T") is None


def test_spread_is_a_standard_deviation_in_characters():
    at = [body("_" * start, "TTTTTTTT") for start in (3, 7)]
    assert spread(at, "T") == 2.0
    assert spread([*at, body()], "T") == 2.0  # a sequence without target has no place
    assert isnan(spread(at[:1], "T"))


def test_noise_overlap_is_the_mean_jaccard_index_over_pairs():
    """{0, 1}, {1, 2}, {} give 1/3, 0 and 0."""
    bodies = [body("!!"), body("_!!"), body()]
    assert noise_overlap(bodies) == pytest.approx(1 / 9)
    assert noise_overlap([bodies[0], bodies[0]]) == 1.0
    assert isnan(noise_overlap([bodies[2], bodies[2]]))


def test_a_group_without_target_does_not_hide_the_spread_of_the_others():
    groups = [["T>" + body("_" * s, "TTTTTTTT") for s in (3, 7)], ["A>" + body()] * 2]
    scores = score_groups(groups)
    assert (scores.valid, scores.spread) == (0.5, 2.0)
    assert isnan(scores.noise)
