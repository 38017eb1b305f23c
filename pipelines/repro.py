"""Compose an experiment and bring it up to date, as `make repro` does.

    python -m pipelines.repro experiment=smoke runs.free_k1_8.kappa_bits=0.25

params.yaml is composed once nobody else is at work in this folder: another `make repro` or a
command of DVC is named, and waited for.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pipelines import cli
from pipelines.artifacts.paths import report_folder
from pipelines.common.errors import UserError
from pipelines.common.pipeline_lock import pipeline_alone
from pipelines.common.without_git import allow_no_git
from pipelines.compose import compose_valid, write_params


def dvc_repro() -> int:
    """Run `dvc repro` with this Python's commands; returns its exit code."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro"]
    process = subprocess.Popen(command, env={**os.environ, "PATH": path})
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # DVC got it as well, and is ending its stage
            continue


def main(overrides: Sequence[str], wait: bool) -> None:
    compose_valid(overrides)  # a mistake ends this before it waits
    with pipeline_alone(wait):
        config = compose_valid(overrides)
        write_params(config)
        if allow_no_git(Path()):
            print(
                "no git here: DVC works without it from now on (core.no_scm in .dvc/config.local)"
            )
        if code := dvc_repro():
            raise SystemExit(code)
    try:
        print((report_folder(config.name) / "summary.txt").read_text(encoding="utf-8"), end="")
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename} is missing; `dvc repro --force report` makes it"
        ) from None


if __name__ == "__main__":
    cli.run("repro")
