"""The findings: the sentence and the table of verdicts; figures are bits per token."""

import re
from math import nan

import pytest

from pipelines.compare.use_of_z import uses_of_z
from pipelines.config.schema import EvaluationConfig
from pipelines.report.analysis import Analysis
from pipelines.report.sections.kappa import collapse_at_large_kappa, direction
from pipelines.report.tables import use_cell
from pipelines.report.verdicts import answer, caveat, use_in_words, verdicts
from tests.compare.made_up import baseline, free_transformer
from tests.support.mutants import rejects
from tests.support.pages import by_name, numbers
from tests.support.results import (
    CONTROLLED,
    PAIR,
    analysis_of,
    run,
    seeded,
    write_experiment,
)

THREE = {"base": run(), "free_1": run(kappa=1.0), "free_2": run(kappa=2.0)}
USE, NOTES = "use of z, bits per token", "reservations"


def caveat_of(analysis):
    return " ".join(caveat(analysis))


def table(analysis, data="target"):
    """The cells of each arm by head; of two verdicts, that of the last baseline."""
    return by_name(*verdicts(data, analysis))


def test_verdict_from_bounds_and_errors(tmp_path):
    bounds = {"low": 0.40, "near": 0.481, "close": 0.519, "high": 0.53}  # two errors are 0.02
    runs = {"base": run()} | {name: run(kappa=1.0) for name in bounds}
    analysis = analysis_of(write_experiment(tmp_path / "a", runs, bounds))
    cells = {arm: list(row.values())[1:4] for arm, row in table(analysis).items()}
    assert cells == {
        "base": ["0.5000 ± 0.0100", "–", "–"],
        "low": ["0.4000 ± 0.0100, filter ± 0.00050", "−0.1000 ± 0.0100", "**lower**"],
        "near": ["0.4810 ± 0.0100, filter ± 0.00050", "−0.0190 ± 0.0100", "no difference"],
        "close": ["0.5190 ± 0.0100, filter ± 0.00050", "+0.0190 ± 0.0100", "no difference"],
        "high": ["0.5300 ± 0.0100, filter ± 0.00050", "+0.0300 ± 0.0100", "**higher**"],
    }
    unknown = analysis_of(write_experiment(tmp_path / "b", PAIR, {"free": 0.1}, se=nan))
    assert table(unknown)["free"]["verdict"] == "not known"


def test_baselines_of_several_models_share_a_column(tmp_path):
    runs = {"base": run(), "free": run(kappa=1.0)}
    runs |= {f"{name}_large": spec | {"model": "large"} for name, spec in runs.items()}
    bounds = {"free": 0.6, "free_large": 0.7}
    rows = table(analysis_of(write_experiment(tmp_path, runs, bounds)))
    assert {arm: row["from its baseline"][:7] for arm, row in rows.items()} == {
        "base": "–", "free": "+0.1000", "base_large": "–", "free_large": "+0.2000"
    }  # fmt: skip


@rejects("verdicts.find: «and not c.other.run.random_prefix→»", "a random prefix taken for blocks")
def test_a_random_prefix_is_a_rival_with_a_column_of_its_own(tmp_path):
    """It is no control of the number of parameters."""
    runs = CONTROLLED | {"prefix": run(random_prefix=4)}
    bounds = {"base": 0.9, "plus": 0.8, "free": 0.5, "prefix": 0.4}
    analysis = analysis_of(write_experiment(tmp_path, runs, bounds))
    rows = table(analysis)
    column = next(head for head in rows["free"] if head.startswith("from prefix"))
    assert rows["free"][column].startswith("+0.1000") and rows["plus"][column] == "–"
    assert rows["free"]["gain"].startswith("more than further blocks give")
    assert rows["prefix"]["from base (1,000 parameters)"].startswith("−0.5000")
    assert [arm.kind for arm in analysis.arms if arm.run.random_prefix] == [
        "baseline + random prefix of 4"
    ]


