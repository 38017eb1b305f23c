"""Why Ray could not start on this machine, known before it is asked to: it would wait for long."""

import os
import sys
from contextlib import suppress
from socket import AF_UNIX, socket

from pipelines.host.errors import UserError
from pipelines.host.files import special_path

# Ray's longest
SOCKET_NAME = "/ray/session_2026-11-26_04-16-37_123456_1234567/sockets/plasma_store"
MAX_SOCKET_BYTES = 107  # on Linux


def check_ray() -> None:
    """Raise UserError where Ray would fail at length, or wait forever for its workers."""
    if reason := ray_failure():
        raise UserError(f"{reason}, or train with compute.workers=1 and no RAY_ADDRESS")


def ray_failure() -> str | None:
    """Why Ray can start no workers here, in one line; None if no reason is known."""
    if python := special_path([sys.executable]):
        return (
            f"{python}: Ray cannot start workers if the path of Python has a space or another "
            "character that has a meaning in a shell; move the project or its .venv"
        )
    if os.environ.get("RAY_ADDRESS", "local") not in ("", "local"):
        return None  # its sockets are on that cluster
    name = "RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR"
    folder = os.environ.get(name, "/tmp")
    longest = MAX_SOCKET_BYTES - len(SOCKET_NAME)
    if (length := len(os.fsencode(folder))) > longest:
        return (
            f"{name}={folder}: {length} bytes, but Ray makes its sockets there and takes at "
            f"most {longest}; set RAY_TMPDIR to a shorter path"
        )
    path = os.path.join(folder, f"free-transformer-{os.getpid()}.socket")
    try:
        os.makedirs(folder, exist_ok=True)
        with socket(AF_UNIX) as tried:
            tried.bind(path)
    except OSError as error:
        return f"{name}={folder}: Ray cannot make a socket there: {error.strerror}"
    finally:
        with suppress(OSError):
            os.unlink(path)
    return None
