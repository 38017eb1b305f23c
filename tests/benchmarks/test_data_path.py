import pytest

from benchmarks import data_path
from pipelines.artifacts.tokens.shards import Shards
from tests.benchmarks.checks import quick_figures


@pytest.mark.slow
def test_loader_training_and_start():
    names = list(quick_figures(data_path))
    of_arms = ("training", "loader", "loader ÷ training")
    for arm in ("baseline", "H = 8"):
        assert {f"target_small, {arm}: {each}" for each in of_arms} <= {*names}
    assert names[-2:] == ["start on 1 M tokens: first batch", "start on 2 M tokens: first batch"]


def test_a_file_with_holes_is_a_whole_one(tmp_path):
    tokens = 2 * 65_536 + 7
    (file,) = Shards(data_path.zeros(tmp_path / "zeros", tokens)).files["train"]
    assert file.read().tolist() == [0] * tokens
