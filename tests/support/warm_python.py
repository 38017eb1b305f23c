"""`python -m …` many times, each in a process of its own that need not import the libraries again.

A server process imports them once, and none of our packages. ``WarmPython.command`` stands in for
`python`: it hands its arguments, folder, environment and standard streams to the server, which
forks a process that runs the module, and it ends as that process does. If it is killed, that
process is too.

Forks of one server have the same hash seed and the same state of NumPy's global generator: a test
that two processes agree should start one of them with the real `python`.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

OURS = {"ftmodel", "pipelines", "hydra_plugins", "tests"}
LIBRARIES = (
    *("torch", "numpy", "scipy.stats", "pandas", "pyarrow.parquet", "lightning", "transformers"),
    *("omegaconf", "hydra", "yaml", "tokenizers", "fsspec", "tqdm", "filelock", "jinja2"),
    *("mlflow.store.tracking.sqlalchemy_store", "matplotlib.pyplot", "datasets", "lm_eval.tasks"),
    *("pytest", "hypothesis"),
)
STREAMS = (0, 1, 2)

CLIENT = """#!{python} -IS
import json, os, socket, sys
if sys.argv[1:2] != ["-m"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
job = dict(arguments=sys.argv[2:], folder=os.getcwd(), environment=dict(os.environ))
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"streams"], {streams})
    server.sendall(json.dumps(job).encode())
    server.shutdown(socket.SHUT_WR)
    answer = server.recv(16)
sys.exit(int(answer) if answer else "error: the server has died")
"""


class WarmPython:
    """The server; ``close`` ends it."""

    def __init__(self) -> None:
        self.folder = TemporaryDirectory(prefix="a lab ")  # short enough for a socket's path
        address, self.command = (Path(self.folder.name, name) for name in ("socket", "python"))
        client = CLIENT.format(python=sys.executable, address=str(address), streams=STREAMS)
        self.command.write_text(client)
        self.command.chmod(0o755)
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), str(address)],
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
            | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout and self.process.stdout.readline() == b"ready\n"

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()


def run_module(job: dict, streams: list[int]) -> None:
    """As `python -m` would, in this process, but for taking the interpreter apart (seconds)."""
    for own, given in zip(STREAMS, streams, strict=True):
        os.dup2(given, own)
        os.close(given)
    sys.stdout, sys.stderr = (  # the old ones take a pipe for the file that was there, and seek
        open(own, "w", encoding="utf-8", closefd=False, buffering=1) for own in STREAMS[1:]
    )
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [job["folder"], *filter(None, others)]
    module, *sys.argv[1:] = job["arguments"]
    code: object = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 1)


def watch(process: int, client: socket.socket) -> None:
    """Wait for a process, killed if its client goes; tell the client the exit code."""
    ended = os.pidfd_open(process)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(client, select.POLLHUP)
    if ended not in dict(poll.poll()):
        os.kill(process, signal.SIGKILL)
        return
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    client.send(str(code if code >= 0 else 128 - code).encode())


def answer(client: socket.socket) -> None:
    """In a fork of the server; never returns."""
    _, streams, _, _ = socket.recv_fds(client, len(b"streams"), len(STREAMS))
    job = json.loads(b"".join(iter(lambda: client.recv(1 << 16), b"")))
    if process := os.fork():
        watch(process, client)
        os._exit(0)
    client.close()
    run_module(job, streams)


def serve(address: str) -> None:
    del sys.path[0]  # this file's folder
    for name in LIBRARIES:
        import_module(name)
    assert not OURS & {*sys.modules}
    gc.freeze()  # else a collection in a fork would copy all pages
    listener = socket.create_server(address, family=socket.AF_UNIX)
    print("ready", flush=True)
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        client, _ = listener.accept()
        with suppress(ChildProcessError):  # a watcher of before
            os.waitpid(-1, os.WNOHANG)
        if os.fork():
            client.close()
            continue
        listener.close()
        answer(client)


if __name__ == "__main__":
    serve(sys.argv[1])
