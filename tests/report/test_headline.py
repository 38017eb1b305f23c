"""The first screen: its sentences, and its picture, read back from matplotlib's own objects."""

from pathlib import Path
from typing import Any

import pytest

from pipelines.report.headline import answers, picture
from tests.support.mutants import rejects
from tests.support.results import CE, analysis_of, make_report, run, seeded, write_experiment

PAIR = {"base": run(), "free": run(kappa=1.0)}
THREE = {"base": run(), "free_1": run(kappa=1.0), "free_2": run(kappa=2.0)}
CONTROLLED = {"base": run(), "plus": run(extra_blocks=1), "free": run(kappa=1.0)}


def answer(folder: Path, arms: dict[str, Any], bounds: dict[str, list[float]]) -> str:
    return answers(seeded(folder, arms, bounds))["target"]


@rejects(
    "report/headline.py",
    "if numbers == {1}:",
    "if not numbers:",
    "a single seed not said on the first screen",
)
@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (0.4, "free predicts held-out data better than base, by 0.1000 bits per token."),
        (
            0.5,
            "no Free Transformer is shown to be better than base: for free no difference was "
            "measured.",
        ),
        (
            0.6,
            "no Free Transformer is shown to be better than base: free shows no gain, its bound "
            "lying 0.1000 bits per token higher.",
        ),
    ],
)
def test_a_single_seed_is_answered_as_such(tmp_path: Path, bound: float, words: str) -> None:
    sentence = answer(tmp_path, PAIR, {"base": [0.5], "free": [bound]})
    assert sentence == f"With one seed per arm, {words} Another seed may change this."


def test_seeds_decide_where_there_are_any(tmp_path: Path) -> None:
    """The means differ by 0.1 in both cases."""
    clear = answer(tmp_path / "a", PAIR, {"base": [0.5, 0.51], "free": [0.4, 0.41]})
    assert clear == (
        "Over 2 seeds per arm, free predicts held-out data better than base, by 0.1000 bits per "
        "token."
    )
    wide = answer(tmp_path / "b", PAIR, {"base": [0.4, 0.6], "free": [0.3, 0.5]})
    assert "no Free Transformer is shown to be better than base" in wide


def test_gains_come_first_and_all_arms_are_named(tmp_path: Path) -> None:
    sentence = answer(tmp_path, THREE, {"base": [0.5], "free_1": [0.7], "free_2": [0.45]})
    assert sentence.startswith("With one seed per arm, free_2 predicts held-out data better")
    assert "; free_1 shows no gain, its bound lying 0.2000 bits per token higher." in sentence


@pytest.mark.parametrize(
    ("plus", "words"),
    [
        (0.45, ", and better than plus, which has more blocks and no latent."),
        (0.40, ", but plus gains too, with more blocks and no latent."),
        (0.50, ", and better than plus, which has more blocks and no latent."),
    ],
)
def test_a_gain_that_further_blocks_also_give_is_called_so(
    tmp_path: Path, plus: float, words: str
) -> None:
    bounds = {"base": [0.5], "plus": [plus], "free": [0.4]}
    assert words in answer(tmp_path, CONTROLLED, bounds)


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ({"free": run(kappa=1.0)}, "No baseline of the same model and token budget"),
        ({"base": run()}, "Only baselines were trained"),
    ],
)
def test_without_a_partner_nothing_is_answered_or_drawn(
    tmp_path: Path, runs: dict[str, Any], words: str
) -> None:
    analysis = analysis_of(write_experiment(tmp_path, runs, {}))
    assert answers(analysis)["target"].startswith(words)
    assert picture(analysis) is None
    assert 'class="headline"' not in (make_report(tmp_path) / "index.html").read_text()


def markers(axes: Any, marker: str) -> list[tuple[float, int]]:
    lines = [line for line in axes.lines if line.get_marker() == marker]
    points = [zip(line.get_xdata(), line.get_ydata(), strict=True) for line in lines]
    return [(pytest.approx(x), y) for each in points for x, y in each]


@rejects(
    "report/headline.py",
    "comparison.arm, zero, colour, comparison.threshold",
    "comparison.arm, zero, colour, abs(comparison.mean)",
    "bars of the first picture as wide as the difference",
)
def test_means_bars_and_seeds_are_drawn_from_the_baseline_at_0(tmp_path: Path) -> None:
    analysis = seeded(tmp_path, PAIR, {"base": [0.5, 0.52], "free": [0.4, 0.46]})
    (comparison,) = analysis.comparisons
    figure = picture(analysis)
    assert figure
    (axes,) = figure.axes
    assert markers(axes, "D") == [(0, 0), (-0.08, 1)]
    assert markers(axes, "o") == [(-0.01, 0), (0.01, 0), (-0.11, 1), (-0.05, 1)]
    (bar,) = [c.get_segments()[0] for c in axes.collections if len(c.get_segments()) == 1]
    ends = comparison.mean - comparison.threshold, comparison.mean + comparison.threshold
    assert [x for x, _ in bar] == pytest.approx(ends)
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert labels == ["base", "free (κ = 1)"]
    assert "lower is better" in axes.get_xlabel()
    assert [text.get_text() for text in axes.texts] == ["−0.0800  no difference"]


def test_a_panel_for_each_family_with_a_baseline(tmp_path: Path) -> None:
    runs = {
        **{"base": run(), "free": run(kappa=1.0), "alone": run(kappa=1.0, model="large")},
        **{"text_base": run("text"), "text_free": run("text", kappa=0.5)},
    }
    figure = picture(analysis_of(write_experiment(tmp_path, runs, {})))
    assert figure
    assert [axes.get_title(loc="left").split(":")[0] for axes in figure.axes] == [
        "target_small_6500", "text"
    ]  # fmt: skip
    assert "bits per byte" in figure.axes[1].get_xlabel()


def test_the_bound_alone_is_drawn(tmp_path: Path) -> None:
    figure = picture(seeded(tmp_path, PAIR, {"base": [0.5], "free": [0.6]}))
    assert figure
    (axes,) = figure.axes
    drawn = {x for line in axes.lines for x in line.get_xdata()}
    others = [CE, 0.6 + 0.3, 0.6 + 0.2, 0.6 + 3.0]  # reconstruction CE, ELBO, IWAE, prior
    assert not any(x == pytest.approx(other - 0.5) for x in drawn for other in others)


def test_differences_of_unlike_size_are_all_seen(tmp_path: Path) -> None:
    """Of 0.001 and 5 bits per token: the axis is logarithmic but around 0, and says so."""
    figure = picture(seeded(tmp_path, THREE, {"base": [0.5], "free_1": [0.499], "free_2": [5.5]}))
    assert figure
    assert figure.axes[0].get_xscale() == "symlog"
    assert "logarithmic" in figure.axes[0].get_xlabel()


def test_the_answer_comes_before_everything_else(tmp_path: Path) -> None:
    folder = make_report(write_experiment(tmp_path, PAIR, {"free": 0.4}))
    for name, image in (("index.html", '<img class="headline"'), ("report.md", "headline.png")):
        text = (folder / name).read_text()
        places = [text.index(x) for x in ("predicts held-out data", image, "1 baseline and 1 Free")]
        assert places == sorted(places)
