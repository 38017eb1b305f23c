"""What z is worth and does: use of z, labels, persistence, swap and steering."""

from dataclasses import replace
from math import nan
from types import SimpleNamespace

import pytest

from ftmodel.analysis.information import NetInformation
from ftmodel.analysis.statistics import Chance
from pipelines.artifacts.results import Clusters, Estimate, LabelFigures, Steering
from pipelines.config.schema import EvaluationConfig
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import MISSING, Cell
from pipelines.report.sections import all_sections, hidden_causes
from pipelines.report.sections.bits import bit_information, by_lag, net_bits, persistence
from pipelines.report.sections.hidden_causes import label_in_bits, label_verdict
from pipelines.report.sections.what_z_does import judged, of_clusters, sequence_z, steering, swap
from pipelines.report.style import styles
from tests.compare.made_up import free_transformer
from tests.support.figures import check_figure
from tests.support.pages import check_report, printed, tables, text_of
from tests.support.results import (
    analysis_of,
    change,
    in_folder,
    make_report,
    run,
    write_experiment,
)


def measured(mean, se=0.01):
    return {"mean": mean, "se": se}


EXCESS = {"bits": 0.125, "se": 0.01, "null_mean": 0.02, "null_sd": 0.003}
ESTIMATE = measured(1.25, 0.5)
PATH = [
    {"share": i / 2, "start": measured(i, 0.1), "end": measured(-i, 0.1), "random": ESTIMATE}
    for i in (1, 2)
]
CONTEXT = {"before": "if a <b", "token": "\n", "after": "a | b_c", "probability": 0.75}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    runs = {"base": run("text"), "free": run("text", kappa=1.0), "old": run("text", kappa=2.0)}
    folder = write_experiment(tmp_path_factory.mktemp("z"), runs, {})
    swapped = {"texts": 12} | dict.fromkeys(("own", "prior", "other", "permuted"), ESTIMATE)
    for i, source in enumerate(("prior", "other", "permuted")):
        swapped[f"{source}_minus_own"] = measured(0.3 + i)
    clusters = {"same": measured(0.7), "different": measured(0.5), "null_95": 0.02}
    codes = {
        "texts": 12, "own": measured(1, 0.1), "other": measured(3, 0.1), "path": PATH,
        "half": measured(0.25, 0.03), "half_random": measured(-0.02),
        "half_minus_random": measured(0.27, 0.02), "clusters": clusters | {"p_value": 0.001},
    }  # fmt: skip
    steered = {"same": measured(0.6), "different": measured(0.75), "ratio": ESTIMATE}
    steered |= {"null_mean": 1.0, "null_95": 1.01, "p_value": 0.001}
    change(folder, "base", "evaluation.json", steering={"same": measured(0.65)})
    change(
        folder, "free", "evaluation.json", swap=swapped, sequence_z=codes, steering=steered,
        persistence={"16": EXCESS, "0": EXCESS, "1": EXCESS | {"bits": -0.5}, "2": EXCESS},
    )  # fmt: skip
    bit = {"bit": 2, "kl": ESTIMATE, "read": EXCESS, "predicted": EXCESS | {"se": None}}
    bit |= {"set": [CONTEXT], "unset": [CONTEXT]}
    change(folder, "free", "details.json", persistence=[EXCESS] * 3, bits=[bit])
    return folder


@pytest.fixture(scope="module")
def analysis(folder):
    return analysis_of(folder)


def test_all_tables_are_those_that_were_found_right(folder):
    check_report("latent", make_report(folder))


def test_contexts_are_shown_as_text(analysis):
    text = text_of(bit_information, analysis)
    assert "```sample\n0.750 if a <b[\n]a | b_c\n```" in text
    title = "Bit 2: KL 1.2500 ± 0.5000, information 0.1250 ± 0.0100 about the token read, 0.1250"
    assert title in text


def test_of_baselines_alone_there_is_no_section(analysis, folder):
    alone = replace(analysis, arms=[arm for arm in analysis.arms if arm.baseline])
    topics = (bit_information, swap, sequence_z, steering)
    assert not any(topic(alone) for topic in topics)
    with in_folder(folder):
        shown = {section.name for section in all_sections(alone)}
    assert "bounds" in shown and not shown & {topic.__name__ for topic in topics}


SAME = Estimate(0.5, 0.1)


def steers(p, ratio=1.25):
    return Steering(SAME, SAME, Estimate(ratio, 0.1), 1.0, 1.1, p_value=p)


def apart(p, same=0.7):
    return Clusters(Estimate(same, 0.1), SAME, null_95=0.25, p_value=p)


def verdicts(found):
    """Of clusters, by run: the verdict, and p in words."""
    (table,) = of_clusters(found)
    return {name: (verdict, p) for name, *_, p, verdict in map(printed, table.rows)}


def test_where_p_is_large_or_the_sign_wrong_nothing_is_shown():
    for same, p in ((0.7, 0.05), (0.5, 0.01), (0.4, 0.01)):
        assert verdicts([("free", apart(p, same))])["free"][0] == "not shown"
    assert judged(steers(0.001), 0.001, "z") == "z steers"
    assert judged(steers(None), None, "z") == MISSING
    for ratio, p in ((1.25, 0.05), (1.0, 0.01), (0.9, 0.01)):
        assert judged(steers(p, ratio), p, "z") == "not shown"


def test_similarities_are_in_percent_and_two_runs_are_two_tests():
    (table,) = of_clusters([("a", apart(0.001)), ("b", apart(0.002))])
    shares = ["70.0 ± 10.0 %", "50.0 ± 10.0 %", "25.0 percentage points"]
    p = "p = 0.001, 0.002 adjusted for 2 runs"
    assert printed(table.rows[0]) == ["a", *shares, p, "yes"]


