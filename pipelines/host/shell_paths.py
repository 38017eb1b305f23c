"""Finds paths that other programs cannot take: with a space, where a command line does not quote
them, or too long for a socket.
"""

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from socket import AF_UNIX, socket

from pipelines.host.errors import UserError

SPECIAL = re.compile(r"""[\s"'\\$&;|<>()*?`!#{}\[\]]""")  # for a shell
SOCKET = "/ray/session_2026-11-26_04-16-37_123456_1234567/sockets/plasma_store"  # Ray's longest
LONGEST_SOCKET = 107  # bytes, on Linux


def special(paths: Iterable[str]) -> str | None:
    """The first path that a shell would not read as one word."""
    return next((path for path in paths if SPECIAL.search(path)), None)


def ray_failure() -> str | None:
    """Why Ray can start no workers here, in one line; None if no reason is known."""
    if path := special([sys.executable]):
        return (
            f"{path}: Ray cannot start workers if the path of Python has a space or another "
            "character that has a meaning in a shell; move the project or its .venv"
        )
    if os.environ.get("RAY_ADDRESS", "local") not in ("", "local"):
        return None  # its sockets are on that cluster
    name = "RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR"
    folder = os.environ.get(name, "/tmp")
    longest = LONGEST_SOCKET - len(SOCKET)
    if (length := len(os.fsencode(folder))) > longest:
        return (
            f"{name}={folder}: {length} bytes, but Ray makes its sockets there and takes at "
            f"most {longest}; set RAY_TMPDIR to a shorter path"
        )
    mine = os.path.join(folder, f"free-transformer-{os.getpid()}.socket")
    try:
        os.makedirs(folder, exist_ok=True)
        with socket(AF_UNIX) as tried:
            tried.bind(mine)
    except OSError as error:
        return f"{name}={folder}: Ray cannot make a socket there: {error.strerror}"
    finally:
        with suppress(OSError):
            os.unlink(mine)
    return None


def check_ray() -> None:
    """Raise UserError where Ray would fail at length, or wait forever for its workers."""
    if reason := ray_failure():
        raise UserError(f"{reason}, or train with compute.workers=1 and no RAY_ADDRESS")
