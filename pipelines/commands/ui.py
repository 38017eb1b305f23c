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
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from pipelines.host.command_line import command
from pipelines.host.errors import UserError

if TYPE_CHECKING:
    from pipelines.tracking.store import Store

RUNS = "workflowType=machine_learning"  # else MLflow shows traces of language-model applications


def address(store: "Store", base: str) -> str:
    """The address of the runs of the experiment in params.yaml, with their charts, bound against κ
    first; or else of all experiments.
    """
    from pipelines.config.load import load_experiment
    from pipelines.tracking.store import VIEW_KEY, VIEW_TAG, chart_view

    experiment = None
    with suppress(UserError):  # no params.yaml, or none that can be read
        experiment = store.client.get_experiment_by_name(load_experiment().name)
    if experiment is None or experiment.lifecycle_stage != "active":
        return f"{base}/#/experiments?{RUNS}"
    key = experiment.experiment_id
    store.client.set_experiment_tag(key, VIEW_TAG, chart_view())
    shown = f"compareRunsMode=CHART&viewStateShareKey={VIEW_KEY}"
    return f"{base}/#/experiments/{key}/runs?{RUNS}&{shown}"


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


def show(page: str) -> None:
    print(f"MLflow shows the runs at {page}", flush=True)
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(page)


def wait_for(base: str) -> None:
    """Wait until the server answers; raises UserError if it does not."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    patient = requests.Session()
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
    store = Store()  # makes the store if it is not there
    if store.uri.startswith("http"):
        show(address(store, store.uri.rstrip("/")))
        return
    base = f"http://127.0.0.1:{port}"
    with serve(port) as server:
        try:
            wait_for(base)
            show(address(store, base))
            if code := server.wait():
                raise UserError(f"MLflow ended with exit code {code}; its output is above")
        finally:
            server.terminate()
