"""What the report says of the differences that count; figures are bits per token."""

from math import nan

import pytest

from pipelines.config.schema import Evaluation
from pipelines.report.analysis import Analysis
from pipelines.report.page import caveat
from pipelines.report.verdicts import findings, introduction, trend
from tests.support.mutants import rejects
from tests.support.results import CONTROLLED, PAIR, analysis_of, run, seeded, write_experiment


def caveat_of(analysis):
    return " ".join(caveat(analysis))


def said(analysis, start):
    """The findings on the target task that begin so."""
    return [line for line in findings(analysis)["target"] if line.startswith(start)]


def test_verdict_from_bounds_and_errors(tmp_path):
    bounds = {"low": 0.40, "near": 0.481, "close": 0.519, "high": 0.53}  # two errors are 0.02
    runs = {"base": run()} | {name: run(kappa=1.0) for name in bounds}
    analysis = analysis_of(write_experiment(tmp_path / "a", runs, bounds))
    near = "near (−0.0190 ± 0.0100), close (+0.0190 ± 0.0100)."
    for start, end in (
        ("Lower bound than base", "low (−0.1000 ± 0.0100)."),
        ("No difference measured from base", near),
        ("Bound above base", "high (+0.0300 ± 0.0100)."),
    ):
        (sentence,) = said(analysis, start)
        assert sentence.endswith(end)
    assert "One seed per arm on target" in caveat_of(analysis)
    unknown = analysis_of(write_experiment(tmp_path / "b", PAIR, {"free": 0.1}, se=nan))
    assert findings(unknown)["target"][0].startswith("No difference claimed from base")


def test_seeds_and_how_many_comparisons_were_made_are_said(tmp_path):
    analysis = seeded(tmp_path / "a", CONTROLLED, {"base": [0.5], "plus": [0.45], "free": [0.4]})
    assert "3 comparisons were made, at 5 % each: about one comparison" in caveat_of(analysis)
    assert "comparison" not in caveat_of(Analysis(analysis.arms[:1], Evaluation()))
    analysis = seeded(tmp_path / "b", PAIR, {"base": [0.5, 0.52], "free": [0.4, 0.46]})
    assert "6,500 training tokens each, 2 seeds each." in introduction(analysis)
    assert "free (−0.0800 ± 0.0001, seeds ± 0.0316)" in findings(analysis)["target"][0]
    assert "in one case of six" in caveat_of(analysis)  # unequal spreads, with two seeds
    assert "One seed" not in caveat_of(analysis)


ATTRIBUTIONS = [
    ({"plus": [0.45], "free": [0.40]}, "The gain of free is more than one further block gives"),
    ({"plus": [0.45], "free": [0.45]}, "The gain of free is one that plus (1,001"),
    ({"plus": [0.40], "free": [0.45]}, "The gain of free is one that plus (1,001"),
    ({"plus": [0.50], "free": [0.50]}, None),
    ({"plus": [0.45], "free": [0.55]}, None),
    (  # `free` is lower than `base` alone, and `plus` is not
        {"base": [0.5, 0.5], "plus": [0.492, 0.498], "free": [0.484, 0.488]},
        "The gain of free is not told apart from plus",
    ),
]


@rejects('== "lower":', '!= "higher":', "a further block's gain put down to z")
@pytest.mark.parametrize(("bounds", "words"), ATTRIBUTIONS)
def test_a_gain_that_a_further_block_also_gives_is_called_so(tmp_path, bounds, words):
    analysis = seeded(tmp_path, CONTROLLED, {"base": [0.5]} | bounds)
    sentences = said(analysis, "The gain")
    assert len(sentences) == (words is not None)
    assert all(sentence.startswith(words) for sentence in sentences)


def test_a_control_of_fewer_parameters_says_nothing_of_parameters(tmp_path):
    analysis = seeded(tmp_path, CONTROLLED, {"base": [0.5], "plus": [0.45], "free": [0.4]})
    for parameters, words in (
        (1500, "more than one further block gives: plus (1,500 parameters against 2,000) has"),
        (2000, "more than one further block or as many parameters give: plus (2,000 parameters"),
    ):
        analysis.arms[1].first.evaluation.parameters = parameters
        analysis.arms[2].first.evaluation.parameters = 2000
        (sentence,) = said(analysis, "The gain")
        assert words in sentence


def test_kappa_zero_shows_what_the_machinery_costs(tmp_path):
    words = {0.55: "what the machinery costs", 0.5: "no cost", 0.45: "is lower all the same"}
    arms = {"base": run()} | {f"none{i}": run(kappa=0.0) for i in range(3)}
    bounds = {"base": [0.5]} | {f"none{i}": [bound] for i, bound in enumerate(words)}
    sentences = said(seeded(tmp_path, arms, bounds), "none")
    for i, (sentence, said_of_it) in enumerate(zip(sentences, words.values(), strict=True)):
        assert sentence.startswith(f"none{i} pays for every bit of information in z (κ = 0)")
        assert said_of_it in sentence


KAPPAS = {"base": run()} | {f"free_{k}": run(kappa=float(k)) for k in (0, 1, 2, 3)}
WORSE, BETTER = [0.5, 0.49, 0.6, 0.7], [0.5, 0.3, 0.2, 0.1]
UNSTEADY = {"bounds": [0.5, 0.60, 0.48, 0.4], "ces": [0.5, 0.6, 0.2, 0.1]}


