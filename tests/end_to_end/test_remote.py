"""A DVC remote, as docs/remote.md says: what one clone has pushed, another one pulls and does not
make again.
"""

import re
import subprocess

import pytest

from tests.support.project_copy import Project


@pytest.mark.slow
def test_a_clone_has_all_after_a_pull_and_makes_nothing_again(copied, tmp_path, warm_python):
    for command in (
        ("dvc", "remote", "add", "--default", "store", f"{tmp_path / 'remote'}"),
        ("git", "add", "-A"),
        ("git", "commit", "-qm", "finished"),
        ("dvc", "push"),
    ):
        copied.ok(*command)
    assert ".dvc/cache" not in copied.ok("git", "ls-files")
    folder = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", copied.folder, folder], check=True)
    # where the first project had its cache and its outputs, nothing is any more
    copied.folder.rename(tmp_path / "gone")
    clone = Project(folder, fresh=False, python=warm_python)
    clone.ok("dvc", "pull")
    for path in (
        *("report/smoke/index.html", "report/smoke/explorer.html", "data/tokens/target"),
        *("checkpoints/smoke/free_k1/last.ckpt", "results/smoke/baseline/metrics.json"),
    ):
        assert (folder / path).exists(), path
    output = clone.ok("dvc", "repro")
    assert re.findall(r"Running stage '([^']+)'", output) == ["sources"]
    assert clone.ok("git", "status", "--porcelain") == ""
    assert clone.ftlab("sample", "free_k1", "--groups", "1", "--size", "1").returncode == 0
