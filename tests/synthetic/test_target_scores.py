"""The scores of generated sequences: the samples printed in the paper, and cases made by hand."""

from math import isnan
from pathlib import Path

import pytest

from ftmodel.synthetic.target import is_valid, mean_position, noise_overlap, score_groups, spread

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


@pytest.mark.parametrize(
    ("kappa", "spreads", "overlaps", "valid"),
    [
        (1 / 64, (7.9, 8.5), [0.0, 0.0], 1.0),
        (1 / 8, (14.7, 0.7), [0.0, 0.10], 1.0),
        (1, (11.6, 0.3), [0.40, 0.44], 1.0),
        (8, None, [0.71, 0.55], 0.0),
    ],
)
def test_the_papers_samples_show_what_z_decides(kappa, spreads, overlaps, valid):
    """First the target's position, then the noise, until z carries too much for a valid sample."""
    fresh, *pinned = groups = figure_4()[kappa]
    assert [len(group) for group in groups] == [5, 5, 5]
    scores = score_groups(groups)
    assert (scores.valid, scores.groups, scores.group_size) == (valid, 3, 5)
    if spreads:
        of_z = score_groups([fresh]).spread, score_groups(pinned).spread
        assert of_z == pytest.approx(spreads, abs=0.05)
    assert [score_groups([g]).noise for g in pinned] == pytest.approx(overlaps, abs=0.005)
    assert score_groups(pinned).noise == pytest.approx(sum(overlaps) / 2, abs=0.005)


VALID = {
    "at the start": body("TTTTTTTT"),
    "at the end": body("_" * 56, "TTTTTTTT"),
    "! inside": body("___TTT!TTTT"),
    "! on the last place of all": body("_" * 56, "TTTTTTT!"),
    "! everywhere else": body("!" * 56, "TTTTTTTT"),
    "one letter left": body("___!T!!!!!!"),
    "! around it": body("!TTTTTTTT!", "_!"),
}


NOT_VALID = {
    "7 letters": body("___TTTTTTT"),
    "9 letters": body("___TTTTTTTTT"),
    "two targets": body("TTTTTTTT____TTTTTTTT"),
    "a hole": body("___TTTT_TTT"),
    "a foreign letter": body("___TTTTTTTT__F"),
    "no target": body(),
    "cut off by the start": body("TTTTTTT"),
    "cut off by the end": body("_" * 57, "TTTTTTT"),
    "63 long": body("___TTTTTTTT")[:63],
    "65 long": body("___TTTTTTTT") + "_",
}


@pytest.mark.parametrize(("name", "text"), (VALID | NOT_VALID).items())
def test_one_target_and_noise_is_valid_and_nothing_else(name, text):
    assert is_valid(text, "T") == (name in VALID)


def test_mean_position_counts_the_letters_that_are_left():
    assert mean_position(body("__TTTTTTTT"), "T") == 5.5
    assert mean_position(body("__T!!!!!!T"), "T") == 5.5
    assert mean_position(body("!!"), "T") is None


def test_spread_is_a_standard_deviation_in_characters():
    at = [body("_" * start, "TTTTTTTT") for start in (3, 7)]
    assert spread(at, "T") == 2.0
    assert spread([*at, body()], "T") == 2.0  # a sequence without target has no place
    assert isnan(spread(at[:1], "T"))
    assert score_groups([["T>" + at[0]]]).valid == 1


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
