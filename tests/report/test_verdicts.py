"""What the report says of the differences that count; figures are bits per token."""

import re
from math import nan
from pathlib import Path
from typing import Any

import pytest

from pipelines.config.schema import Evaluation
from pipelines.report.analysis import Analysis
from pipelines.report.page import caveat
from pipelines.report.verdicts import findings, introduction, trend
from tests.support.mutants import rejects
from tests.support.results import analysis_of, run, seeded, write_experiment


def caveat_of(analysis: Analysis) -> str:
    return " ".join(caveat(analysis))


VERDICTS = [
    (0.40, "Lower bound than base"),
    (0.481, "No difference measured from base"),  # −0.019; two errors of the pairs are 0.02
    (0.519, "No difference measured from base"),
    (0.53, "Bound above base"),
]


@pytest.mark.parametrize(("bound", "words"), VERDICTS)
def test_verdict_from_bounds_and_errors(tmp_path: Path, bound: float, words: str) -> None:
    runs = {"base": run(), "free": run(kappa=1.0)}
    analysis = analysis_of(write_experiment(tmp_path, runs, {"free": bound}))
    (sentence,) = findings(analysis)["target"]
    assert sentence.startswith(words)
    assert re.search(r"free \([+−]0\.\d{4} ± 0\.0100\)", sentence)
    assert "One seed per arm on target" in caveat_of(analysis)


def test_unknown_errors_make_no_difference(tmp_path: Path) -> None:
    runs = {"base": run(), "free": run(kappa=1.0)}
    analysis = analysis_of(write_experiment(tmp_path, runs, {"free": 0.1}, se=nan))
    assert findings(analysis)["target"][0].startswith("No difference")


PAIR = {"base": run(), "free": run(kappa=1.0)}
CONTROLLED = {"base": run(), "plus": run(extra_blocks=1), "free": run(kappa=1.0)}


def test_how_many_comparisons_were_made_is_said(tmp_path: Path) -> None:
    analysis = seeded(tmp_path, CONTROLLED, {"base": [0.5], "plus": [0.45], "free": [0.4]})
    assert "3 comparisons were made, at 5 % each" in caveat_of(analysis)
    assert "about one comparison in twenty" in caveat_of(analysis)
    assert "comparison" not in caveat_of(Analysis(analysis.arms[:1], Evaluation()))


def test_seeds_are_in_the_words(tmp_path: Path) -> None:
    analysis = seeded(tmp_path, PAIR, {"base": [0.5, 0.52], "free": [0.4, 0.46]})
    assert "6,500 training tokens each, 2 seeds each." in introduction(analysis)
    assert "free (−0.0800 ± 0.0001, seeds ± 0.0316)" in findings(analysis)["target"][0]
    text = caveat_of(analysis)
    assert "One seed" not in text
    assert (
        "an arm with four times the spread of all others" in text and "in one case of six" in text
    )


ATTRIBUTIONS = [
    ({"plus": 0.45, "free": 0.40}, "The gain of free is more than one further block gives: plus"),
    ({"plus": 0.45, "free": 0.45}, "The gain of free is one that plus (1,001"),
    ({"plus": 0.40, "free": 0.45}, "The gain of free is one that plus (1,001"),
    ({"plus": 0.50, "free": 0.50}, None),
    ({"plus": 0.45, "free": 0.55}, None),
]


@rejects(
    "report/verdicts.py",
    'if matched.verdict == "lower":',
    'if matched.verdict != "higher":',
    "a further block's gain put down to z",
)
@pytest.mark.parametrize(("bounds", "words"), ATTRIBUTIONS)
def test_a_gain_that_a_further_block_also_gives_is_called_so(
    tmp_path: Path, bounds: dict[str, float], words: str | None
) -> None:
    analysis = seeded(tmp_path, CONTROLLED, {"base": [0.5], **{k: [v] for k, v in bounds.items()}})
    said = [s for s in findings(analysis)["target"] if s.startswith("The gain")]
    assert len(said) == (words is not None)
    assert all(s.startswith(words or "") for s in said)


def test_a_gain_not_told_apart_from_that_of_a_further_block_is_open(tmp_path: Path) -> None:
    bounds = {"base": [0.5, 0.5], "plus": [0.492, 0.498], "free": [0.484, 0.488]}
    analysis = seeded(tmp_path, CONTROLLED, bounds)
    assert [c.verdict for c in analysis.comparisons] == ["no difference", "lower", "no difference"]
    (sentence,) = [s for s in findings(analysis)["target"] if s.startswith("The gain")]
    assert sentence.startswith("The gain of free is not told apart from plus")


