"""Tables 1 to 3 of the paper, as they are read and as they are chosen."""

import pytest

from pipelines.report.benchmarks.paper_tables import (
    PaperScores,
    PaperTable,
    nearest,
    paper_name,
    read_tables,
)
from tests.support.results import PAPER

TABLES = read_tables(PAPER)
COLUMNS = {
    f"{table.name}{', last third' * late}": table.scores(late)
    for table in TABLES
    for late in (False, True)
    if table.scores(late)
}


def percent_range(value: float, baseline: float) -> tuple[float, float]:
    """Of the printed percentage, given that both values and it are rounded."""
    half = 0.0005
    low, high = (value - half) / (baseline + half), (value + half) / (baseline - half)
    return 100 * (low - 1) - 0.005, 100 * (high - 1) + 0.005


@pytest.mark.parametrize("scores", COLUMNS.values(), ids=COLUMNS)
def test_every_value_agrees_with_its_printed_percentage(scores: dict[str, PaperScores]) -> None:
    assert len(scores) == 16
    for task, found in scores.items():
        assert found.free.keys() == found.relative.keys()
        for kappa, value in found.free.items():
            low, high = percent_range(value, found.baseline)
            assert low <= found.relative[kappa] <= high, (task, kappa)


def test_a_figure_of_another_row_does_not_agree() -> None:
    """The check tells values that are rotated within a row."""
    found = TABLES[0].final["mbpp"]
    low, high = percent_range(found.free[0.25], found.baseline)
    assert not low <= found.relative[0.5] <= high


def test_values_and_thresholds_are_those_printed() -> None:
    first, second, third = TABLES
    assert first.final["human_eval_plus"].baseline == 0.055
    assert first.final["csqa"].relative == {0.25: -11.93, 0.5: 0.0, 1.0: -6.17, 2.0: -0.82}
    assert second.final["csqa"].free == {0.25: 0.292, 0.5: 0.45, 1.0: 0.346, 2.0: 0.324}
    assert third.final["boolq"].free == {0.5: 0.725, 1.0: 0.814}
    assert third.last_third["boolq"].baseline == 0.755
    assert third.last_third["boolq"].relative == {0.5: -0.10, 1.0: 3.42}
    assert not first.last_third and not second.last_third
    assert {found.metric for found in first.final.values()} == {
        "pass@1", "em", "macro_avg/acc_char", "acc_char", "acc_completion"
    }  # fmt: skip


def test_names_are_the_papers() -> None:
    names = [paper_name(task) for task in ("race_high", "race_middle", "mbpp")]
    assert names == ["race.high", "race.middle", "mbpp"]
    assert set(names) <= TABLES[0].final.keys()


NEAREST = [
    (1.2e6, 2.5e6, "Table 1"),
    (1.5e9, 47e9, "Table 1"),
    (7e9, 300e9, "Table 2"),
    (8e9, 2e12, "Table 3"),
    (1.5e9, 100e12, "Table 3"),
]


@pytest.mark.parametrize(("parameters", "tokens", "name"), NEAREST)
def test_the_table_nearest_in_size_and_training_is_chosen(
    parameters: float, tokens: float, name: str
) -> None:
    found = nearest(TABLES, parameters, tokens, {0.5, 4.0}, {"mbpp"})
    assert found is not None and found.name == name


def test_only_tables_with_a_threshold_and_a_benchmark_in_common_are_chosen() -> None:
    def name(found: PaperTable | None) -> str | None:
        return found and found.name

    assert name(nearest(TABLES, 8e9, 1e12, {2.0}, {"mbpp"})) == "Table 2"  # Table 3 has no 2 bits
    assert name(nearest(TABLES, 1e6, 1e6, {0.5}, {"mbpp"}, late=True)) == "Table 3"
    assert nearest(TABLES, 1e6, 1e6, {2.0}, {"mbpp"}, late=True) is None
    assert nearest(TABLES, 8e9, 1e12, {4.0}, {"mbpp"}) is None
    assert nearest(TABLES, 8e9, 1e12, {0.5}, {"facts"}) is None
    assert nearest(TABLES, 8e9, 1e12, set(), {"mbpp"}) is None
