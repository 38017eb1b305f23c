"""A real MLflow server is killed under a run: nothing is lost, nothing is there twice."""

import os
import signal
import socket
import subprocess
import sys
from threading import Event

import pytest

from pipelines.tracking import live
from pipelines.tracking.sync import Sync
from pipelines.train.core.callbacks import CurveCallback
from tests.support.project_copy import wait_for
from tests.support.training import train_run
from tests.tracking.conftest import check_complete

KILLED_AT, BACK_AT, STEPS = 7, 14, 20


class Server:
    """`mlflow server` on the workspace's database, with a process group of its own."""

    def __init__(self, folder):
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"),
                *("--port", str(self.port), "--workers", "1"),
                *("--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db"),
                *("--artifacts-destination", str(self.folder / "artifacts")),
            ],
            cwd=self.folder,
            env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=open(self.folder / "server.log", "a"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert wait_for(f"{self.uri}/health").text == "OK"

    def kill(self):
        if self.process:  # else it is dead already, and its number may be another's
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture
def server(workspace, monkeypatch):
    server = Server(workspace)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.mark.slow
def test_a_killed_server_gets_everything_once_it_is_back(server, monkeypatch, capsys):
    """In the same run; test_tracking.py has a store that is back after it."""
    heard = Event()  # the server has some of the curve
    sync, on_step = Sync.__call__, CurveCallback.on_step

    def listen(self, run, *rest):
        lacked = sync(self, run, *rest)
        if run.step > 0:
            heard.set()
        return lacked

    def step(self, trainer):
        on_step(self, trainer)
        if self.step == KILLED_AT:
            assert heard.wait(60)
            server.kill()
        if self.step == BACK_AT:
            server.start()

    monkeypatch.setattr(Sync, "__call__", listen)
    monkeypatch.setattr(live, "SYNC_SECONDS", 0.1)
    monkeypatch.setattr(CurveCallback, "on_step", step)
    _, rows = train_run()
    assert len(rows) == STEPS
    said = capsys.readouterr().err
    assert said.count("is not up to date") == 1
    assert said.count("answers again, and has everything now") == 1
    check_complete(rows)
