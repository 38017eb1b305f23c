"""Tax, use of z and recovery against size."""

from dataclasses import replace
from math import log, sqrt

import pytest

from ftmodel.analysis.differences import Interval, Trend, margin
from pipelines.config.schema import EvaluationConfig
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Cell
from pipelines.report.sections.ladder import (
    LARGER_TAX,
    TARGET,
    TAX,
    draw_ladder,
    factor_cell,
    ladder,
    ladders,
    mean_range,
    trend,
)
from tests.compare.made_up import baseline, free_transformer
from tests.support.figures import check_figure
from tests.support.pages import numbers, printed, tables, text_of

SIZES = {"a": 300_000, "b": 1_000_000, "c": 3_000_000}


def made(ce=1.9, seeds=2):
    """Four tokens a parameter; taxes of κ = 1: 0.01, 0.02 and 0.03 bits, ± 0.002 over seeds."""

    def bounds(mean):
        return [mean - 0.002, mean + 0.002][:seeds]

    arms, z = [], {"ce": ce, "kl": 0.2222, "se": 0.001}
    for number, (name, size) in enumerate(SIZES.items(), 1):
        spec = {"model": name, "tokens": 4 * size}
        own, others = (
            spec | {"evaluation": {"parameters": parameters, "trained_tokens": 4 * size}}
            for parameters in (size, size + 7)
        )
        arms += [
            baseline(f"base_{name}", *bounds(2.0), **own),
            baseline(f"plus_{name}", *bounds(1.9), extra_blocks=2, **others),
            baseline(f"fewer_{name}", *bounds(3), extra_blocks=1, **others),
            # of another design, which no figure here is of
            free_transformer(f"design_{name}", *bounds(3), design={"map": "linear"}, **others),
            free_transformer(f"k0_{name}", *bounds(2.05), kappa=0.0, **z, **others),
            free_transformer(f"k1_{name}", *bounds(2 + number / 100), **z, **others),
        ]
    return Analysis(arms, EvaluationConfig())


@pytest.fixture(scope="module")
def analysis():
    return made()


def without(analysis, *names):
    return replace(analysis, arms=[arm for arm in analysis.arms if not arm.name.endswith(names)])


def test_the_figure_has_seeds_lines_and_the_band_for_another_size(analysis, tmp_path):
    (found,) = ladders(analysis.arms)
    check_figure("ladder", draw_ladder(found), tmp_path)


def test_the_section_has_a_row_for_each_size_and_for_each_line(analysis):
    sizes, trends = tables(ladder(analysis))
    assert len(sizes.rows) == 3 * 2 and len(trends.rows) == 2 * 2
    row = dict(zip(sizes.head, printed(sizes.rows[1]), strict=True))
    assert row["parameters"] == "300,000" and row["tokens per parameter"] == "4.00"
    assert row["κ"] == "1" and row["tax"] == "0.0069 (0.0055 to 0.0083)"
    assert row["recovery"] == "0.45" and mean_range([0.5], 1) == Cell("0.5")
    assert "41.3 times" in text_of(ladder, analysis)
    first, second = map(printed, trends.rows[:2])
    assert first[:2] == ["κ = 0", "the baseline"] and "95 %" in first[3]
    assert first[4].startswith("+0.0347 (95 %: a factor of 1 ")
    assert second[4].startswith("+0.1287 (95 %: a factor of 51.2 ")


def test_a_power_law_that_says_nothing_has_no_long_numbers():
    law = Trend(log(0.01), 0.0, log(TARGET), 1.0, scatter=16.0, points=3, power=True)
    assert numbers(factor_cell(law.at(TARGET))) == ["+0.0100", "95", "1000"]
    for factor, width in ((999.0, "999"), (1000.0, "more than 1000")):
        assert width in factor_cell(Interval(1.0, 1 / factor, factor)).error
    narrow = replace(law, scatter=log(2) / margin(sqrt(4 / 3), 1))
    assert numbers(factor_cell(narrow.at(TARGET))) == ["+0.0100", "95", "2"]


def test_a_tax_of_a_latent_that_is_not_read_is_said_to_be_that():
    assert "3 of 3 arms" in text_of(ladder, made(ce=2.04, seeds=1))


def test_without_a_ladder_there_is_no_section_and_two_sizes_have_no_line(analysis):
    assert not ladder(without(analysis, "_c"))
    (smaller,) = ladders(without(analysis, "plus_c", "fewer_c").arms)
    assert trend(smaller, 1.0, LARGER_TAX) is None and trend(smaller, 1.0, TAX)
