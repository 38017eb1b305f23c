"""Paths that other programs put into a command line without quotes: Ray those of its workers,
PyTorch those of its C++ compiler. One with a space ends in an endless wait or in a thousand lines.
"""

import os
import re
import sys
import sysconfig
import tempfile
from collections.abc import Iterable

SPECIAL = re.compile(r"""[\s"'\\$&;|<>()*?`!#{}\[\]]""")  # for a shell


def special(paths: Iterable[str]) -> str | None:
    """The first that a shell would not take for one word."""
    return next((path for path in paths if SPECIAL.search(path)), None)


def ray_path() -> str | None:
    """The path that keeps Ray from starting workers; None if it can."""
    return special([sys.executable])


def compiler_path(torch_folder: str) -> str | None:
    """The path that keeps PyTorch from compiling for a CPU; None if it can."""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
    return special([torch_folder, sysconfig.get_path("include"), tempfile.gettempdir(), cache])
