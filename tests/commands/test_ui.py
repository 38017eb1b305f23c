"""`make ui` shows runs, on this machine only, and says where."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from unittest.mock import Mock

import pytest
import requests
from mlflow import MlflowClient

from pipelines.commands import ui
from pipelines.host.errors import UserError
from pipelines.host.files import ROOT
from pipelines.tracking.store import Store, store_uri
from tests.support.mutants import rejects

OTHER = "127.0.0.2"  # this machine too, but where a server on 127.0.0.1 does not listen


def test_the_address_is_that_of_the_runs_of_the_experiment_at_hand(workspace):
    store = Store()
    assert ui.address(store, "http://x") == "http://x/#/experiments?workflowType=machine_learning"
    key = MlflowClient(store_uri()).create_experiment("smoke")
    assert ui.address(store, "http://x") == (
        f"http://x/#/experiments/{key}/runs?workflowType=machine_learning&compareRunsMode=CHART"
        "&viewStateShareKey=charts"
    )
    tags = MlflowClient(store_uri()).get_experiment(key).tags
    assert "kappa_axis" in tags["mlflow.sharedViewState.charts"]


def test_a_port_that_is_taken_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port}: .*in use; `make ui PORT=5001`"):
            ui.serve(port)


def test_a_server_that_hangs_is_one_line_and_is_ended(workspace, monkeypatch, capsys):
    hanging = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(ui, "serve", lambda port: hanging)
    monkeypatch.setattr(requests.Session, "get", Mock(side_effect=requests.ReadTimeout))
    monkeypatch.setattr(ui.signal, "signal", Mock())
    with pytest.raises(UserError, match="MLflow did not start at"):
        ui.main.callback(5001)
    assert "http" not in capsys.readouterr().out
    assert hanging.returncode == -signal.SIGTERM


@rejects("ui.main: server.wait()«→ and 0»", "an exit code is lost")
def test_a_server_that_fails_is_no_success(workspace, monkeypatch):
    ended = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    monkeypatch.setattr(ui, "serve", lambda port: ended)
    for name in ("wait_for", "show"):
        monkeypatch.setattr(ui, name, Mock())
    monkeypatch.setattr(ui.signal, "signal", Mock())
    with pytest.raises(UserError, match="exit code 3"):
        ui.main.callback(5001)


@pytest.mark.slow
def test_the_server_listens_on_this_machine_alone_and_ends_with_the_command(workspace):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli", "ui", "--port", str(port)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "DISPLAY": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        line = next(line for line in process.stdout if "http" in line)
        assert f"http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning" in line
        with pytest.raises(OSError), socket.create_connection((OTHER, port), timeout=5):
            pass
        process.terminate()
        process.wait(60)
        with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
    finally:
        with suppress(ProcessLookupError):  # ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