def test_a_control_of_fewer_parameters_says_nothing_of_parameters(tmp_path: Path) -> None:
    analysis = seeded(tmp_path, CONTROLLED, {"base": [0.5], "plus": [0.45], "free": [0.4]})
    for parameters, words in (
        (1500, "more than one further block gives: plus (1,500 parameters against 2,000) has"),
        (2000, "more than one further block or as many parameters give: plus (2,000 parameters"),
    ):
        analysis.arms[1].first.evaluation.parameters = parameters
        analysis.arms[2].first.evaluation.parameters = 2000
        (sentence,) = [s for s in findings(analysis)["target"] if s.startswith("The gain")]
        assert words in sentence


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (0.55, "and this is what the machinery costs"),
        (0.50, "and no cost of the machinery was measured"),
        (0.45, "and is lower all the same, which z cannot explain"),
    ],
)
def test_kappa_zero_shows_what_the_machinery_costs(
    tmp_path: Path, bound: float, words: str
) -> None:
    analysis = seeded(
        tmp_path, {"base": run(), "none": run(kappa=0.0)}, {"base": [0.5], "none": [bound]}
    )
    (sentence,) = [s for s in findings(analysis)["target"] if "κ = 0" in s]
    assert sentence.startswith("none pays for every bit of information in z (κ = 0)")
    assert sentence.endswith(f"{words}.")


KAPPAS = {"base": run()} | {f"free_{k}": run(kappa=float(k)) for k in (0, 1, 2, 3)}
COLLAPSE = {
    "shown": ([0.5, 0.49, 0.6, 0.7], [0.5, 0.3, 0.2, 0.1]),
    "CE no better": ([0.5, 0.49, 0.6, 0.7], [0.5, 0.3, 0.6, 0.5]),
    "bound fine": ([0.5, 0.49, 0.48, 0.4], [0.5, 0.3, 0.2, 0.1]),
    "in between": ([0.5, 0.60, 0.48, 0.4], [0.5, 0.6, 0.2, 0.1]),
    "z ignored": ([0.5, 0.49, 0.6, 0.7], [0.71, 0.3, 0.2, 0.699]),
}


def against_kappa(folder: Path, case: str, half_variance: float = 0.0) -> str:
    bounds, ces = COLLAPSE[case]
    others = {
        f"free_{k}_s0": {"ce": ce, "half_variance": half_variance} for k, ce in enumerate(ces)
    }
    each = {f"free_{k}": [bound] for k, bound in enumerate(bounds)}
    analysis = seeded(folder, KAPPAS, {"base": [0.5], **each}, others=others)
    (sentence,) = [s for s in findings(analysis)["target"] if s.startswith("From κ")]
    return sentence


@rejects(
    "report/verdicts.py",
    "if use.ignored:",
    "if False:",
    "collapse at large κ by a z that is ignored",
)
def test_collapse_at_large_kappa_is_read_off_the_figures(tmp_path: Path) -> None:
    shown = against_kappa(tmp_path / "a", "shown")
    assert "reconstruction cross-entropy (no language-model loss) falls, and from κ = 2 on" in shown
    assert "worse than base, by more than their bounds may be loose: the collapse of" in shown
    assert shown.endswith(" is shown.")
    assert against_kappa(tmp_path / "b", "CE no better").endswith("not shown.")
    ignored = against_kappa(tmp_path / "g", "z ignored")
    assert "from κ = 2 on" in ignored and ignored.endswith("not shown, as z is ignored at κ = 3.")
    fine = against_kappa(tmp_path / "c", "bound fine")
    assert "at no κ is an arm shown to be worse than base" in fine and fine.endswith("not shown.")
    loose = against_kappa(tmp_path / "e", "shown", half_variance=0.15)
    assert "from κ = 3 on" in loose, "at κ = 2 the bound is 0.1 above, and that loose"
    loose = against_kappa(tmp_path / "f", "shown", half_variance=0.25)
    assert "at no κ is an arm shown to be worse than base" in loose
    between = against_kappa(tmp_path / "d", "in between")
    assert "at κ = 1 the arms are worse than base" in between
    assert "but this is not shown at the largest κ" in between
    assert "falls, though not at every step, and at κ" in between


