"""Run pytest many times, each in a process of its own that need not import the libraries again.

A server process imports them once, and none of our packages; for each run it forks a child, which
enters a folder and runs pytest there.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

LIBRARIES = {  # of the packages under test, without any that starts threads when it is imported
    "ftmodel": ("torch", "numpy", "scipy.stats", "hypothesis", "transformers"),
    "pipelines": (
        *("torch", "numpy", "scipy.stats", "lightning", "omegaconf", "hydra", "yaml"),
        *("pyarrow.parquet", "tokenizers", "fsspec", "tqdm", "filelock", "jinja2"),
    ),
}


@dataclass
class Result:
    returncode: int
    stdout: str  # and stderr


class WarmPytest:
    """The server; ``close`` ends it."""

    def __init__(self, package: str) -> None:
        ours = {"PYTHONPATH", "FTMODEL_UNDER_TEST"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).resolve()), *LIBRARIES[package]],
            env={key: value for key, value in os.environ.items() if key not in ours},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, folder: Path, arguments: list[str], environment: dict[str, str]) -> Result:
        assert self.process.stdin and self.process.stdout
        with tempfile.NamedTemporaryFile("r") as output:
            job = {
                "folder": str(folder),
                "arguments": arguments,
                "environment": environment | {"PYTHONPATH": str(folder)},
                "output": output.name,
            }
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            code = self.process.stdout.readline()
            assert code, "the server has died"
            return Result(int(code), output.read())

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def child(job: dict) -> None:
    """Never returns."""
    code = 70
    try:
        file = os.open(job["output"], os.O_WRONLY)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.environ.update(job["environment"])
        os.chdir(job["folder"])
        sys.path.insert(0, job["folder"])
        import pytest

        code = int(pytest.main(job["arguments"]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve(libraries: list[str]) -> None:
    import_module("pytest")
    for name in libraries:
        import_module(name)
    assert not {"ftmodel", "pipelines", "tests"} & {*sys.modules}
    for line in sys.stdin:
        process = os.fork()
        if not process:
            child(json.loads(line))
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1:])
