"""The tables for programs and for the terminal."""

import csv
from math import sqrt

import pytest

from tests.report.conftest import RUNS, SEEDED
from tests.support.results import rows_by


def test_curves_hold_the_bound(small):
    with open(small / "curves.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "run", "tokens", "step", "bits_per_token", "ce_bits_per_token", "kl_bits_per_token"
    ]  # fmt: skip
    bounds = {(row["run"], row["step"]): float(row["bits_per_token"]) for row in rows}
    assert bounds["base", "4"] == pytest.approx(0.25)
    assert bounds["free_k1_8", "4"] == pytest.approx(0.25 + 0.25)
    assert {row["kl_bits_per_token"] for row in rows if row["run"] == "base"} == {""}


def test_arms_are_machine_readable_at_full_precision(small):
    rows = rows_by("arm", small / "arms.csv")
    assert list(rows) == list(RUNS)
    free = rows["free_k1_8"]
    assert (free["filtering_bits_per_token"], free["kappa_bits"]) == ("0.7654321", "0.125")
    assert (free["latent_bits"], rows["free_wide"]["latent_bits"]) == ("3", "5")
    assert (rows["base"]["latent_bits"], rows["base"]["filtering_bits_per_token"]) == ("0", "")
    assert rows["text_free"]["filtering_bits_per_byte_se"] == str(0.01 / 3)


def test_summary_is_one_aligned_line_an_arm(small):
    lines = (small / "summary.txt").read_text().splitlines()
    assert max(map(len, lines)) <= 110
    table = lines[: len(RUNS) + 1]
    assert [line.split()[0] for line in table] == ["arm", *RUNS]
    start = table[0].index("bits/token")
    assert table[2][start:].startswith("0.7654 ± 0.0100")
    assert all(line[start - 2 : start] == "  " and line[start] != " " for line in table)
    assert lines[-1].startswith("The report is in report/tiny/index.html")  # ends `make repro`


def test_arms_have_mean_spread_and_n(seeded):
    rows = rows_by("arm", seeded / "arms.csv")
    assert list(rows) == ["base", "plus", "free_1", "free_2"]
    free = rows["free_1"]
    assert (free["seeds"], free["n"], free["extra_blocks"]) == ("0 1", "2", "0")
    assert float(free["filtering_bits_per_token"]) == pytest.approx(0.45)
    assert float(free["filtering_bits_per_token_spread"]) == pytest.approx(0.06 / sqrt(2))
    assert float(free["last_third_spread"]) == pytest.approx(0.01 / sqrt(2))
    assert list(rows_by("run", seeded / "runs.csv")) == list(SEEDED)
