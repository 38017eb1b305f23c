"""What z is worth: the table, read from results written by hand."""

from dataclasses import replace

import pytest

from pipelines.artifacts.results import Estimate
from pipelines.compare.use_of_z import uses_of_z
from pipelines.report.sections.use_of_z import section
from tests.support.mutants import rejects
from tests.support.pages import tables
from tests.support.results import CONTROLLED, arms_of, run, seeded, write_experiment


@rejects("b.plain", "not b.plain", "recovery against the baseline with more blocks")
def test_the_table(tmp_path):
    """Of a KL of 0.2222: with CE 0.4 under a bound of 0.5, against a baseline of 0.45."""
    bounds = {"base": [0.44, 0.46], "plus": [0.3, 0.3], "free": [0.49, 0.51]}
    others = {f"free_s{seed}": {"ce": 0.4} for seed in (0, 1)}
    (table,) = tables(section(seeded(tmp_path, CONTROLLED, bounds, others=others)).blocks)
    assert [table.head, *table.rows] == [
        ["arm", "data", "κ", "KL", "use of z", "waste", "recovery"],
        ["free", "target", "1", "0.2222 ± 0.0001, spread 0.0000",
         "0.1000 ± 0.0001, spread 0.0141", "0.1222 ± 0.0001, spread 0.0141", "0.23"],
    ]  # fmt: skip


def test_recovery_needs_a_plain_baseline_of_the_same_family(tmp_path):
    runs = {
        "other": run(model="large"),
        "plus": run(extra_blocks=1),
        "alone": run(kappa=1.0),
        "wide": run(kappa=1.0, model="large"),
    }
    alone, wide = uses_of_z(arms_of(write_experiment(tmp_path, runs, {})))
    assert alone.recovery is None
    wide.arm.first.evaluation.bits_per_token = replace(wide.figures, kl=Estimate(0.004, 0.0))
    assert wide.recovery is None
    wide.arm.first.evaluation.bits_per_token = replace(wide.figures, kl=Estimate(0.2222, 0.0))
    assert wide.recovery == pytest.approx((0.5 - 0.1111) / 0.2222)
