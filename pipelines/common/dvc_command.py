"""Starts DVC with this Python, even where no environment is activated."""

import os
import sys
from pathlib import Path


def dvc_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dvc", *arguments]


def dvc_environment() -> dict[str, str]:
    """This process's environment, in which the `python` of dvc.yaml's commands is this Python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path}
