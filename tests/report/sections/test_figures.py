"""What the smaller figures draw, read back from matplotlib's own objects."""

from dataclasses import replace
from math import log, nan
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure

from pipelines.artifacts.curve import CurveRow
from pipelines.artifacts.results import BudgetFigures, CoinSequence, Estimate, Figures
from pipelines.compare.comparison import contrast
from pipelines.config.schema import EvaluationConfig, Run
from pipelines.report.analysis import Analysis
from pipelines.report.sections.bits import heat_map
from pipelines.report.sections.bounds import bound_by_samples
from pipelines.report.sections.hidden_causes import LINES, coin_flip
from pipelines.report.sections.kappa import figures_against_kappa
from pipelines.report.sections.training import bound_by_budget, budgets, training_curves
from pipelines.report.style import GREY, add_legend, label_axes, log_places, spaced, styles
from pipelines.report.verdicts import WIDE, draw_family, headline
from tests.compare.made_up import baseline, free_transformer
from tests.support.figures import check_figure
from tests.support.mutants import rejects
from tests.support.pages import heights, printed
from tests.support.results import PAIR, analysis_of, run, seeded, write_experiment


def test_figures_against_kappa(tmp_path):
    """Seeds are dots, lines go through means, the CE is not beside the bound alone; baselines are
    level with a band over their seeds. Other designs of the latent are left out.
    """
    arms = {
        "base": run(),
        "plus": run(extra_blocks=1),
        "zero": run(kappa=0.0),
        "half": run(kappa=0.5),
        "another_design": run(kappa=0.5, latent={"inject": "residual"}),
        "two": run(kappa=2.0),
    }
    bounds = {name: [0.5, 0.5] for name in arms}
    bounds |= {"base": [0.5, 0.6], "zero": [0.4, 0.5], "two": [0.8, 1.0]}
    check_figure("kappa", figures_against_kappa(seeded(tmp_path, arms, bounds).arms), tmp_path)


def test_snapshots_are_hollow_and_apart_from_annealed_models(tmp_path):
    base = baseline("base", 0.5, 0.5)
    for measured in base.runs:
        measured.evaluation.budgets = [
            BudgetFigures(tokens, tokens, tokens > 3_000_000, Figures(nll=Estimate(mean, 0.0)))
            for tokens, mean in ((1_000_000, 0.9), (2_000_000, 0.8), (4_000_000, 0.5))
        ]
    picture, _, table = budgets(Analysis([base], EvaluationConfig()))
    cells = ["base", "0.9000 ± 0.0000, spread 0.0000, 2 seeds, snapshot", "–"]
    assert printed(table.rows[0][:3]) == cells
    check_figure("budgets", picture.figure, tmp_path)


@rejects(
    'bounds.bound_by_samples: «run.figures("bits_per_token").bound→bounds[sample_counts(arm)[-1]]»',
    "IWAE above its own",
)
def test_iwae_is_drawn_above_the_filtering_bound(tmp_path):
    free = free_transformer("two", 0.5, 0.5)
    for measured in free.runs:
        measured.evaluation.iwae_by_samples = {
            k: Estimate(mean, 0.1) for k, mean in ((16, 1.0), (2, 1.25), (1, 1.5))
        }
    check_figure("samples", bound_by_samples([free], styles(["two"])), tmp_path)


def test_heat_map_shows_each_bit_of_runs_with_different_h(tmp_path):
    figure = heat_map({"three": [0.1, 0.2, 0.3], "five": [0.5] * 5})
    check_figure("kl_per_bit", figure, tmp_path)
    wide = heat_map({"wide": [0.1] * 23 + [0.01]})
    assert [text.get_color() for text in wide.axes[0].texts[-2:]] == ["white", "#1f2937"]
    assert wide.axes[0].texts[0].get_fontsize() == pytest.approx(170 / 24)
    shown, bar = (axes.get_position() for axes in wide.axes)
    assert 0.75 < shown.width < shown.x1 < bar.x0 < bar.x1 < 1
    assert all(tick == round(tick) for tick in wide.axes[0].get_xticks())


BASE = [CurveRow(i, 1_000_000 * i, 1.0, log(2) / i, 0.001, 100.0) for i in (1, 2, 4)]
FREE = [replace(row, kl_bits=0.5, hinge_nats=0.0) for row in BASE]


