"""Lets DVC work in a folder outside git, such as a copy or an archive, or refused by git."""

import subprocess
from pathlib import Path

from pipelines.common.dvc_command import dvc_command
from pipelines.common.errors import UserError


def in_git(folder: Path) -> bool:
    above = folder.resolve()
    return any((path / ".git").exists() for path in (above, *above.parents))


def git_refusal(folder: Path) -> str | None:
    """Why git refuses the repository around ``folder``, and how to fix that, in git's words. Say,
    another user owns it, because a container mounted it. None without git or a repository.
    """
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "--git-dir"], cwd=folder, capture_output=True, check=False
        )
    except FileNotFoundError:
        return None
    if asked.returncode == 0 or not in_git(folder):
        return None
    return f"git: {' '.join(asked.stderr.decode(errors='replace').split())}"


def check_git() -> None:
    """Raise UserError where DVC would fail after its first stage, or its last."""
    if reason := git_refusal(Path()):
        raise UserError(reason)


def allow_no_git(folder: Path) -> bool:
    """Let DVC work in ``folder`` without git; returns whether that had to be configured."""
    local = folder / ".dvc/config.local"
    if in_git(folder):
        return False
    if local.exists() and "no_scm" in local.read_text(encoding="utf-8"):
        return False
    command = dvc_command("config", "--quiet", "--local", "core.no_scm", "true")
    subprocess.run(command, cwd=folder, check=True)
    return True
