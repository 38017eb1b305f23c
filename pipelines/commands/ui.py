"""Open MLflow on this project's runs, on this machine only.

    ftlab ui --port 5001

Prints the address, and opens it if there is a display.
"""

import os
import signal
import socket
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from pipelines.host.command_line import command
from pipelines.host.errors import UserError

if TYPE_CHECKING:
    from pipelines.tracking.store import Store


def addresses(store: "Store", base: str) -> Iterator[str]:
    """The views Arms and Curves of the experiment in params.yaml, whose tag may be missing in a
    store of before; or else the address of all experiments. Raises UserError as `answering` does.
    """
    from pipelines.config.load import load_experiment
    from pipelines.tracking.store import NOTE_TAG, RUNS

    name = None
    with suppress(UserError):  # no params.yaml, or none that can be read
        name = load_experiment().name
    with store.answering():
        experiments = store.client.search_experiments()
        for each in experiments:
            if NOTE_TAG in each.tags:
                store.save_views(each)
    page = next((f"/{each.experiment_id}/runs" for each in experiments if each.name == name), "")
    yield f"{base}/#/experiments{page}?{RUNS}" + ("&viewStateShareKey=arms" if page else "")
    if page:
        yield f"{base}/#/experiments{page}?{RUNS}&viewStateShareKey=curves&compareRunsMode=CHART"


def serve(port: int) -> subprocess.Popen[bytes]:
    """Start MLflow's server on the local store; raises UserError if the port is not free."""
    from pipelines.tracking.store import store_uri

    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:  # whose strerror is longer
        reason = os.strerror(error.errno or 0)
        raise UserError(f"port {port}: {reason}; `make ui PORT=5001` uses another") from None
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store_uri()]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--uvicorn-opts", "--log-level warning"]  # no line a request
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    return subprocess.Popen(command, env=os.environ | quiet)


def show(page: str, curves: str = "") -> None:
    print(f"MLflow shows the runs at {page}", flush=True)
    if curves:
        print(f"and their curves at      {curves}", flush=True)
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(page)


def wait_for(base: str) -> None:
    """Wait until the server answers; raises UserError if it does not."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    patient = requests.Session()
    patient.trust_env = False  # no proxy leads to this machine
    retry = Retry(100, backoff_factor=0.1, backoff_max=1, status_forcelist=[500, 502, 503])
    patient.mount("http://", HTTPAdapter(max_retries=retry))
    try:
        patient.get(f"{base}/health", timeout=10)
    except requests.RequestException:
        raise UserError(f"MLflow did not start at {base}; its output is above") from None


@command(__doc__)
@click.option("--port", type=click.IntRange(1, 65535), default=5000, help="Port on this machine.")
def main(port: int = 5000) -> None:
    from pipelines.tracking.store import Store

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which ends the server, too
    store = Store()
    if store.uri.startswith("http"):
        show(*addresses(store, store.name.rstrip("/")))
        return
    pages = [*addresses(store, base := f"http://127.0.0.1:{port}")]  # makes the store if need be
    with serve(port) as server:
        try:
            wait_for(base)
            show(*pages)
            if code := server.wait():
                raise UserError(f"MLflow ended with exit code {code}; its output is above")
        finally:
            server.terminate()