def test_figures_grow_with_the_rows_of_their_legend():
    arms = [baseline(str(i), 1.0) for i in range(8)]
    look = styles(one.name for one in arms)
    for one in arms:
        one.first.evaluation.budgets = [
            BudgetFigures(tokens, tokens, True, Figures(nll=Estimate(1.0, 0.0)))
            for tokens in (1_000_000, 2_000_000)
        ]
    for drawn, height, row in (
        (lambda arms: training_curves([arm(one.name, BASE) for one in arms], look), 4.4, 0.25),
        (lambda arms: bound_by_samples(arms, look), 4.4, 0.2),
        (lambda arms: bound_by_budget(arms, look), 4.8, 0.2),
    ):
        heights = [drawn(arms[:number]).get_figheight() for number in (3, 4, 7, 8)]
        assert heights == pytest.approx([height, height + row, height + row, height + 2 * row])


def drawn_curves(arms):
    return training_curves(arms, styles(arm.name for arm in arms))


def arm(name, *curves, kappa=0.0):
    runs = [SimpleNamespace(curve=curve) for curve in curves]
    return SimpleNamespace(name=name, runs=runs, first=runs[0], run=Run(kappa_bits=kappa))


def test_the_curve_of_an_only_seed_is_thicker_and_a_latent_may_cost_nothing_at_first():
    (axes,) = drawn_curves([arm("base", BASE)]).axes
    assert [line.get_linewidth() for line in axes.lines] == [1.6]
    assert len(drawn_curves([arm("base", BASE[:1])]).axes) == 1  # of one point
    first_none = [replace(FREE[0], kl_bits=0.0), *FREE[1:]]
    assert heights(drawn_curves([arm("a", first_none)]).axes[1]) == [[0.0, 0.5, 0.5]]


def test_a_vanishing_ce_does_not_stretch_the_axis_and_kappa_0_has_no_place_on_it():
    near = [replace(row, ce_nats=1e-9) for row in FREE]
    bounds, kl = drawn_curves([arm("base", BASE), arm("free", near)]).axes
    assert bounds.get_ylim()[0] == pytest.approx(0.25 / 5)
    assert len(kl.lines) == 1


def test_seeds_look_like_their_arm_and_thresholds_are_dotted_in_its_colour(tmp_path):
    """Of a baseline the curve is the CE, of a Free Transformer CE plus KL, with its CE dashed;
    held-out windows are dots at their tokens.
    """
    scored = [replace(row, others={"held_out_bound_bits": 0.9 / row.step}) for row in FREE[1:]]
    arms = [arm("base", BASE), arm("free", FREE, FREE[:1] + scored, kappa=0.25)]
    check_figure("curves", drawn_curves(arms), tmp_path)


SHOWN = CoinSequence("101", 1, exact=[0.5, 0.7, 0.5], given_side=0.8)
COIN = replace(SHOWN, model=[0.5, 0.6, 0.4])
COIN_BY_Z = replace(SHOWN, encoder_z=[[0.8, 0.81, 0.82]] * 2, prior_z=[[0.2, 0.3, 0.4]] * 2)


def test_a_row_a_run_and_a_column_a_sequence(tmp_path):
    runs = {"base": COIN, "free": COIN_BY_Z}
    figure = coin_flip({name: [each] * 3 for name, each in runs.items()})
    check_figure("coin", figure, tmp_path)
    (alone,) = coin_flip({"base": [COIN]}).legends
    assert [text.get_text() for text in alone.get_texts()] == list(LINES)[:3]  # what is drawn


def test_values_stand_at_their_logarithms_and_0_apart_and_not_all_are_labelled():
    assert [*log_places([16, 1, 2]).items()] == [(1, 0), (2, 1), (16, 4)]
    assert log_places([1, 0, 2]) == {0: -1, 1: 0, 2: 1}
    assert len(spaced({1 + 0.01 * i: i for i in range(100)})) == 12
    assert log_places([0, 2, 2**17])[0] == -1
    assert spaced({1: 0, 2: 6, 3: 6.6, 4: 7, 5: 12}) == [1, 2, 4, 5]
    assert spaced({1.0: 1.0, 1.01: 1.01, 2.0: 2.0}) == [1.0, 2.0]


@pytest.mark.parametrize("labels", [1, 4, 5, 13])
def test_a_legend_stands_close_below_the_axes_whatever_its_rows(labels):
    figure = Figure(figsize=(11, 4.4))
    axes = figure.subplots()
    label_axes(axes, "Title", "x", "y")
    add_legend(figure, {f"arm {i}": {"color": "black"} for i in range(labels)}, 4)
    figure.draw_without_rendering()
    top = figure.legends[0].get_window_extent().y1
    box = axes.get_tightbbox()
    assert 0.05 < (box.y0 - top) / figure.dpi < 0.2  # inches
    assert box.x0 > 0 and box.x1 < figure.bbox.x1 and box.y1 < figure.bbox.y1


