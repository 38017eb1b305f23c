"""Scores of benchmarks by their names."""

import pytest

from pipelines.artifacts.result_files import flat_numbers
from pipelines.artifacts.suite_results import SampledScore, Sampling, TaskResult, TaskScore, Varied


@pytest.mark.parametrize(
    ("varied", "temperature", "name"),
    [("z", 0.0, "z"), ("tokens", 0.8, "tokens_0.8"), ("z_and_tokens", 1.0, "z_and_tokens_1")],
)
def test_answers_are_named_by_how_they_were_drawn(varied, temperature, name):
    sampling = Sampling(Varied(varied), temperature)
    one, ten, distinct = (TaskScore(value, 0.01) for value in (0.2, 0.5, 0.9))
    score = SampledScore(sampling, 10, {1: one, 10: ten}, distinct, seconds=3.0)
    assert TaskResult(0.2, sampled=[score]).other_figures("mbpp") == {
        f"mbpp/{name}/pass_at_1": one,
        f"mbpp/{name}/pass_at_10": ten,
        f"mbpp/{name}/distinct": distinct,
    }


def test_a_score_alone_claims_no_samples_documents_shots_or_time():
    assert TaskResult(0.5).other_figures("mbpp") == {}
    zeros = dict.fromkeys(("documents", "shots", "truncated", "seconds"), 0)
    assert flat_numbers(TaskResult(0.5)) == {"value": 0.5, "higher_is_better": 1} | zeros
