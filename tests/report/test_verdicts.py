"""The findings: the sentence and the table of verdicts; figures are bits per token."""

import re
from math import nan
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from pipelines.compare.comparison import uses_of_z
from pipelines.config.schema import EvaluationConfig
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Column
from pipelines.report.sections.kappa import collapse_at_large_kappa, direction, kappa
from pipelines.report.tables import use_cell
from pipelines.report.verdicts import answer, caveat, on_benchmarks, use_entry, verdicts
from tests.compare.made_up import baseline, free_transformer
from tests.support.mutants import rejects
from tests.support.pages import by_name, numbers, printed
from tests.support.results import PAIR, analysis_of, run, write_experiment

NOTES = "reservations"


def caveat_of(analysis):
    return " ".join(caveat(analysis))


def made(*arms):
    return Analysis([*arms], EvaluationConfig())


def table(analysis):
    """The cells of each arm by head; of two verdicts, that of the last baseline."""
    (data,) = analysis.by_data
    return by_name(*verdicts(data, analysis))


def test_verdict_from_bounds_and_errors(tmp_path):
    bounds = {"low": 0.40, "near": 0.481, "close": 0.519, "high": 0.53}  # two errors are 0.02
    runs = {"base": run()} | {name: run(kappa=1.0) for name in bounds}
    analysis = analysis_of(write_experiment(tmp_path / "a", runs, bounds))
    cells = {arm: list(row.values())[1:4] for arm, row in table(analysis).items()}
    assert cells == {
        "base": ["–", "0.5000 ± 0.0100", "–"],
        "low": ["lower (one seed)", "0.4000 ± 0.0100, filter ± 0.00050", "−0.1000 ± 0.0100"],
        "near": [
            "not decided (could be up to 0.043)",
            "0.4810 ± 0.0100, filter ± 0.00050",
            "−0.0190 ± 0.0100",
        ],
        "close": [
            "not decided (could be up to 0.043)",
            "0.5190 ± 0.0100, filter ± 0.00050",
            "+0.0190 ± 0.0100",
        ],
        "high": ["higher (one seed)", "0.5300 ± 0.0100, filter ± 0.00050", "+0.0300 ± 0.0100"],
    }
    unknown = table(analysis_of(write_experiment(tmp_path / "b", PAIR, {"free": 0.1}, se=nan)))
    assert unknown["free"]["verdict against base"] == "not known"
    assert "use of z, bits per token" in unknown["free"]
    assert "right answers" not in unknown["free"]


def test_baselines_of_several_models_share_a_column():
    arms, large = [baseline("base", 0.5), free_transformer("free", 0.6)], {"model": "large"}
    arms += [baseline("base_large", 0.5, **large), free_transformer("free_large", 0.7, **large)]
    rows = table(made(*arms))
    assert {arm: row["minus its baseline"][:7] for arm, row in rows.items()} == {
        "base": "–", "free": "+0.1000", "base_large": "–", "free_large": "+0.2000"
    }  # fmt: skip


@rejects(
    "verdicts.find_comparison: «and not c.other.run.random_prefix→»",
    "a random prefix taken for blocks",
)
def test_a_random_prefix_is_a_rival_with_a_column_of_its_own():
    """It is no control of the number of parameters."""
    arms = [baseline("base", 0.9), baseline("plus", 0.8, extra_blocks=1)]
    arms += [free_transformer("free", 0.5), baseline("prefix", 0.4, random_prefix=4)]
    rows = table(made(*arms))
    column = next(head for head in rows["free"] if head.startswith("minus prefix"))
    assert rows["free"][column].startswith("+0.1000") and rows["plus"][column] == "–"
    assert rows["free"]["gain"].startswith("more than further blocks give")
    assert rows["prefix"]["minus base (1,000 parameters)"].startswith("−0.5000")


@pytest.mark.parametrize(
    ("bounds", "arms", "figures", "warnings"),
    [
        ([[0.5], [0.7], [0.45]], ["free_2"], ["0.0500"], ["one seed", "nother seed"]),
        ([[0.5], [0.5], [0.6]], [], [], ["one seed", "nother seed"]),
        ([[0.5] * 3, [0.4] * 3, [0.3] * 3], ["free_1", "free_2"], ["3", "0.1000", "0.2000"],
         ["only large gains"]),
        ([[0.5] * 4] * 3, [], ["4"], []),
        ([[0.5], [0.5] * 4], [], ["1", "4"], []),
    ],
)  # fmt: skip
def test_the_sentence_names_the_arms_with_a_lower_bound(bounds, arms, figures, warnings):
    base, *free = bounds
    free = [free_transformer(f"free_{k}", *each, kappa=k) for k, each in enumerate(free, 1)]
    said = answer("text", made(baseline("base", *base), *free))
    assert re.findall("free_.", said) == arms
    assert numbers(re.sub("free_.", "", said)) == figures
    some = ("one seed", "nother seed", "only large gains")
    assert [words for words in some if words in said] == warnings
    if figures == ["0.0500"]:
        one = "the bound of free_2 is significantly below its baseline’s, by 0.0500 bits per token"
        assert one in said


