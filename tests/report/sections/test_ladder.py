"""Tax, use of z and recovery against size, read from results written by hand."""

import re
from dataclasses import replace
from math import log, sqrt

import pytest

from ftmodel.analysis.differences import margin
from ftmodel.analysis.trend import Trend
from pipelines.compare.ladder import LARGER_TAX, TAX, ladders
from pipelines.report.sections.ladder import PUBLISHED, TARGET, draw, format_factor, ladder, trend
from tests.support.figures import check_figure
from tests.support.mutants import rejects
from tests.support.pages import numbers, tables, text_of
from tests.support.results import analysis_of, change, run, with_seeds, write_experiment

SIZES = {"a": 300_000, "b": 1_000_000, "c": 3_000_000}


def write(folder, ce=1.9, seeds=2):
    """Four tokens a parameter; taxes of κ = 1: 0.01, 0.02 and 0.03 bits, ± 0.002 over seeds."""
    arms, bounds = {}, {}
    for number, (name, size) in enumerate(SIZES.items(), 1):
        spec = run("text", model=name, tokens=4 * size)
        arms |= {f"base_{name}": spec, f"plus_{name}": spec | {"extra_blocks": 2}}
        arms[f"fewer_{name}"] = spec | {"extra_blocks": 1}
        # of another design, which no figure here is of
        arms[f"design_{name}"] = spec | {"kappa_bits": 1.0, "latent": {"inject": "residual"}}
        arms |= {f"k{k}_{name}": spec | {"kappa_bits": float(k)} for k in (0, 1)}
        means = {"base": 2.0, "plus": 1.9, "fewer": 3, "design": 3, "k0": 2.05}
        means["k1"] = 2 + number / 100
        for seed, off in enumerate((-0.002, 0.002)):
            bounds |= {f"{a}_{name}_s{seed}": mean + off for a, mean in means.items()}
    runs = with_seeds(arms, seeds)
    write_experiment(folder, runs, bounds, 0.001, {name: {"ce": ce} for name in runs})
    for name, spec in runs.items():
        size = SIZES[spec["model"]] + 7 * (not name.startswith("base"))
        change(folder, name, "evaluation.json", parameters=size)
    return analysis_of(folder)


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    return write(tmp_path_factory.mktemp("ladder"))


def without(analysis, *names):
    return replace(analysis, arms=[arm for arm in analysis.arms if not arm.name.endswith(names)])


def test_the_published_point_is_drawn_beside_the_band_and_not_fitted(analysis, tmp_path):
    (found,) = ladders(analysis.arms)
    figure = draw(found)
    check_figure("ladder", figure, tmp_path)
    tax, larger, use, recovery = figure.axes
    for axes in (tax, larger):
        (bars,) = axes.containers
        assert [list(each) for each in bars.lines[0].get_data()] == [[TARGET], [PUBLISHED[0]]]
        assert len(axes.collections) == 2 + 1  # a band for each κ, and the error bar
        ends = [line.get_xdata()[-1] for line in axes.lines if len(line.get_xdata()) == 60]
        assert ends == pytest.approx([TARGET] * 2)
    assert not use.containers and not recovery.containers
    (legend,) = figure.legends
    assert "loose bound" in legend.get_texts()[-1].get_text()


def test_the_section_has_a_row_for_each_size_and_for_each_line(analysis):
    sizes, trends = tables(ladder(analysis))
    assert len(sizes.rows) == 3 * 2 and len(trends.rows) == 2 * 2
    row = dict(zip(sizes.head, sizes.rows[1], strict=True))
    assert row["parameters"] == "300,000" and row["tokens per parameter"] == "4.00"
    assert row["κ"] == "1" and row["tax"] == "0.0069 (0.0055 to 0.0083)"
    assert "41.3 times" in text_of(ladder, analysis)
    assert trends.rows[0][:2] == ["κ = 0", "the baseline"] and "95 %" in trends.rows[0][3]
    assert re.match(r"\+\d\.\d{4} \(95 %: a factor of \d", trends.rows[0][4])


def test_a_power_law_that_says_nothing_has_no_long_numbers():
    law = Trend(log(0.01), 0.0, log(TARGET), 1.0, scatter=16.0, points=3, power=True)
    assert numbers(format_factor(law.at(TARGET))) == ["+0.0100", "95", "1000"]
    narrow = replace(law, scatter=log(2) / margin(sqrt(4 / 3), 1))
    assert numbers(format_factor(narrow.at(TARGET))) == ["+0.0100", "95", "2"]


def test_a_tax_of_a_latent_that_is_not_read_is_said_to_be_that(tmp_path):
    analysis = write(tmp_path, ce=2.04, seeds=1)
    assert "3 of 3 arms" in text_of(ladder, analysis)


def test_without_a_ladder_there_is_no_section_and_two_sizes_have_no_line(analysis):
    assert not ladder(without(analysis, "_c"))
    (smaller,) = ladders(without(analysis, "plus_c", "fewer_c").arms)
    assert trend(smaller, 1.0, LARGER_TAX) is None and trend(smaller, 1.0, TAX)


@rejects("Ladder.kappas: «set.intersection→set.union»", "a threshold that one size has")
@rejects("compare.ladder.ladder: «max(ratios)→ratios[-1]»", "sizes of other tokens per parameter")
def test_sizes_and_thresholds_rise_as_numbers_and_every_size_has_them(tmp_path):
    """Named and written down from the largest on; of κ = 1 one size has no arm."""
    arms = {}
    for name, size in reversed(SIZES.items()):
        spec = run("text", model=name, tokens=4 * size)
        arms[f"base_{name}"] = spec
        kappas = (0.5, 1e-5, 1.0) if name != "b" else (0.5, 1e-5)
        arms |= {f"k{i}_{name}": spec | {"kappa_bits": k} for i, k in enumerate(kappas)}
    write_experiment(tmp_path, arms, {})
    for name, spec in arms.items():
        change(tmp_path, name, "evaluation.json", parameters=SIZES[spec["model"]])
    analysis = analysis_of(tmp_path)
    (found,) = ladders(analysis.arms)
    assert [rung.parameters for rung in found.rungs] == [300_000, 1_000_000, 3_000_000]
    assert found.kappas == [1e-5, 0.5]  # as text the other way round
    for arm in analysis.arms:
        arm.first.evaluation.trained_tokens *= 1 + arm.name.endswith("_a")
    assert ladders(analysis.arms) == []
