"""Run programs that a model wrote, which are taken to be hostile, against tests that we wrote.

What confines a program, and what a pass means, is in README.md beside this file.
"""

import ast
import os
import platform
import secrets
import selectors
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from marshal import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from pipelines.host.errors import UserError
from pipelines.host.machine import whole_cores
from pipelines.suite.sandbox.syscalls import MACHINES, seccomp_filter

CHILD = Path(__file__).with_name("child.py")
FILES = 256  # in the scratch folder
POLL_SECONDS = 0.05  # between two looks into it
CHUNK = 1 << 16
UNCONFINED = "unconfined: "

# what the child reports; the other failures are seen from outside
REPORTED = {
    "wrong answer",
    "exception",
    "syntax error",
    "exited early",
    "memory",
    "files",
    "forbidden",
}


@dataclass(frozen=True)
class Limits:
    """What one program may use. Memory is address space: NumPy alone takes about 0.3 GB of it."""

    cpu_seconds: int = 10
    wall_seconds: float = 60.0
    memory_bytes: int = 2 << 30
    output_bytes: int = 1 << 20  # of stdout and stderr together
    file_bytes: int = 4 << 20  # of one file, and of all in the scratch folder


@dataclass(frozen=True)
class Verdict:
    """How a program did. ``failure`` is "" for a pass, else one of

    - "wrong answer": an assert of the tests failed
    - "exception": the program or its tests raised something else
    - "syntax error": the text is not Python
    - "exited early": the process ended before the tests did
    - "forbidden": it ended with an error that the sandbox gives
    - "time", "memory", "output", "files": beyond a limit
    - "killed": by the kernel, short of memory, or for CPU time although it blocked that signal
    - "crashed": ended by another signal, as after a stack overflow
    - "no tests": the tests are empty, or no Python; what is not tested does not pass
    """

    passed: bool
    failure: str


def run_program(program: str, tests: str, limits: Limits | None = None) -> Verdict:
    """Run ``program``, then ``tests``; one Verdict on both. Tests see the names it defined as they
    were at its end (a global that a test makes it rebind looks unchanged to the next).

    The names that the tests define or import are theirs alone: a program that changes a global
    `check`, or uses a module that only its tests import, does not pass.

    Raises UserError if this machine has no sandbox, see ``unavailable``.
    """
    if reason := unavailable():
        raise UserError(reason)
    return confined(program, tests, limits or Limits())


def run_programs(
    pairs: Iterable[tuple[str, str]], limits: Limits | None = None, workers: int | None = None
) -> list[Verdict]:
    """Verdicts on (program, tests) in order, ``workers`` (cores) at a time; raises UserError."""
    programs, tests = zip(*pairs, strict=True) if (pairs := list(pairs)) else ((), ())
    with ThreadPoolExecutor(workers or whole_cores()) as pool:
        return list(pool.map(run_program, programs, tests, repeat(limits)))


@cache
def unavailable() -> str | None:
    """Why no program can run safely here, by a trial to escape from a sandbox; None if it can."""
    if sys.platform != "linux" or platform.machine() not in MACHINES or sys.maxsize < 1 << 32:
        return "programs are run only on 64-bit Linux, x86_64 or aarch64: elsewhere no sandbox"
    try:
        verdict = confined(ESCAPES, "assert got_out == []", Limits())
    except UserError as error:
        return str(error)
    except OSError as error:
        return f"no sandbox: {error}"
    return None if verdict.passed else f"no sandbox: trying it ended with {verdict.failure!r}"


ESCAPES = """
import os, socket
here = os.getpid()
def fork():
    os.fork()
    if os.getpid() != here:
        os._exit(0)
got_out = []
for attempt in (
    fork,
    lambda: os.listdir("/"),
    lambda: os.open("..", os.O_RDONLY),
    lambda: os.mkdir("folder"),
    lambda: os.kill(os.getppid(), 0),
    lambda: os.execv("/bin/true", ["true"]),
    lambda: socket.socket(),
):
    try:
        attempt()
        got_out.append(attempt)
    except PermissionError:
        pass
with open("file", "w") as file:
    file.write("written")
"""


