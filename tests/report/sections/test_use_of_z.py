"""What z is worth: the table, read from results written by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.artifacts.results import Estimate
from pipelines.report.sections.use_of_z import section
from pipelines.report.use_of_z import uses_of_z
from tests.support.mutants import rejects
from tests.support.results import analysis_of, make_report, run, seeded, write_experiment


@rejects(
    "report/use_of_z.py",
    "if b.plain), None)",
    "if not b.plain), None)",
    "recovery against the baseline with more blocks",
)
def test_the_table(tmp_path: Path) -> None:
    """Of a KL of 0.2222: with CE 0.4 under a bound of 0.5, against a baseline of 0.45."""
    runs = {"base": run(), "plus": run(extra_blocks=1), "free": run(kappa=1.0)}
    bounds = {"base": [0.44, 0.46], "plus": [0.3, 0.3], "free": [0.49, 0.51]}
    others = {f"free_s{seed}": {"ce": 0.4} for seed in (0, 1)}
    topic = section(seeded(tmp_path, runs, bounds, others=others))
    assert topic
    (cells,) = [dict(zip(topic.table[0], row, strict=True)) for row in topic.table[1:]]
    assert cells == {
        "arm": "free",
        "data": "target",
        "κ": "1",
        "KL": "0.2222 ± 0.0001, spread 0.0000",
        "use of z": "0.1000 ± 0.0001, spread 0.0141",
        "waste": "0.1222 ± 0.0001, spread 0.0141",
        "recovery": "0.23",
    }


def test_recovery_needs_a_plain_baseline_of_the_same_family(tmp_path: Path) -> None:
    runs = {
        "other": run(model="large"),
        "plus": run(extra_blocks=1),
        "alone": run(kappa=1.0),
        "wide": run(kappa=1.0, model="large"),
    }
    arms = analysis_of(write_experiment(tmp_path, runs, {})).arms
    alone, wide = uses_of_z(arms)
    assert alone.recovery is None
    wide.arm.first.evaluation.bits_per_token = replace(wide.figures, kl=Estimate(0.004, 0.0))
    assert wide.recovery is None
    wide.arm.first.evaluation.bits_per_token = replace(wide.figures, kl=Estimate(0.2222, 0.0))
    assert wide.recovery == pytest.approx((0.5 - 0.1111) / 0.2222)


def test_baselines_alone_have_no_such_table(tmp_path: Path) -> None:
    write_experiment(tmp_path, {"base": run()}, {})
    assert "What z is worth" not in (make_report(tmp_path) / "report.md").read_text()