@pytest.mark.parametrize(
    ("arm", "noted"), [(free_transformer("arm", 0.5), True), (baseline("arm", 0.5), False)]
)
def test_without_a_partner_nothing_is_answered(arm, noted):
    analysis = made(arm)
    assert not numbers(answer("text", analysis)) and not analysis.comparisons
    assert table(analysis)["arm"][NOTES].startswith("no baseline") == noted


def test_seeds_and_how_many_comparisons_were_made_are_said():
    arms = [baseline("plus", 0.45, extra_blocks=1), free_transformer("free", 0.4)]
    alone, one, several = (
        made(*each)
        for each in (arms[:1], [baseline("base", 0.5), *arms], [baseline("base", 0.5, 0.6), *arms])
    )
    assert "3 comparisons were" in caveat_of(one)
    assert len(caveat(alone)) == 1  # errors: there is no comparison, and nothing is loose
    assert len(caveat(several)) == len(caveat(one)) + 2  # what several seeds are for


def controlled(base, plus, free):
    more = baseline("plus", *plus, extra_blocks=1)
    return made(baseline("base", *base), more, free_transformer("free", *free))


@pytest.mark.parametrize(
    ("bounds", "words", "doubt"),
    [
        (([0.5], [0.45], [0.40]), "more than further blocks give", ""),
        (([0.5], [0.45], [0.45]), "further blocks gain too", "free is not shown"),
        (([0.5], [0.40], [0.45]), "further blocks gain too", "free is not shown"),
        (([0.5], [0.45], [0.55]), "–", ""),
        (  # `free` is lower than `base` alone, and `plus` is not
            ([0.5, 0.5], [0.492, 0.498], [0.484, 0.488]),
            "not told apart from further blocks",
            "free is not shown",
        ),
    ],
)
def test_a_gain_that_a_further_block_also_gives_is_called_so(bounds, words, doubt):
    analysis = controlled(*bounds)
    assert table(analysis)["free"]["gain"] == words
    assert ("that z explains the gain of" in answer("text", analysis)) == bool(doubt)
    assert doubt in answer("text", analysis) and "plus" not in answer("text", analysis)


def test_a_gain_is_held_against_the_baseline_with_most_further_blocks():
    arms = [baseline("one", 0.45, extra_blocks=1), baseline("two", 0.3, extra_blocks=2)]
    rows = table(made(baseline("base", 0.5), *arms, free_transformer("free", 0.4)))
    assert rows["free"]["gain"] == "further blocks gain too"


def test_a_control_of_fewer_parameters_says_nothing_of_parameters():
    for parameters, words in ((1999, ", which add fewer parameters"), (2000, "")):
        analysis = controlled([0.5], [0.45], [0.4])
        for arm, size in zip(analysis.arms[1:], (parameters, 2000), strict=True):
            arm.first.evaluation.parameters = size
        cells = table(analysis)["free"]
        assert cells["gain"] == f"more than further blocks give{words}"
        assert f"minus plus ({parameters:,} parameters)" in cells


def test_kappa_zero_shows_what_the_machinery_costs():
    words = {0.55: "what the machinery costs", 0.5: "no cost", 0.45: "lower all the same"}
    free = [free_transformer(said, bound, kappa=0.0) for bound, said in words.items()]
    rows = table(made(baseline("base", 0.5), *free))
    for said in words.values():
        assert "κ = 0" in rows[said][NOTES] and said in rows[said][NOTES]


WORSE, BETTER = [0.5, 0.49, 0.6, 0.7], [0.5, 0.3, 0.2, 0.1]
UNSTEADY = {"bounds": [0.5, 0.60, 0.48, 0.4], "ces": [0.5, 0.6, 0.2, 0.1]}


def against_kappa(bounds=WORSE, ces=BETTER, loose=0.0, designs=()):
    arms = [
        free_transformer(f"free_{k}", bound, ce=ce, kappa=k, filtering={"half_variance": loose})
        for k, (bound, ce) in enumerate(zip(bounds, ces, strict=True))
    ]
    family = [baseline("base", 0.5), *designs[:1], *arms, *designs[1:]]
    (row,) = collapse_at_large_kappa(family, made(*family))
    return row


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ({}, ["falls", "κ = 2 and 3", "shown"]),
        ({"ces": [0.5, 0.3, 0.6, 0.5]}, ["ends where it began", "κ = 2 and 3", "not shown"]),
        ({"ces": [0.5, 0.3, 0.6, 0.4]},
         ["falls, though not at every step", "κ = 2 and 3", "shown"]),
        ({"bounds": [0.5, 0.49, 0.48, 0.4]}, ["falls", "none", "not shown"]),
        # at κ = 2 the bound is 0.1 above, and that loose
        ({"loose": 0.15}, ["falls", "κ = 3", "shown"]),
        ({"loose": 0.25}, ["falls", "none", "not shown"]),
        (UNSTEADY, ["falls, though not at every step", "κ = 1", "not shown"]),
        ({"ces": [0.71, 0.3, 0.2, 0.699]},
         ["falls, though not at every step", "κ = 2 and 3", "not shown: z is ignored at κ = 3"]),
    ],
)  # fmt: skip
def test_collapse_at_large_kappa_is_read_off_the_figures(measured, expected):
    row = against_kappa(**measured)
    assert printed(row.values()) == ["base", "0", "3", *expected]
    assert [*row][3] == Column("reconstruction CE", comparable=False)


