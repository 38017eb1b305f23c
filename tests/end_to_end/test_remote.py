"""A DVC remote, as docs/remote.md says: what one clone has pushed, another one pulls and does not
make again.
"""

import logging
import re
import subprocess
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.support.project_copy import Project

pytestmark = pytest.mark.slow

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


def shared(project: Project) -> None:
    """Commit what git has of a finished project, and push the rest."""
    for command in (["add", "-A"], ["commit", "-qm", "finished"]):
        project.ok("git", *command)
    assert ".dvc/cache" not in project.ok("git", "ls-files")
    project.ok("dvc", "push")


def check_clone(project: Project, folder: Path, python: Path) -> None:
    """A clone with nothing but the remote has all after a pull, and makes nothing again."""
    subprocess.run(["git", "clone", "-q", project.folder, folder], check=True)
    clone = Project(folder, fresh=False, python=python)
    # where the first project had its cache and its outputs, nothing is any more
    project.folder.rename(project.folder.with_name("gone"))
    clone.ok("dvc", "pull")
    for path in (
        "report/smoke/index.html",
        "report/smoke/explorer.html",
        "data/tokens/target",
        "checkpoints/smoke/free_k1/last.ckpt",
        "results/smoke/baseline/metrics.json",
    ):
        assert (folder / path).exists(), path  # fmt: skip
    output = clone.ok("dvc", "repro")
    assert re.findall(r"Running stage '([^']+)'", output) == ["sources"]
    assert clone.ok("git", "status", "--porcelain") == ""
    assert clone.stage("sample", "free_k1", "--groups", "1", "--size", "1").returncode == 0


def test_a_folder(copied, tmp_path, warm_python):
    copied.ok("dvc", "remote", "add", "--default", "store", str(tmp_path / "store"))
    shared(copied)
    check_clone(copied, tmp_path / "clone", warm_python)


def test_an_s3_server(copied, tmp_path, warm_python, server):
    copied.ok("dvc", "remote", "add", "--default", "store", "s3://lab/free-transformer-lab")
    copied.ok("dvc", "remote", "modify", "store", "endpointurl", server)
    shared(copied)
    check_clone(copied, tmp_path / "clone", warm_python)
