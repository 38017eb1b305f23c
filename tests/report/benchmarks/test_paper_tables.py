"""Tables 1 to 3 of the paper, as they are read and as they are chosen."""

import pytest

from pipelines.report.benchmarks import nearest, paper_name, read_tables
from tests.support.mutants import rejects

TABLES = read_tables()


def percent_range(value, baseline):
    """Of the printed percentage, given that both values and it are rounded."""
    half = 0.0005
    low, high = (value - half) / (baseline + half), (value + half) / (baseline - half)
    return 100 * (low - 1) - 0.005, 100 * (high - 1) + 0.005


def test_every_value_agrees_with_its_printed_percentage():
    assert [len(table.scores) for table in TABLES] == [16] * 4
    for task, found in (pair for table in TABLES for pair in table.scores.items()):
        assert found.free.keys() == found.relative.keys()
        for kappa, value in found.free.items():
            low, high = percent_range(value, found.baseline)
            assert low <= found.relative[kappa] <= high, (task, kappa)
    found = TABLES[0].scores["mbpp"]  # a value of another column does not agree
    low, high = percent_range(found.free[0.25], found.baseline)
    assert not low <= found.relative[0.5] <= high


def test_values_and_thresholds_are_those_printed():
    first, second, third, late = (table.scores for table in TABLES)
    assert [table.late for table in TABLES] == [False, False, False, True]
    assert first["human_eval_plus"].baseline == 0.055
    assert first["csqa"].relative == {0.25: -11.93, 0.5: 0.0, 1.0: -6.17, 2.0: -0.82}
    assert second["csqa"].free == {0.25: 0.292, 0.5: 0.45, 1.0: 0.346, 2.0: 0.324}
    assert third["boolq"].free == {0.5: 0.725, 1.0: 0.814}
    assert late["boolq"].baseline == 0.755
    assert late["boolq"].relative == {0.5: -0.10, 1.0: 3.42}
    assert {found.metric for found in first.values()} == {
        "pass@1", "em", "macro_avg/acc_char", "acc_char", "acc_completion"
    }  # fmt: skip
    names = [paper_name(task) for task in ("race_high", "race_middle", "mbpp")]
    assert names == ["race.high", "race.middle", "mbpp"]
    assert set(names) <= first.keys()


@rejects(
    "PaperTable.distance: «(log→»(self.parameters «/→-» parameters«)→») + "
    "abs(«log(→»self.tokens «/→-» tokens)«)→»",
    "the nearest table by differences of sizes, not by factors",
)
@pytest.mark.parametrize(
    ("parameters", "tokens", "kappas", "task", "late", "name"),
    [
        (1.2e6, 2.5e6, {0.5, 4.0}, "mbpp", False, "Table 1"),
        (7e9, 300e9, {0.5, 4.0}, "mbpp", False, "Table 2"),
        (8e9, 2e12, {0.5, 4.0}, "mbpp", False, "Table 3"),
        (8e9, 110e9, {0.5}, "mbpp", False, "Table 2"),  # by differences it would be Table 1
        (8e9, 1e12, {2.0}, "mbpp", False, "Table 2"),  # Table 3 has no 2 bits
        (1e6, 1e6, {0.5}, "mbpp", True, "Table 3"),
        (1e6, 1e6, {2.0}, "mbpp", True, None),
        (8e9, 1e12, {4.0}, "mbpp", False, None),
        (8e9, 1e12, {0.5}, "facts", False, None),
    ],
)
def test_the_nearest_table_with_a_threshold_and_a_benchmark_in_common_is_chosen(
    parameters, tokens, kappas, task, late, name
):
    found = nearest(TABLES, parameters, tokens, kappas, {task}, late)
    assert (found and found.name) == name