def against_kappa(folder, bounds=WORSE, ces=BETTER, loose=0.0, arms=KAPPAS, more=()):
    others = {f"free_{k}_s0": {"ce": ce, "half_variance": loose} for k, ce in enumerate(ces)}
    others |= {f"{name}_s0": {"ce": 0.9} for name in more}
    each = {f"free_{k}": [bound] for k, bound in enumerate(bounds)}
    each |= {name: [0.3] for name in more}
    (sentence,) = said(seeded(folder, arms, {"base": [0.5]} | each, others=others), "From κ")
    return sentence


@rejects("use.ignored:", "False:", "collapse at large κ by a z that is ignored")
@pytest.mark.parametrize(
    ("measured", "parts", "end"),
    [
        ({}, ["(no language-model loss) falls, and from κ = 2 on", "worse than base"], " is shown"),
        ({"ces": [0.5, 0.3, 0.6, 0.5]}, ["from κ = 2 on"], "not shown"),
        ({"bounds": [0.5, 0.49, 0.48, 0.4]}, ["at no κ is an arm shown to be worse"], "not shown"),
        # at κ = 2 the bound is 0.1 above, and that loose
        ({"loose": 0.15}, ["from κ = 3 on", "by more than their bounds may be loose"], " is shown"),
        ({"loose": 0.25}, ["at no κ is an arm shown to be worse than base"], "not shown"),
        (UNSTEADY, ["at every step, and at κ = 1", "not shown at the largest κ"], "not shown"),
        ({"ces": [0.71, 0.3, 0.2, 0.699]}, ["from κ = 2 on"], "as z is ignored at κ = 3"),
    ],
)
def test_collapse_at_large_kappa_is_read_off_the_figures(tmp_path, measured, parts, end):
    sentence = against_kappa(tmp_path, **measured)
    assert all(part in sentence for part in parts)
    assert sentence.endswith(f"{end}.")


@rejects(
    "sorted((arm for arm in family if arm.preset_design), key=kappa_of)",
    "sorted((arm for arm in family if not arm.baseline), key=kappa_of)",
    "what κ does read off arms of other designs",
)
def test_what_kappa_does_is_not_read_off_other_designs(tmp_path):
    """Arms of another design, first and last of their κ, change no word."""
    designs = {
        name: run(kappa=kappa, latent={"free_bits": "batch"})
        for name, kappa in (("a", 0.5), ("b", 2.0), ("c", 3.0))
    }
    first, *rest = KAPPAS.items()
    arms = dict([first, ("a", designs["a"]), *rest, ("b", designs["b"]), ("c", designs["c"])])
    sentence = against_kappa(tmp_path / "a", arms=arms, more=designs)
    assert sentence == against_kappa(tmp_path / "b")


@rejects("max(2 *", "min(0,", "a z ignored only where its use is negative")
def test_a_z_that_the_decoder_ignores_is_named(tmp_path):
    """The KL is 0.2222; κ = 0 pays for no bit of it."""
    ces = {"used": 0.4, "share": 0.495, "error": 0.485, "just": 0.475, "below": 0.52, "zero": 0.5}
    runs = {"base": run()} | {name: run(kappa=float(name != "zero")) for name in ces}
    others = {name: {"ce": ce} for name, ce in ces.items()}
    folder = write_experiment(tmp_path, runs, {}, se=0.01, others=others)
    (sentence,) = said(analysis_of(folder), "z is ignored")
    assert sentence.endswith(
        "bits per token: share (0.0050 ± 0.0100 of a KL of 0.2222), error (0.0150 ± 0.0100 of a KL "
        "of 0.2222), below (−0.0200 ± 0.0100 of a KL of 0.2222)."
    )


def test_seeds_that_differ_in_their_use_of_z_are_named(tmp_path):
    """Use is 0.1 or 0 of a KL of 0.2222."""
    ces = {"differ": (0.4, 0.5), "use": (0.4, 0.4), "ignore": (0.5, 0.5), "zero": (0.4, 0.5)}
    arms = {name: run(kappa=float(3 - i)) for i, name in enumerate(ces)}
    others = {f"{name}_s{i}": {"ce": ce} for name, each in ces.items() for i, ce in enumerate(each)}
    analysis = seeded(tmp_path, arms, {name: [0.5, 0.5] for name in arms}, others=others)
    (sentence,) = said(analysis, "Seeds of ")
    assert sentence.startswith("Seeds of differ differ in whether z is used")
    assert sentence.endswith("differ_s0 (0.1000 ± 0.0001) against differ_s1 (0.0000 ± 0.0001).")


def test_a_filter_that_is_not_tight_to_a_tenth_of_the_documents_error_is_named(tmp_path):
    folder = write_experiment(tmp_path, PAIR, {}, se=0.01)
    start = "The filtering bound is not tight"
    assert said(analysis_of(folder), start) == []
    path = folder / "results/tiny/free/evaluation.json"
    plain = path.read_text()
    for figure, about in (("half_variance", "0.0011"), ("monte_carlo", "0.0005")):
        path.write_text(plain.replace(f'"{figure}": 0.0005', f'"{figure}": 0.0011'))
        (sentence,) = said(analysis_of(folder), start)
        assert f"free (about {about}, error over documents 0.0100)" in sentence


def test_trends():
    assert trend([3, 2, 1]) == "falls" and trend([1, 1.5, 2]) == "rises"
    assert trend([1, 2, 1.5]) == "rises, though not at every step"
    assert trend([1, 2, 1]) == "ends where it began"
