"""`make ui` shows runs, on this machine only, and says where."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
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


def test_the_addresses_are_the_views_of_the_experiment_at_hand(workspace):
    """All experiments of the project have the views, one that is not of the project has not."""
    store, every = Store(), "http://x/#/experiments?workflowType=machine_learning"
    assert [*ui.addresses(store, "http://x")] == [every]
    client = MlflowClient(store_uri())
    key, of_ours, theirs = map(client.create_experiment, ("smoke", "ours", "theirs"))
    client.set_experiment_tag(of_ours, "note", "")
    runs = f"http://x/#/experiments/{key}/runs?workflowType=machine_learning&viewStateShareKey="
    table, curves = ui.addresses(store, "http://x")
    assert (table, curves) == (f"{runs}arms", f"{runs}curves&compareRunsMode=CHART")
    assert "mlflow.sharedViewState.arms" in client.get_experiment(of_ours).tags
    assert "mlflow.sharedViewState.arms" not in client.get_experiment(theirs).tags
    client.delete_experiment(key)
    assert [*ui.addresses(store, "http://x")] == [every]


class Login(BaseHTTPRequestHandler):
    """Health as MLflow has it; all else wants a login."""

    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 401)
        self.end_headers()
        self.wfile.write(b"<html>\n" * 100)

    do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def login(monkeypatch):
    """The address of a server that wants a login, with a proxy in the environment that is away."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    with HTTPServer(("127.0.0.1", 0), Login) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_on_this_machine_is_reached_without_the_proxy(login):
    ui.wait_for(login)


@rejects('store.Store.client: os.environ[«"no_proxy"→"some_proxy"»] =', "MLflow through the proxy")
def test_a_server_that_wants_a_login_is_one_line(workspace, monkeypatch, login):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", login)
    monkeypatch.setattr(ui.signal, "signal", Mock())
    with pytest.raises(UserError, match=f"MLflow at {login}: .*401") as refused:
        ui.main.callback(5001)
    assert "\n" not in str(refused.value)


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
        [sys.executable, "-c", f"from pipelines.commands.ui import main; main.callback({port})"],
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