def confined(program: str, tests: str, limits: Limits) -> Verdict:
    """``run_program`` without a check of the machine; raises UserError if it has no sandbox."""
    if not tests_something(tests):
        return Verdict(False, "no tests")
    with TemporaryDirectory(prefix="program-") as scratch:
        secret = secrets.token_bytes(32)
        job = {
            "program": program,
            "tests": tests,
            "secret": secret,
            "parent": os.getpid(),
            "filter": seccomp_filter(platform.machine()),
            "readable": library_paths(),
            "packages": packages(),
            "cpu_seconds": limits.cpu_seconds,
            "memory_bytes": limits.memory_bytes,
            "file_bytes": limits.file_bytes,
        }
        report, written = os.pipe()
        try:
            process = start(written, scratch)
        except BaseException:
            os.close(report)
            raise
        finally:
            os.close(written)
        with process, open(report, "rb", buffering=0) as reported:
            try:
                assert process.stdin is not None
                with suppress(BrokenPipeError), process.stdin:
                    process.stdin.write(dumps(job))
                killed_for = watch(process, Path(scratch), limits)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            word = reported.read(CHUNK) if not killed_for else b""
    if killed_for:
        return Verdict(False, killed_for)
    return judged(word, secret, code)


def start(report: int, scratch: str) -> subprocess.Popen[bytes]:
    """Start the child in its own session; none of our code runs between fork and exec (threads)."""
    return subprocess.Popen(
        # -s -P -S: no path of the user's, the script's or `site`'s; -B: writes no bytecode
        [sys.executable, "-s", "-P", "-S", "-B", str(CHILD), str(report)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[report],
        cwd=scratch,
        env={
            "HOME": scratch,
            "TMPDIR": scratch,
            "LANG": "C.UTF-8",
            "PYTHONHASHSEED": "0",  # a program gets the same verdict twice
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        },
        start_new_session=True,
    )


def watch(process: subprocess.Popen[bytes], scratch: Path, limits: Limits) -> str:
    """Wait until the process ends, returning "", or exceeds a limit, returning its name."""
    deadline = monotonic() + limits.wall_seconds
    printed = 0
    ended = os.pidfd_open(process.pid)
    assert process.stdout is not None
    output = process.stdout.fileno()
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(ended, selectors.EVENT_READ)
            selector.register(output, selectors.EVENT_READ)
            while (left := deadline - monotonic()) > 0:
                ready = [key.fd for key, _ in selector.select(min(left, POLL_SECONDS))]
                if output in ready:
                    size = len(os.read(output, CHUNK))
                    printed += size
                    if not size:
                        selector.unregister(output)
                if printed > limits.output_bytes:
                    return "output"
                if too_much(scratch, limits.file_bytes):
                    return "files"
                if ended in ready:
                    return ""
    finally:
        os.close(ended)
    return "time"


def too_much(scratch: Path, limit: int) -> bool:
    """Whether there are more files in the folder, or bytes in them, than a program may leave."""
    size = 0
    with os.scandir(scratch) as entries:
        for count, entry in enumerate(entries):
            with suppress(FileNotFoundError):
                size += entry.stat(follow_symlinks=False).st_size
            if count >= FILES or size > limit:
                return True
    return False


def judged(word: bytes, secret: bytes, code: int) -> Verdict:
    """The verdict on a process that ended by itself: its report and its exit code."""
    if word == secret + b"passed":
        return Verdict(True, "")
    reported = word.removeprefix(secret).decode(errors="replace") if word.startswith(secret) else ""
    if reported.startswith(UNCONFINED):
        raise UserError(f"no sandbox: {reported.removeprefix(UNCONFINED)}")
    if reported in REPORTED:
        return Verdict(False, reported)
    signals = {-signal.SIGXCPU: "time", -signal.SIGKILL: "killed"}
    return Verdict(False, signals.get(code, "crashed") if code < 0 else "exited early")


def tests_something(tests: str) -> bool:
    """Whether any statement that is run asserts or calls something."""
    try:
        parsed = ast.parse(tests)
        compile(parsed, "tests", "exec")  # finds what the parser lets pass
    except (SyntaxError, ValueError):
        return False
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(
        isinstance(node, ast.Assert | ast.Call)
        for statement in parsed.body
        if not isinstance(statement, definitions)
        for node in ast.walk(statement)
    )


@cache
def packages() -> list[str]:
    """Folders of installed packages that this process imports from."""
    return [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]


@cache
def library_paths() -> list[str]:
    """Paths that Python reads: its library, packages, shared libraries, time zones."""
    own = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    libraries = [f"{sys.base_prefix}/lib", "/lib", "/lib64", "/usr/lib", "/usr/lib64"]
    system = ["/etc/ld.so.cache", "/usr/share/zoneinfo", "/dev/urandom"]
    return sorted({*own, *libraries, *packages(), *system})