@pytest.mark.parametrize(
    ("bounds", "arms", "figures", "warnings"),
    [
        ({"base": [0.5], "free_1": [0.7], "free_2": [0.45]}, ["free_2"], ["0.0500"],
         ["one seed", "nother seed"]),
        ({"base": [0.5], "free_1": [0.5], "free_2": [0.6]}, [], [], ["one seed", "nother seed"]),
        ({"base": [0.5] * 3, "free_1": [0.4] * 3, "free_2": [0.3] * 3}, ["free_1", "free_2"],
         ["3", "0.1000", "0.2000"], ["only large gains"]),
        ({name: [0.5] * 4 for name in THREE}, [], ["4"], []),
    ],
)  # fmt: skip
def test_the_sentence_names_the_arms_with_a_lower_bound(tmp_path, bounds, arms, figures, warnings):
    said = answer("target", seeded(tmp_path, THREE, bounds))
    assert re.findall("free_.", said) == arms
    assert numbers(re.sub("free_.", "", said)) == figures
    some = ("one seed", "nother seed", "only large gains")
    assert [words for words in some if words in said] == warnings


@pytest.mark.parametrize(("name", "noted"), [("free", True), ("base", False)])
def test_without_a_partner_nothing_is_answered(tmp_path, name, noted):
    analysis = analysis_of(write_experiment(tmp_path, {name: PAIR[name]}, {}))
    assert not numbers(answer("target", analysis)) and not analysis.comparisons
    assert table(analysis)[name][NOTES].startswith("no baseline") == noted


def test_seeds_and_how_many_comparisons_were_made_are_said():
    arms = [baseline("plus", 0.45, extra_blocks=1), free_transformer("free", 0.4)]
    alone, one, several = (
        Analysis(each, EvaluationConfig())
        for each in (arms[:1], [baseline("base", 0.5), *arms], [baseline("base", 0.5, 0.6), *arms])
    )
    assert "3 comparisons were" in caveat_of(one)
    assert "comparisons" not in caveat_of(alone)
    assert len(caveat(several)) == len(caveat(one)) + 1  # what several seeds are for


GAINS = [
    ({"plus": [0.45], "free": [0.40]}, "more than further blocks give (with fewer parameters)", ""),
    ({"plus": [0.45], "free": [0.45]}, "further blocks gain too", "free is not shown"),
    ({"plus": [0.40], "free": [0.45]}, "further blocks gain too", "free is not shown"),
    ({"plus": [0.45], "free": [0.55]}, "–", ""),
    (  # `free` is lower than `base` alone, and `plus` is not
        {"base": [0.5, 0.5], "plus": [0.492, 0.498], "free": [0.484, 0.488]},
        "not told apart from further blocks",
        "free is not shown",
    ),
]


@pytest.mark.parametrize(("bounds", "words", "doubt"), GAINS)
def test_a_gain_that_a_further_block_also_gives_is_called_so(tmp_path, bounds, words, doubt):
    analysis = seeded(tmp_path, CONTROLLED, {"base": [0.5]} | bounds)
    assert table(analysis)["free"]["gain"] == words
    assert ("that z explains the gain of" in answer("target", analysis)) == bool(doubt)
    assert doubt in answer("target", analysis)


def test_a_control_of_fewer_parameters_says_nothing_of_parameters(tmp_path):
    analysis = seeded(tmp_path, CONTROLLED, {"base": [0.5], "plus": [0.45], "free": [0.4]})
    for parameters, words in ((1500, " (with fewer parameters)"), (2000, "")):
        analysis.arms[1].first.evaluation.parameters = parameters
        analysis.arms[2].first.evaluation.parameters = 2000
        cells = table(analysis)["free"]
        assert cells["gain"] == f"more than further blocks give{words}"
        assert f"from plus ({parameters:,} parameters)" in cells


def test_kappa_zero_shows_what_the_machinery_costs(tmp_path):
    words = {0.55: "what the machinery costs", 0.5: "no cost", 0.45: "lower all the same"}
    arms = {"base": run()} | {f"none{i}": run(kappa=0.0) for i in range(3)}
    bounds = {"base": [0.5]} | {f"none{i}": [bound] for i, bound in enumerate(words)}
    rows = table(seeded(tmp_path, arms, bounds))
    for i, said in enumerate(words.values()):
        assert "κ = 0" in rows[f"none{i}"][NOTES] and said in rows[f"none{i}"][NOTES]


