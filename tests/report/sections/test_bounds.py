"""The tables of bounds, read from results written by hand."""

import re

import pytest

from pipelines.artifacts.results import Details, Estimate, EvaluationResult, Figures
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.arms import Arm
from pipelines.config.schema import AUTO, EvaluationConfig, Run
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Text
from pipelines.report.sections.bounds import all_arms, bounds, how_to_read
from pipelines.report.verdicts import findings
from tests.compare.made_up import baseline, free_transformer
from tests.support.mutants import rejects
from tests.support.pages import by_name, printed, tables
from tests.support.results import PAIR, analysis_of, change, write_experiment

PICKED = {
    "particles": 64, "proposal": 0.25, "converged": False, "gain": 0.0123, "error": 0.0045,
    "shares": {"0.0": 0.9, "0.25": 0.8}, "curve": {"64": 0.61, "128": 0.5977},
}  # fmt: skip


def test_what_a_calibration_picked_is_shown_and_a_loose_number_says_so(tmp_path):
    others = {"free": {"converged": False, "half_variance": 0.1}}
    folder = write_experiment(tmp_path, PAIR, {"free": 0.6}, others=others)
    change(folder, "free", "evaluation.json", calibration=PICKED)
    analysis = analysis_of(folder)
    (shown,) = [table for table in tables(bounds(analysis)) if "particles" in table.head]
    gain, curve = "0.01230, error 0.00450", "64: 0.6100, 128: 0.5977"
    assert [*map(printed, shown.rows)] == [["free", "64", "0.25", "no", "–", gain, curve]]
    row = by_name(next(tables(findings(analysis))))["free"]
    assert "0.6000 ± 0.0100 (not converged)" in row["bound, bits per token"]
    assert row["verdict against base"] == "not decided: the bound is loose"


@rejects("bounds.how_to_read: =lambda bound: bound.«monte_carlo or 0→se»", "the largest of others")
def test_the_largest_error_of_a_filter_is_beside_the_error_of_the_same_bound():
    """And the largest half of a variance is another arm's."""
    arms = []
    for name, (se, own, half) in {
        "a": (0.3, 0.01, 0.2),
        "b": (0.1, 0.04, 0.5),
        "c": (0.2, 0.02, 0.9),
    }.items():
        figures = Figures(filtering=Estimate(1.0, se, own, half))
        evaluation = EvaluationResult(9, 99, 1.0, figures)
        spec = Run(kappa_bits=1.0)
        arms.append(
            Arm(name, [RunResults(name, spec, 3, "text", evaluation, Details([], [], []), [])])
        )
    _, words = how_to_read(arms, "bits_per_token", False, EvaluationConfig(particles=8))
    assert re.findall(r"\d\.\d{5}", words) == ["0.04000", "0.10000", "0.90000"]
    assert "of 2 filters of 8 particles, z proposed by the default rule" in words
    arms[2].first.evaluation.bits_per_token = Figures(filtering=Estimate(1.0, 0.4))
    _, words = how_to_read(arms, "bits_per_token", False, EvaluationConfig())
    assert re.findall(r"\d\.\d{5}", words) == ["0.04000", "0.10000", "0.50000"]
    _, words = how_to_read(arms[2:], "bits_per_token", False, EvaluationConfig())
    assert re.findall(r"\d\.\d{5}", words) == ["0.00000", "0.40000", "0.00000"]
    arms[2].first.evaluation.bits_per_token = Figures(filtering=Estimate(1.0, 0.4, 0, 0.9, False))
    for shown, half in ((arms, ["0.50000"]), (arms[2:], [])):
        _, words = how_to_read(shown, "bits_per_token", False, EvaluationConfig())
        assert re.findall(r"\d\.\d{5}", words)[2:] == half
        assert words.endswith("how far the bound lies above is not known.")
    settings = EvaluationConfig(particles=AUTO, filters=3)
    _, words = how_to_read(arms, "bits_per_token", False, settings)
    assert "of 3 filters, whose particles and proposal were found" in words


@pytest.mark.parametrize(("unit", "shown"), [("bits_per_token", True), ("bits_per_byte", False)])
def test_a_gap_to_the_process_is_beside_bounds_by_the_token(unit, shown):
    arm = baseline("base", 1.0)
    arm.first.evaluation.gap_nats_per_token = Estimate(0.125, 0.01)
    (table,) = all_arms([arm], unit, EvaluationConfig())
    cells = by_name(table)["base"]
    assert cells.get("gap to exact, nats/token", "") == "0.1250 ± 0.0100" * shown
    assert cells["H"] == "3"


@pytest.mark.parametrize(("seeds", "single"), [(1, []), (2, ["single runs, bits per token"])])
def test_single_runs_are_shown_beside_several_and_differences_where_there_are_any(seeds, single):
    arms = [baseline("base", *[1.0] * seeds)]
    arms += [free_transformer(name, *[bound] * seeds) for name, bound in (("a", 1.5), ("b", 0.5))]

    def heads(blocks):
        texts = [block.markdown for block in blocks if isinstance(block, Text)]
        return [text.removeprefix("### text: ") for text in texts if text.startswith("###")]

    assert heads(bounds(Analysis(arms[:1], EvaluationConfig()))) == ["bits per token", *single]
    blocks = bounds(Analysis(arms, EvaluationConfig()))
    differences = "differences from the baselines, bits per token"
    assert heads(blocks) == ["bits per token", differences, *single]
    shown = by_name([*tables(blocks)][1])
    found = {name: row["minus base (1,000 parameters)"] for name, row in shown.items()}
    assert [words[:7] for words in found.values()] == ["+0.5000", "−0.5000"]
    arms[0].first.evaluation.bits_per_byte = Figures(nll=Estimate(0.5, 0.0))
    assert heads(bounds(Analysis(arms[:1], EvaluationConfig())))[:2] == [
        "bits per byte", "bits per token"
    ]  # fmt: skip