@rejects("kappa.collapse_at_large_kappa: «arm.preset_design→not arm.baseline»", "other designs' κ")
def test_what_kappa_does_is_not_read_off_other_designs():
    """Arms of another design, first and last of their κ, change nothing."""
    designs = [
        free_transformer(str(kappa), 0.3, ce=0.9, kappa=kappa, design={"free_bits": "batch"})
        for kappa in (0.5, 2.0, 3.0)
    ]
    assert against_kappa(designs=designs) == against_kappa()


def test_a_z_that_the_decoder_ignores_is_named():
    """0.0249 bits are less than 5 % of a KL of 0.5."""
    uses = uses_of_z([free_transformer("used", 1.0251), free_transformer("ignored", 1.0249)])
    assert [str(use_entry(use)) for use in [*uses, None]] == [
        "0.0251 ± 0.0000, KL 0.5000", "0.0249 ± 0.0000, KL 0.5000, z is ignored", "–"
    ]  # fmt: skip


def test_seeds_that_differ_in_their_use_of_z_are_named():
    """The first ignores its KL of 0.5 bits."""
    (use,) = uses_of_z([free_transformer("free", 1.0, 1.25, se=0.01)])
    assert numbers(use_entry(use)) == ["1", "0.2500", "0.0100", "0", "0.0000", "0.0100"]
    assert use_entry(use).startswith("differs between seeds")
    assert use_cell(use) == "25% (differs by seed)"


@pytest.mark.parametrize(
    ("figure", "about"), [("half_variance", "0.0010"), ("monte_carlo", "0.0000")]
)
def test_a_filter_that_is_not_tight_to_a_tenth_of_the_documents_error_is_named(figure, about):
    for value, told in ((0.00099, []), (0.00101, [about, "0.0100"])):
        free = free_transformer("free", 0.5, se=0.01, filtering={figure: value})
        note = table(made(baseline("base", 0.5), free))["free"][NOTES]
        assert numbers(note) == told and note.startswith("bound not tight") == bool(told)


@rejects("verdicts.reservations: «bound.converged is False→False»", "half a variance of no meaning")
@pytest.mark.parametrize(("half", "se"), [(0.5, 0.01), (0.0, 1.0)])
def test_how_far_a_filter_that_did_not_converge_lies_above_is_not_said(half, se):
    filtering = {"half_variance": half, "converged": False}
    free = free_transformer("free", 0.5, se=se, filtering=filtering)
    note = table(made(baseline("base", 0.5), free))["free"][NOTES]
    assert note.startswith("filter not converged") and not numbers(note)


def test_what_kappa_does_is_told_of_two_values_and_with_a_baseline_alone(monkeypatch):
    monkeypatch.setattr("pipelines.report.sections.kappa.figures_against_kappa", Mock())
    base = baseline("base", 0.5)
    one, two = (free_transformer(str(k), 1.0, kappa=k) for k in (1, 2))
    kinds = [
        [type(block).__name__ for block in kappa(made(*arms))]
        for arms in ((base, one), (one, two), (base, one, two))
    ]
    assert kinds == [[], ["Picture"], ["Picture", "Text", "Table"]]


def test_benchmarks_that_differ_are_counted_and_named():
    verdicts = {"a": "better", "b": "better", "c": "worse", "d": "not decided", "e": None}
    final = {key: {"free": SimpleNamespace(verdict=verdict)} for key, verdict in verdicts.items()}
    tasks = [SimpleNamespace(key=key, name=key.upper()) for key in "abcdef"]
    suite = SimpleNamespace(tasks=tasks, final=final | {"f": {}})
    found = on_benchmarks([suite], SimpleNamespace(name="free"))
    assert found == ["better on 2 (A and B)", "worse on 1 (C)", "not decided on 1", "of 4"]
    assert on_benchmarks([], SimpleNamespace(name="free")) == []


def test_a_trend_may_rise():
    assert direction([1, 1.5, 2]) == "rises"
    assert direction([2, 2, 1]) == "falls, though not at every step"
    assert direction([1, 2, 1.5]) == "rises, though not at every step"