KAPPAS = {"base": run()} | {f"free_{k}": run(kappa=float(k)) for k in (0, 1, 2, 3)}
WORSE, BETTER = [0.5, 0.49, 0.6, 0.7], [0.5, 0.3, 0.2, 0.1]
UNSTEADY = {"bounds": [0.5, 0.60, 0.48, 0.4], "ces": [0.5, 0.6, 0.2, 0.1]}


def against_kappa(folder, bounds=WORSE, ces=BETTER, loose=0.0, arms=KAPPAS, more=()):
    others = {f"free_{k}_s0": {"ce": ce, "half_variance": loose} for k, ce in enumerate(ces)}
    others |= {f"{name}_s0": {"ce": 0.9} for name in more}
    each = {f"free_{k}": [bound] for k, bound in enumerate(bounds)}
    each |= {name: [0.3] for name in more}
    analysis = seeded(folder, arms, {"base": [0.5]} | each, others=others)
    ((family),) = analysis.families
    (row,) = collapse_at_large_kappa(family, analysis)
    return row


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ({}, ["falls", "κ = 2 and 3", "shown"]),
        ({"ces": [0.5, 0.3, 0.6, 0.5]}, ["ends where it began", "κ = 2 and 3", "not shown"]),
        ({"bounds": [0.5, 0.49, 0.48, 0.4]}, ["falls", "none", "not shown"]),
        # at κ = 2 the bound is 0.1 above, and that loose
        ({"loose": 0.15}, ["falls", "κ = 3", "shown"]),
        ({"loose": 0.25}, ["falls", "none", "not shown"]),
        (UNSTEADY, ["falls, though not at every step", "κ = 1", "not shown"]),
        ({"ces": [0.71, 0.3, 0.2, 0.699]},
         ["falls, though not at every step", "κ = 2 and 3", "not shown: z is ignored at κ = 3"]),
    ],
)  # fmt: skip
def test_collapse_at_large_kappa_is_read_off_the_figures(tmp_path, measured, expected):
    row = against_kappa(tmp_path, **measured)
    assert [*row.values()] == ["base", "0", "3", *expected]
    assert [*row][3].endswith("(not comparable)")


@rejects("kappa.collapse_at_large_kappa: «arm.preset_design→not arm.baseline»", "other designs' κ")
def test_what_kappa_does_is_not_read_off_other_designs(tmp_path):
    """Arms of another design, first and last of their κ, change nothing."""
    designs = {
        name: run(kappa=kappa, latent={"free_bits": "batch"})
        for name, kappa in (("a", 0.5), ("b", 2.0), ("c", 3.0))
    }
    first, *rest = KAPPAS.items()
    arms = dict([first, ("a", designs["a"]), *rest, ("b", designs["b"]), ("c", designs["c"])])
    row = against_kappa(tmp_path / "a", arms=arms, more=designs)
    assert row == against_kappa(tmp_path / "b")


def test_seeds_that_differ_in_their_use_of_z_are_named():
    """The first ignores its KL of 0.5 bits."""
    (use,) = uses_of_z([free_transformer("free", 1.0, 1.25, se=0.01)])
    assert numbers(use_in_words(use)) == ["1", "0.2500", "0.0100", "0", "0.0000", "0.0100"]
    assert use_in_words(use).startswith("differs between seeds")
    assert use_cell(use) == "25% (differs by seed)"


def test_a_filter_that_is_not_tight_to_a_tenth_of_the_documents_error_is_named(tmp_path):
    folder = write_experiment(tmp_path, PAIR, {}, se=0.01)
    path = folder / "results/tiny/free/evaluation.json"
    plain = path.read_text()
    for figure, about in (("half_variance", "0.0010"), ("monte_carlo", "0.0005")):
        path.write_text(plain.replace(f'"{figure}": 0.0005', f'"{figure}": 0.00099'))
        assert table(analysis_of(folder))["free"][NOTES] == "–"
        path.write_text(plain.replace(f'"{figure}": 0.0005', f'"{figure}": 0.00101'))
        note = table(analysis_of(folder))["free"][NOTES]
        assert note.startswith("bound not tight") and numbers(note) == [about, "0.0100"]


def test_a_trend_may_rise():
    assert direction([1, 1.5, 2]) == "rises"
    assert direction([1, 2, 1.5]) == "rises, though not at every step"
