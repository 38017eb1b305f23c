"""The tables of bounds, read from results written by hand."""

from pipelines.report.sections.bounds import bounds
from pipelines.report.verdicts import findings
from tests.support.mutants import rejects
from tests.support.pages import by_name, tables
from tests.support.results import PAIR, analysis_of, change, write_experiment

PICKED = {
    "particles": 64, "proposal": 0.25, "converged": False, "gain": 0.0123, "error": 0.0045,
    "shares": {"0.0": 0.9, "0.25": 0.8}, "curve": {"64": 0.61, "128": 0.5977},
}  # fmt: skip


@rejects("Estimate.convergence: « (not converged)→»", "a loose bound without its mark")
@rejects("calibrations: str(«→2 * »", "particles that nothing has")
def test_what_a_calibration_picked_is_shown_and_a_loose_number_says_so(tmp_path):
    others = {"free": {"converged": False, "half_variance": 0.1}}
    folder = write_experiment(tmp_path, PAIR, {"free": 0.6}, others=others)
    change(folder, "free", "evaluation.json", calibration=PICKED)
    analysis = analysis_of(folder)
    (shown,) = [table for table in tables(bounds(analysis)) if "particles" in table.head]
    assert shown.rows == [
        ["free", "64", "0.25", "no", "0.01230, error 0.00450", "64: 0.6100, 128: 0.5977"]
    ]
    row = by_name(next(tables(findings(analysis))))["free"]
    assert "0.6000 ± 0.0100 (not converged)" in row["bound, bits per token"]
    assert row["verdict"] == "not decided: the bound is loose"
