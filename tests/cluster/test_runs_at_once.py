"""`make repro JOBS=ray` on a cluster of two nodes, one of which dies."""

import re

import pytest
import yaml

from tests.support.project_copy import Project

RUNS = ("baseline", "free_k1_8", "free_k1", "text_free_k1_2")
STEPS = 400  # of those on the target task, with 520 tokens each


@pytest.mark.cluster
def test_all_runs_train_at_once_and_outlive_a_node(two_nodes, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", two_nodes.address)
    project = Project(tmp_path / "project")
    longer = [f"runs.{run}.tokens={STEPS * 520}" for run in RUNS[:3]]
    command = ("python", "-m", "pipelines.repro", "experiment=smoke", *longer)
    process = project.start(*command)
    said, training = [], set()
    try:
        while len(training) < 3 and (line := process.stdout.readline()):
            said.append(line)
            training |= set(re.findall(r"^train@(\w+): .* left ", line))
        assert training, "".join(said)  # three of one CPU each: not all are on the first node
        two_nodes.cluster.remove_node(two_nodes.second, allow_graceful=False)
        said += process.stdout
        assert process.wait() == 0, "".join(said)
    finally:
        process.kill()
        two_nodes.second = two_nodes.cluster.add_node(num_cpus=2)
    assert "4 stages side by side; logs are in logs/smoke/\n" in said
    stages = yaml.safe_load((project.folder / "dvc.lock").read_text())["stages"]
    assert {f"evaluate@{run}" for run in RUNS} < stages.keys()
    for run in RUNS[:3]:
        curve = (project.folder / "results/smoke" / run / "curve.csv").read_text().splitlines()
        assert curve[-1].startswith(f"{STEPS},")