def test_one_run_of_many_with_a_small_p_shows_nothing(tmp_path):
    """Of 20 tests of nothing one has p = 0.05 by chance."""
    chances = [(f"s{i}", i / 20) for i in range(1, 21)]
    found = [(name, apart(p)) for name, p in chances]
    assert {words for words, _ in verdicts(found).values()} == {"not shown"}
    first, *others = verdicts([("s1", apart(0.001)), *found[1:]]).values()
    assert first == ("yes", "p = 0.001, 0.02 adjusted for 20 runs")
    assert all(words == "not shown" for words, _ in others)
    runs = {name: run("text", kappa=1.0) for name, _ in chances}
    folder = write_experiment(tmp_path, runs, {})
    steered = {"same": measured(0.6), "different": measured(0.75), "ratio": ESTIMATE}
    for name, p in chances:
        change(folder, name, "evaluation.json",
               steering=steered | {"null_mean": 1.0, "null_95": 1.01, "p_value": p})  # fmt: skip
    (table,) = tables(steering(analysis_of(folder)))
    assert {tuple(printed(row[-2:])) for row in table.rows} == {("1", "not shown")}


def test_a_run_of_one_document_has_no_error_to_show():
    one = NetInformation(0.5, nan, 0.1, 0.1)
    assert net_bits(one) == Cell("0.5000") and net_bits(None) == MISSING
    measured = SimpleNamespace(details=SimpleNamespace(persistence=[one] * 3))
    figure = persistence([SimpleNamespace(name="free", runs=[measured])], styles(["free"]))
    assert figure.axes[0].lines[0].get_ydata().tolist() == [0.5] * 3


@pytest.mark.parametrize("number", [2, 9])
def test_more_arms_than_colours_have_a_panel_each(number, tmp_path):
    curve = [NetInformation(bits, 0.1, 0.3, 0.2) for bits in (0.5, 1.5, -0.25)]
    measured = SimpleNamespace(details=SimpleNamespace(persistence=curve))
    arms = [SimpleNamespace(name=f"free_{i}", runs=[measured]) for i in range(number)]
    figure = persistence(arms, styles(arm.name for arm in arms))
    check_figure(f"persistence_of_{number}", figure, tmp_path)
    assert len(persistence(arms[:8], styles(arm.name for arm in arms)).axes) == min(number, 1)


def test_a_lag_that_a_run_lacks_is_a_dash_and_what_is_subtracted_is_of_lag_1():
    other = NetInformation(0.5, nan, 0.3, 0.4)
    runs = [
        SimpleNamespace(name=name, evaluation=SimpleNamespace(persistence=found))
        for name, found in (
            ("a", {1: NetInformation(0.25, nan, 0.02, 0.003), 2: other}),
            ("b", {0: other, 2: other}),
            ("c", None),
        )
    ]
    (table,) = by_lag(runs)
    assert [*map(printed, table.rows)] == [
        ["a", "–", "0.2500", "0.5000", "0.0200", "0.0030"],
        ["b", "0.5000", "–", "0.5000", "–", "–"],
        ["c", *"–––––"],
    ]


def label(p, whole_p=0.9, bits=0.5):
    whole = Chance(0.625, 0.01, 0.02, whole_p)
    chance = {"null_mean": 0.01, "null_95": 0.02, "p_value": p}
    return LabelFigures(value=bits, whole=whole, per_bit=[0.5, 0.1], text=0.875, **chance)


def arm(*labels):
    runs = [
        SimpleNamespace(name=f"free_s{i}", evaluation=SimpleNamespace(label=each))
        for i, each in enumerate(labels)
    ]
    return SimpleNamespace(name="free", runs=runs)


@pytest.mark.parametrize(
    ("labels", "verdict", "p", "bits"),
    [
        ([label(0.9, 0.01)], "1 of 1 runs", "p = 0.02", "0.50"),
        ([label(0.03, 0.04)], "not shown", "p = 0.06", "0.50"),
        ([label(0.025)], "not shown", "p = 0.05", "0.50"),
        ([label(0.8)], "not shown", "p = 1", "0.50"),
        ([label(0.001), label(0.9, 0.002)], "2 of 2 runs", "p ≤ 0.004", "0.50"),
        ([label(0.2), label(0.3)], "not shown", "p ≥ 0.4", "0.50"),
        ([label(0.001, bits=0.75), label(0.2, bits=0.5)], "1 of 2 runs", "p = 0.002", "0.62"),
    ],
)
def test_z_carries_the_label_or_is_not_shown_to(labels, verdict, p, bits):
    row = printed(label_verdict(arm(*labels)).values())
    assert row == ["free", verdict, p, bits, "0.62", "0.88"]


def test_three_panels_of_labels_stand_side_by_side_on_one_scale():
    found = [replace(label(0.2), per_bit=[high] * 16) for high in (0.1, 0.5, 0.9)]
    figure = label_in_bits([arm(*found)])
    assert figure.get_figwidth() == pytest.approx(3 * 3.7)
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert {*figure.axes[0].get_xticks()} >= {0, 5, 10, 15}
    assert len(label_in_bits([arm(found[0])]).axes) == 1


def test_a_panel_a_run_with_chance_beside_its_bits(tmp_path):
    check_figure("label", label_in_bits([arm(label(0.001), label(0.2))]), tmp_path)
    free = free_transformer("free", 1.0)
    free.first.evaluation.label = label(0.001)
    found = hidden_causes.label(Analysis([free], EvaluationConfig()))
    assert [[row[0] for row in table.rows] for table in tables(found)] == [["free"], ["free_s0"]]
