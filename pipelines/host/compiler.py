"""Checks that PyTorch's compiler works here: compiles and runs a forward and a backward pass.

A compiler that is found may still lack headers, a writable folder, or the right to load what it has
made. Some code is compiled only at the backward pass, so that is tried, too.
"""

import os
import platform
import signal
import subprocess
import sys
import sysconfig
import tempfile
from hashlib import sha256
from pathlib import Path
from random import random
from shutil import which

import torch
from torch._inductor.runtime.cache_dir_utils import cache_dir

from pipelines.host.errors import UserError
from pipelines.host.files import special_path

MAX_TRIAL_SECONDS = 600.0
TRIAL = """
import sys, torch

def loss(x):
    return (x * NUMBER).sin().softmax(-1).square().sum()

x = torch.ones(64, 64, device=sys.argv[1], requires_grad=True)
try:
    torch.compile(loss)(x).backward()
except Exception as error:
    lines = [line for line in str(error).splitlines() if line.strip()] or [repr(error)]
    sys.exit(next((line for line in lines if "error: " in line), lines[0]))
"""
VARIABLES = ("CC", "CPATH", "CPLUS_INCLUDE_PATH", "CXX", "LD_LIBRARY_PATH", "LIBRARY_PATH", "PATH")


def compiler_failure() -> str | None:
    """Why nothing can be compiled here, in one line; None if it can.

    The trial runs in its own process, which may crash. A success is noted beside the compiled code,
    under all that decided it, and is not tried again. A failure is not noted.
    """
    folders = [str(Path(torch.__file__).parent), sysconfig.get_path("include")]
    folders += [tempfile.gettempdir(), os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")]
    if path := special_path(folders):
        return f"PyTorch's compiler fails with a space or the like in a path, such as {path}"
    try:
        success = Path(cache_dir(), f"works-{environment()}")
        if success.exists():
            return None
        reason = trial()
        if reason is None:
            success.touch()
    except OSError as error:
        return f"{error.filename or cache_dir()}: {error.strerror}"
    return reason


def environment() -> str:
    """A hash of what decides whether code can be compiled, apart from the code."""
    paths = [
        sys.executable,
        which(os.environ.get("CXX", "g++")) or "",
        os.path.join(sysconfig.get_path("include"), "Python.h"),
        os.path.join(os.path.dirname(torch.__file__), "include"),
    ]
    files = [os.stat(path) if os.path.exists(path) else None for path in paths]
    facts = [
        *((f.st_dev, f.st_ino, f.st_size, f.st_mtime_ns) if f else None for f in files),
        *(os.statvfs(folder).f_flag for folder in (tempfile.gettempdir(), cache_dir())),
        *(os.environ.get(name) for name in VARIABLES),
        torch.__version__,
        platform.node(),
        os.getuid(),
        device_kind(),
    ]
    return sha256(repr(facts).encode()).hexdigest()[:16]


def device_kind() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def trial() -> str | None:
    """Compile and run something in a process of its own; returns why it failed, or None."""
    # a new number each time, so that no earlier result is loaded instead
    program = TRIAL.replace("NUMBER", str(random()))
    command = [sys.executable, "-c", program, device_kind()]
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=MAX_TRIAL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"the compiler takes more than {MAX_TRIAL_SECONDS:g} s"
    if process.returncode < 0:
        return f"compiled code ends with {signal.Signals(-process.returncode).name}"
    if process.returncode:
        last = (process.stderr.strip() or "it failed without a word").splitlines()[-1]
        return last.partition(".  ")[0]  # PyTorch goes on with advice
    return None


def check_compile(wanted: bool | None) -> None:
    """Raise UserError if a model is to be compiled and cannot be."""
    if wanted and (reason := compiler_failure()):
        raise UserError(f"compute.compile: {reason}")
