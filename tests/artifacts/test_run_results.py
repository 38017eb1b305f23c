"""A run with its results."""

import pytest

from pipelines.artifacts.results import Details, EvaluationResult, Figures
from pipelines.artifacts.run_results import RunResults, fraction
from pipelines.config.schema import Run
from tests.support.mutants import rejects


@pytest.mark.parametrize(
    ("kappa", "text"),
    [(1 / 1024, "1/1024"), (1 / 1025, "0.00097561"), (0.3, "3/10"), (8.0, "8")],
)
def test_fractions(kappa: float, text: str) -> None:
    assert fraction(kappa) == text


@rejects("return«→ not» self.run.kappa_bits« is None→»", "a threshold of 0 reported as a baseline")
@rejects('"–" if«→ not» self.run.kappa_bits «is None →»else', "a threshold of 0 written as none")
@pytest.mark.parametrize(("kappa", "text"), [(None, "–"), (0.0, "0"), (0.5, "1/2")])
def test_a_run_without_a_threshold_is_a_baseline_and_one_of_0_is_not(
    kappa: float | None, text: str
) -> None:
    evaluation, details = EvaluationResult(1, 1, 1.0, Figures()), Details([], [], [])
    run = RunResults("a", Run(kappa_bits=kappa), 3, "target", evaluation, details, [])
    assert (run.baseline, run.kappa) == (kappa is None, text)
