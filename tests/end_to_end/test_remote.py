"""A DVC remote on S3, as docs/remote.md says: what one clone has pushed, another one pulls and does
not make again.
"""

import logging
import re
import subprocess

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.support.project_copy import Project

KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@pytest.fixture
def server(monkeypatch):
    """The address of an S3 server on this machine, with a bucket `lab`."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    moto.start()
    try:
        url = "http://{}:{}".format(*moto.get_host_and_port())
        boto3.client("s3", endpoint_url=url).create_bucket(Bucket="lab")
        yield url
    finally:
        moto.stop()


@pytest.mark.slow
def test_a_clone_has_all_after_a_pull_and_makes_nothing_again(
    copied, tmp_path, warm_python, server
):
    for command in (
        ("dvc", "remote", "add", "--default", "store", "s3://lab/free-transformer-lab"),
        ("dvc", "remote", "modify", "store", "endpointurl", server),
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
    assert clone.stage("sample", "free_k1", "--groups", "1", "--size", "1").returncode == 0
