"""A DVC remote, as docs/remote.md says: what one clone has pushed, another one pulls and does not
make again.
"""

import re
import subprocess

import pytest

from tests.support.project_copy import Project

SECOND = """# @package _global_
defaults: [{/data: [coin]}, {/model: [coin_small]}, {override /suite: none}]
name: second
runs:
  only: {data: coin, model: coin_small, kappa_bits: null, tokens: 2_560, seed: 0}
data: {coin: {train_sequences: 100, validation_sequences: 20}}
models: {coin_small: {optim: {batch_size: 8, warmup_steps: 2}}}
evaluation: {tokens: 640, batch_tokens: 640, groups: 2, group_size: 5, probe_sequences: 8}
"""


def stages_run(output):
    return re.findall(r"Running stage '([^']+)'", output)


@pytest.mark.slow
def test_a_clone_has_two_experiments_after_a_pull_and_makes_nothing_again(
    copied, tmp_path, warm_python
):
    (copied.folder / "conf/experiment/second.yaml").write_text(SECOND)
    for command in (
        ("dvc", "remote", "add", "--default", "store", f"{tmp_path / 'remote'}"),
        ("dvc", "push", "--run-cache"),
        ("python", "-m", "pipelines.cli", "compose", "experiment=second"),
        ("dvc", "repro"),
        ("git", "add", "-A"),
        ("git", "commit", "-qm", "finished"),
        ("dvc", "push", "--run-cache"),
    ):
        copied.ok(*command)
    assert ".dvc/cache" not in copied.ok("git", "ls-files")
    folder = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", copied.folder, folder], check=True)
    # where the first project had its cache and its outputs, nothing is any more
    copied.folder.rename(tmp_path / "gone")
    clone = Project(folder, fresh=False, python=warm_python)
    clone.ok("dvc", "pull", "--run-cache")
    assert stages_run(clone.ok("dvc", "repro")) == ["sources"]
    assert clone.ok("git", "status", "--porcelain") == ""

    clone.compose()
    assert stages_run(clone.ok("dvc", "repro", "--pull")) == ["sources"]
    for path in (
        *("report/smoke/index.html", "report/smoke/explorer.html", "data/tokens/target"),
        *("checkpoints/smoke/free_k1/last.ckpt", "results/smoke/baseline/metrics.json"),
        "report/second/index.html",
    ):
        assert (folder / path).exists(), path
    assert clone.ftlab("sample", "free_k1", "--groups", "1", "--size", "1").returncode == 0