def test_no_two_of_forty_arms_look_alike():
    looks = styles(map(str, range(40))).values()
    assert len({(look["color"], look["marker"]) for look in looks}) == 40


THREE = {"base": run(), "free_1": run(kappa=1.0), "free_2": run(kappa=2.0)}


def test_without_a_partner_nothing_is_drawn(tmp_path):
    for name, spec in PAIR.items():
        assert headline(analysis_of(write_experiment(tmp_path / name, {name: spec}, {}))) == []


def drawn(analysis, narrow=False):
    (picture,) = headline(analysis)
    return picture.narrow if narrow else picture.figure


@rejects("verdicts.draw_family: colour, «→abs(»c.«threshold→mean)»", "bars wide as the difference")
def test_means_bars_and_seeds_are_drawn_from_the_baseline_at_0(tmp_path):
    analysis = seeded(tmp_path, PAIR, {"base": [0.5, 0.52], "free": [0.4, 0.46]})
    check_figure("headline", drawn(analysis), tmp_path)
    check_figure("headline_narrow", drawn(analysis, narrow=True), tmp_path)


def test_a_panel_for_each_family_with_a_baseline_of_its_bound_alone(tmp_path):
    alone = {"alone": run(kappa=1.0, model="large")}
    text = {"text_base": run("text"), "text_free": run("text", kappa=0.5)}
    folder = write_experiment(tmp_path, PAIR | alone | text, {"free": 0.6})
    check_figure("headline_of_two", drawn(analysis_of(folder)), tmp_path)


def test_what_a_loose_bound_leaves_open_is_grey(tmp_path):
    loose = {"free": {"half_variance": 0.3, "converged": False}}
    folder = write_experiment(tmp_path, PAIR, {"free": 0.7}, others=loose)
    (axes,) = drawn(analysis_of(folder)).axes
    _, text = axes.texts
    assert text.get_text() == "+0.2000 (not converged)  not decided: the bound is loose"
    assert text.get_color() == GREY


def test_differences_of_unlike_size_are_all_seen(tmp_path):
    """Of 0.001 and 5 bits per token: the axis is logarithmic but around 0, and says so."""
    bounds = {"base": [0.5] * 2, "free_1": [0.499] * 2, "free_2": [5.5] * 2}
    check_figure("headline_wide", drawn(seeded(tmp_path, THREE, bounds)), tmp_path)


@pytest.mark.parametrize(
    ("means", "thresholds", "scale"),
    [
        ((0.5, 100.0), (1.0, 2.0), "symlog"),
        ((0.5, 99.9), (1.0, 2.0), "linear"),
        ((0.5, -100.0), (2.0, 1.0), "symlog"),
        ((0.5, 100.0), (1.0, nan), "linear"),  # without an error there is no place for its bar
        ((0.5, 100.0), (1.0, 0.0), "linear"),
    ],
)
def test_an_axis_is_logarithmic_from_a_hundred_thresholds_on(means, thresholds, scale):
    base = baseline("base", 1.0)
    arms = [free_transformer("a", 1.0), free_transformer("b", 1.0)]
    found = [contrast(arm, base, "bits_per_token", [1.0], [1.0]) for arm in arms]
    pairs = zip(found, means, thresholds, strict=True)
    axes = Figure().subplots()
    draw_family(axes, "x", base, [replace(c, mean=m, threshold=t) for c, m, t in pairs], WIDE)
    assert axes.get_xscale() == scale


def test_the_plain_baseline_is_at_0_and_others_are_told_by_what_they_have_more(tmp_path):
    arms = [free_transformer("free", 1.5), baseline("plus", 1.25, extra_blocks=1)]
    arms += [baseline("base", 1.0), baseline("prefix", 1.75, random_prefix=4)]
    (axes,) = drawn(Analysis(arms, EvaluationConfig())).axes
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert labels == ["base", "free (κ = 1)", "plus (+ 1 block)", "prefix (+ random prefix of 4)"]
    means = [line.get_xdata() for line in axes.lines if line.get_marker() == "D"]
    assert means == [[0], [0.5], [0.25], [0.75]]
