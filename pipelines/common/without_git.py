"""DVC in a folder that is not in git, as a copy or an unpacked archive is."""

import subprocess
import sys
from pathlib import Path


def allow_no_git(folder: Path) -> bool:
    """Let DVC work in ``folder`` if there is no git: it asks for git unless it is told not to.
    Returns whether that was necessary.
    """
    above = folder.resolve()
    local = folder / ".dvc/config.local"
    if any((path / ".git").exists() for path in (above, *above.parents)):
        return False
    if local.exists() and "no_scm" in local.read_text(encoding="utf-8"):
        return False
    command = [sys.executable, "-m", "dvc", "config", "--quiet", "--local", "core.no_scm", "true"]
    subprocess.run(command, cwd=folder, check=True)
    return True
