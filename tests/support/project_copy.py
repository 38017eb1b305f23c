"""A copy of the project in a temporary folder, so that tests leave no trace in the checkout."""

import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from tests import ROOT

PARTS = (
    "conf",
    "docs/glossary.md",
    "docs/measurement",
    "docs/measurement.md",
    "docs/paper",
    "docs/report.md",
    "ftmodel",
    "hydra_plugins",
    "pipelines",
    "tasks",
    ".dvc/.gitignore",
    ".dvc/config",
    ".dvc/plots",
    ".dvcignore",
    "dvc.yaml",
)


class Project:
    """A project folder and the means to run its commands in it, as users do; ``python``, which is
    warm_python.py's, may stand in where several commands are run and none is killed.
    """

    def __init__(self, folder: Path, fresh: bool = True, python: Path | None = None) -> None:
        self.folder, self.python = folder, python
        if fresh:
            self.create()

    def create(self) -> None:
        for part in (*PARTS, ".gitignore"):
            target = self.folder / part
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / part, target)
        for command in (
            ["git", "init", "-q"],
            ["git", "config", "user.email", "test@example.org"],
            ["git", "config", "user.name", "test"],
            ["git", "add", "-A"],
            ["git", "commit", "-qm", "start"],
        ):
            subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    @property
    def environment(self) -> dict[str, str]:
        scripts = [python.parent for python in (self.python, Path(sys.executable)) if python]
        dropped = ("MLFLOW_TRACKING_URI", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
        kept = {k: v for k, v in os.environ.items() if k not in dropped}
        return kept | {
            "PATH": os.pathsep.join([*map(str, scripts), os.environ["PATH"]]),
            "PYTHONPATH": str(self.folder),
            "OMP_NUM_THREADS": "1",
        }

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # what runs the tests in the background may have told its children to ignore Ctrl-C
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, text=True, capture_output=True
        )

    def ftlab(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("python", "-m", "pipelines.cli", *arguments)

    def ok(self, *command: str) -> str:
        done = self.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def compose(self, *overrides: str) -> None:
        self.ok("python", "-m", "pipelines.cli", "compose", "experiment=smoke", *overrides)


def wait_for(url: str) -> requests.Response:
    """The answer of a server that is starting: a minute or two of tries."""
    patient = requests.Session()
    retry = Retry(100, backoff_factor=0.1, backoff_max=1, status_forcelist=[500, 502, 503])
    patient.mount("http://", HTTPAdapter(max_retries=retry))
    return patient.get(url, timeout=10)