@rejects(
    "report/verdicts.py",
    "sorted((arm for arm in family if arm.preset_design), key=kappa_of)",
    "sorted((arm for arm in family if not arm.baseline), key=kappa_of)",
    "what κ does read off arms of other designs",
)
def test_what_kappa_does_is_not_read_off_other_designs(tmp_path: Path) -> None:
    """Arms of another design, first and last of their κ, change no word."""
    bounds, ces = COLLAPSE["shown"]
    designs = {
        name: run(kappa=kappa, latent={"free_bits": "batch"})
        for name, kappa in (("a", 0.5), ("b", 2.0), ("c", 3.0))
    }
    others = {f"free_{k}_s0": {"ce": ce} for k, ce in enumerate(ces)}
    others |= {f"{name}_s0": {"ce": 0.9} for name in designs}
    each = {f"free_{k}": [bound] for k, bound in enumerate(bounds)}
    each |= {name: [0.3] for name in designs}
    first, *rest = KAPPAS.items()
    arms = dict([first, ("a", designs["a"]), *rest, ("b", designs["b"]), ("c", designs["c"])])
    analysis = seeded(tmp_path / "a", arms, {"base": [0.5], **each}, others=others)
    (sentence,) = [s for s in findings(analysis)["target"] if s.startswith("From κ")]
    assert sentence == against_kappa(tmp_path / "b", "shown")


@rejects(
    "report/use_of_z.py",
    "use.mean < max(2 * use.se, NEGLIGIBLE * kl.mean)",
    "use.mean < 0",
    "a z ignored only where its use is negative",
)
@pytest.mark.parametrize(
    ("ce", "kappa", "said"),
    [
        (0.4, 1.0, False),  # use 0.1 of a KL of 0.2222
        (0.495, 1.0, True),  # 0.005: 2 % of the KL
        (0.485, 1.0, True),  # 0.015: within two standard errors of 0.01
        (0.475, 1.0, False),
        (0.52, 1.0, True),
        (0.5, 0.0, False),  # κ = 0 pays for no bit
    ],
)
def test_a_z_that_the_decoder_ignores_is_named(
    tmp_path: Path, ce: float, kappa: float, said: bool
) -> None:
    runs = {"base": run(), "free": run(kappa=kappa)}
    folder = write_experiment(tmp_path, runs, {}, se=0.01, others={"free": {"ce": ce}})
    sentences = [s for s in findings(analysis_of(folder))["target"] if s.startswith("z is ignored")]
    assert len(sentences) == said
    for sentence in sentences:
        use = f"{0.5 - ce:.4f}".replace("-", "−")
        assert sentence.endswith(f"free ({use} ± 0.0100 of a KL of 0.2222).")


@pytest.mark.parametrize(
    ("ces", "kappa", "said"),
    [
        ((0.4, 0.5), 1.0, True),  # use 0.1 and 0 of a KL of 0.2222
        ((0.4, 0.4), 1.0, False),
        ((0.5, 0.5), 1.0, False),
        ((0.4, 0.5), 0.0, False),
    ],
)
def test_seeds_that_differ_in_their_use_of_z_are_named(
    tmp_path: Path, ces: tuple[float, float], kappa: float, said: bool
) -> None:
    arms = {"base": run(), "free": run(kappa=kappa)}
    others = {f"free_s{i}": {"ce": ce} for i, ce in enumerate(ces)}
    bounds = {"base": [0.5, 0.5], "free": [0.5, 0.5]}
    sentences = findings(seeded(tmp_path, arms, bounds, others=others))["target"]
    named = [s for s in sentences if s.startswith("Seeds of free differ in whether z is used")]
    assert len(named) == said
    for sentence in named:
        assert sentence.endswith("free_s0 (0.1000 ± 0.0001) against free_s1 (0.0000 ± 0.0001).")


@pytest.mark.parametrize("figure", ["monte_carlo", "half_variance"])
def test_a_filter_that_is_not_tight_to_a_tenth_of_the_documents_error_is_named(
    tmp_path: Path, figure: str
) -> None:
    folder = write_experiment(tmp_path, PAIR, {}, se=0.01)
    assert not any("not tight" in s for s in findings(analysis_of(folder))["target"])
    path = folder / "results/tiny/free/evaluation.json"
    path.write_text(path.read_text().replace(f'"{figure}": 0.0005', f'"{figure}": 0.0011'))
    (sentence,) = [s for s in findings(analysis_of(folder))["target"] if "not tight" in s]
    about = "0.0011" if figure == "half_variance" else "0.0005"
    assert f"free (about {about}, error over documents 0.0100)" in sentence


def test_trends() -> None:
    assert trend([3, 2, 1]) == "falls" and trend([1, 1.5, 2]) == "rises"
    assert trend([1, 2, 1.5]) == "rises, though not at every step"
    assert trend([1, 2, 1]) == "ends where it began"


@pytest.mark.parametrize("change", [{"tokens": 13_000}, {"model": "large"}, {"data": "text"}])
def test_unlike_baselines_are_not_compared(tmp_path: Path, change: dict[str, Any]) -> None:
    runs = {"base": run(**change), "free": run(kappa=1.0)}
    analysis = analysis_of(write_experiment(tmp_path, runs, {}))
    assert analysis.comparisons == []
    assert findings(analysis)["target"] == [
        "No baseline of the same model and token budget to compare with: free."
    ]
