"""Paths that other programs put into a command line without quotes: Ray those of its workers,
PyTorch those of its C++ compiler. A space in such a path makes Ray hang and the compiler fail.
"""

import os
import re
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec

from pipelines.common.errors import UserError

SPECIAL = re.compile(r"""[\s"'\\$&;|<>()*?`!#{}\[\]]""")  # for a shell


def special(paths: Iterable[str]) -> str | None:
    """The first that a shell would not take for one word."""
    return next((path for path in paths if SPECIAL.search(path)), None)


def ray_path() -> str | None:
    """The path that keeps Ray from starting workers; None if it can."""
    return special([sys.executable])


def torch_folder() -> str:
    """Where PyTorch is, which takes seconds to import, without importing it."""
    spec = find_spec("torch")
    return os.path.dirname(spec.origin) if spec and spec.origin else ""


def compiler_path() -> str | None:
    """The path that keeps PyTorch from compiling for a CPU; None if it can."""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
    return special([torch_folder(), sysconfig.get_path("include"), tempfile.gettempdir(), cache])


def not_compiled(path: str) -> str:
    return f"PyTorch's compiler takes no path with a space or the like, such as {path}"


def check_ray() -> None:
    """Raise UserError where Ray would wait without end for workers that it cannot start."""
    if path := ray_path():
        raise UserError(
            f"{path}: Ray starts no worker with a Python whose path has a space or another "
            "character that means something to a shell; move the project or its .venv to a path "
            "without, or train with compute.workers=1 and no RAY_ADDRESS"
        )


def check_compile(wanted: bool | None) -> None:
    """Raise UserError if a model is to be compiled, which fails because of a path."""
    if wanted and (path := compiler_path()):
        raise UserError(f"compute.compile: {not_compiled(path)}")
