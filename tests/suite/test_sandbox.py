"""Programs in the sandbox: what is right passes, what is hostile neither passes nor harms.

A hostile program does its harm in `attack()`, whose test is that it came to its end: had the
sandbox let it through, it would pass.
"""

import ctypes
import os
import platform
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from pipelines.common.atomic_files import ROOT
from pipelines.common.errors import UserError
from pipelines.suite.sandbox import run as sandbox
from pipelines.suite.sandbox.run import Limits, Verdict, run_program, run_programs, unavailable
from pipelines.suite.sandbox.syscalls import BY_ARGUMENT, OPENING, numbers
from tests.support.mutants import rejects

# asked here once more, as a sandbox that fails its own trial must fail these tests
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or ctypes.CDLL(None).syscall(444, None, 0, 1) < 1,
    reason="the kernel has no Landlock",
)

PASSED = Verdict(True, "")
SHORT = Limits(cpu_seconds=1, memory_bytes=1 << 30, output_bytes=1 << 16, file_bytes=1 << 16)
ADDS = "assert add(2, 3) == 5\nassert add(-1, 1) == 0"


def running(script):
    """Processes, wherever they hang now, that were started to run ``script``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if str(script) in (folder / "cmdline").read_text().split("\0"):
                found.append(int(folder.name))
    return found


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A folder with a secret and a victim, a secret in the environment, and afterwards a look that
    nothing has changed and nothing is left.
    """
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    (folder / "secret").write_text("swordfish")
    (folder / "deep" / "victim").write_text("whole")
    os.utime(folder / "deep" / "victim", (1, 1))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("PLANTED", "swordfish")
    script = shutil.copy(sandbox.CHILD, tmp_path)  # whose processes are this test's alone
    monkeypatch.setattr(sandbox, "CHILD", Path(script))
    modes = {path: path.stat() for path in (folder, *folder.rglob("*"))}
    yield folder
    assert {path for path in (folder, *folder.rglob("*"))} == set(modes)
    for path, before in modes.items():
        now = path.stat()
        assert (now.st_mode, now.st_uid, now.st_mtime) == (
            before.st_mode,
            before.st_uid,
            before.st_mtime,
        )
    assert (folder / "secret").read_text() == "swordfish"
    assert (folder / "deep" / "victim").read_text() == "whole"
    assert not list(temporary.iterdir())
    assert not running(script)


def attack(body, outside, limits=SHORT, **values):
    """The verdict on a program whose attack() is ``body`` and returns what it found."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    known = dict(outside=str(outside), **values)
    setting = "".join(f"{name} = {value!r}\n" for name, value in known.items())
    imports = "import os, sys, socket, signal, subprocess, time, shutil\n"
    program = f"{imports}{setting}def attack():\n{lines}    return 'swordfish'\n"
    return run_program(program, "assert attack() == 'swordfish'", limits)


def test_the_sandbox_passes_its_own_trial():
    assert unavailable() is None


def test_right_answer_passes(outside):
    assert run_program("def add(a, b):\n    return a + b", ADDS) == PASSED
    assert attack("pass", outside) == PASSED  # so what fails below fails for its attack


RIGHT = {
    "library": "import collections, dataclasses, datetime, decimal, enum, fractions, hashlib\n"
    "import heapq, itertools, json, logging, math, random, re, statistics, string, typing\n"
    "Pair = collections.namedtuple('Pair', 'a b')\n"
    "T = typing.TypeVar('T')\n"
    "@dataclasses.dataclass\nclass Point:\n    x: 'int' = 3\n"
    "random.shuffle([1, 2])\nlogging.warning('seen')\nhashlib.md5(b'x').hexdigest()\n"
    "def add(a, b): return Pair(a, b).a + b",
    "numpy": "import numpy as np\nnp.linalg.inv(np.eye(200))\ndef add(a, b): return np.add(a, b)",
    "scratch": "import tempfile\ndef add(a, b):\n"
    "    with open('own', 'w') as file:\n        file.write(str(a + b))\n"
    "    with tempfile.TemporaryFile() as file:\n        file.write(b'x')\n"
    "    return int(open('own').read())",
    "traceback": "import traceback\ndef add(a, b):\n    try: a / 0\n"
    "    except ZeroDivisionError: assert 'by zero' in traceback.format_exc()\n    return a + b",
    "prints": "def add(a, b):\n    print('sum', a, b)\n    return a + b",
    "main": "def add(a, b): return a + b\nif __name__ == '__main__':\n    raise SystemExit",
    "recursive": "def add(a, b): return a if b == 0 else add(a - 1, b + 1) if b < 0 else "
    "add(a + 1, b - 1)",
}


@pytest.mark.parametrize("name", RIGHT)
def test_ordinary_programs_pass(name, outside):
    assert run_program(RIGHT[name], ADDS) == PASSED


WRONG = {
    "wrong answer": ("def add(a, b): return a - b", "wrong answer"),
    "nothing": ("", "exception"),
    "no such function": ("def sub(a, b): return a - b", "exception"),
    "raises": ("def add(a, b): return a / 0", "exception"),
    "its own assert": ("assert False", "exception"),
    "syntax": ("def add(a, b) return", "syntax error"),
    "null byte": ("def add(a, b): return a + b\0", "syntax error"),
    "half a character": ("'\ud800'\ndef add(a, b): return a + b", "syntax error"),
    "deeply nested": ("(" * 10_000 + ")" * 10_000, "syntax error"),
    "prose": ("Here is the function you asked for:", "syntax error"),
    "endless recursion": ("def add(a, b): return add(a, b)", "exception"),
    "output": ("while True: print('x' * 1000)", "output"),
    "errors": ("import sys\nwhile True: sys.stderr.write('x')", "output"),
    "endless": ("while True: pass", "time"),
    "endless when called": ("def add(a, b):\n    while True: pass", "time"),
    "never gives in": (
        "def add(a, b):\n    while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass",
        "time",
    ),
    "blocks the signal": (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
        "while True: pass",
        "killed",
    ),
    "10 GB": ("x = bytearray(10 << 30)", "memory"),
    "10 GB bit by bit": ("x = []\nwhile True: x.append(bytes(1 << 20))", "memory"),
    "10 GB again and again": (
        "while True:\n    try: bytearray(10 << 30)\n    except MemoryError: pass",
        "time",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs_fail_by_name(name, outside):
    program, failure = WRONG[name]
    assert run_program(program, ADDS, SHORT) == Verdict(False, failure)


def test_stack_overflow_is_a_failure(outside):
    program = "import sys\nsys.setrecursionlimit(10**9)\nx = []\n"
    program += "for _ in range(10**6): x = [x]\nrepr(x)"
    verdict = run_program(program, ADDS)
    assert not verdict.passed and verdict.failure in ("crashed", "exception", "memory")


@pytest.mark.parametrize(
    "program",
    [
        "import time\ntime.sleep(1000)",
        "import os, time\nos.closerange(0, 64)\ntime.sleep(1000)",  # nothing left to wait on
        "import time\nwhile True:\n    try: time.sleep(1)\n    except BaseException: pass",
    ],
)
def test_waiting_ends_with_the_wall_time(program, outside):
    assert run_program(program, ADDS, Limits(wall_seconds=1)) == Verdict(False, "time")


FORBIDDEN = {
    # processes
    "fork": "if os.fork() == 0: os._exit(0)",
    "vfork": "os.posix_spawn('/bin/true', ['true'], {})",
    "forkpty": "if os.forkpty()[0] == 0: os._exit(0)",
    "daemon": "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(1000)",
    "subprocess": "subprocess.run(['true'])",
    "shell": "subprocess.run('true', shell=True)",
    "exec": "os.execv('/bin/true', ['true'])",
    "exec of Python": "os.execv(sys.executable, [sys.executable, '-c', ''])",
    # signals and other processes
    "kill": "os.kill(victim, 9)",
    "kill the parent": "os.kill(os.getppid(), 0)",
    "kill the group": "os.killpg(os.getpgid(victim), 9)",
    "kill itself": "os.kill(os.getpid(), 9)",
    "signal of a pipe's owner": "import fcntl\nfcntl.fcntl(1, fcntl.F_SETOWN, victim)",
    "signal handler": "signal.signal(signal.SIGXCPU, signal.SIG_IGN)",
    "timer": "signal.setitimer(signal.ITIMER_REAL, 1)",
    "priority": "os.setpriority(os.PRIO_PROCESS, victim, 5)",
    "limits of another": "import resource\nresource.prlimit(victim, resource.RLIMIT_CPU, (99, 99))",
    "memory of another": "open(f'/proc/{victim}/mem', 'rb')",
    # files
    "remove": "os.remove(outside + '/deep/victim')",
    "remove all": "shutil.rmtree(outside)",
    "overwrite": "open(outside + '/deep/victim', 'w')",
    "append": "open(outside + '/deep/victim', 'a')",
    "truncate": "os.truncate(outside + '/deep/victim', 0)",
    "rename": "os.rename(outside + '/deep/victim', 'mine')",
    "replace": "open('mine', 'w').close()\nos.replace('mine', outside + '/deep/victim')",
    "mode": "os.chmod(outside + '/deep/victim', 0)",
    "owner": "os.chown(outside + '/deep/victim', 65534, 65534)",
    "times": "os.utime(outside + '/deep/victim')",
    "attribute": "os.setxattr(outside + '/deep/victim', 'user.x', b'')",
    "symbolic link": "os.symlink(outside + '/secret', 'mine')\nopen('mine')",
    "hard link": "os.link(outside + '/secret', 'mine')\nopen('mine')",
    "folder": "os.mkdir(outside + '/new')",
    "new file": "open(outside + '/new', 'w')",
    "file above": "open('../new', 'w')",
    "file in /tmp": "open('/tmp/new-of-sandbox', 'w')",
    "shared memory": "open('/dev/shm/new-of-sandbox', 'w')",
    "read": "return open(outside + '/secret').read()",
    "list": "os.listdir(outside)",
    "read the project": "open(child).read()",
    "overwrite the checker": "open(child, 'w')",
    "environment of the parent": "open(f'/proc/{os.getppid()}/environ').read()",
    "own memory": "open('/proc/self/mem', 'rb')",
    "passwords": "open('/etc/passwd').read()",
    "truncate what may be read": "os.open(os.__file__, os.O_RDONLY | os.O_TRUNC)",
    # network
    "TCP": "socket.create_connection(('127.0.0.1', port), 1)",
    "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "Unix socket": "socket.socket(socket.AF_UNIX).connect(outside + '/socket')",
    "pair of sockets": "socket.socketpair()",
    "listening": "socket.create_server(('127.0.0.1', 0))",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    # the kernel
    "root folder": "os.chroot('.')",
    "user": "os.setuid(65534)",
    "host name": "socket.sethostname('mine')",
    "memory file": "os.memfd_create('x')",
    "FIFO": "os.mkfifo('pipe')",
    "root's rights": "os.close(os.open('closed', os.O_CREAT, 0))\nopen('closed')",
}


@pytest.fixture
def victim():
    """A process of the same user."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    yield process.pid
    assert process.poll() is None
    process.kill()
    process.wait()


@pytest.fixture
def port():
    """A port that listens, and to which nobody connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server.getsockname()[1]
        with pytest.raises(BlockingIOError):
            server.accept()


@rejects(
    "suite/sandbox/syscalls.py",
    "exit 60 93 ",
    "chmod 90 - fchmodat 268 53 exit 60 93 ",
    "modes of files that a program may change",
)
@pytest.mark.parametrize("name", FORBIDDEN)
def test_ways_out_are_forbidden(name, outside, victim, port):
    body = FORBIDDEN[name]
    verdict = attack(body, outside, victim=victim, port=port, child=str(sandbox.CHILD))
    assert verdict == Verdict(False, "forbidden")
    assert not Path("/tmp/new-of-sandbox").exists() and not Path("/dev/shm/new-of-sandbox").exists()


def test_seccomp_alone_keeps_what_may_be_read_from_being_truncated(outside):
    """Landlock before ABI 3 does not; its own error is EACCES."""
    body = """
try: os.open(os.__file__, os.O_RDONLY | os.O_TRUNC)
except OSError as error: return error.errno
"""
    assert not attack(body, outside).passed
    program = "import os\ntry: os.open(os.__file__, os.O_TRUNC | os.O_RDONLY)\n"
    program += "except OSError as error: number = error.errno"
    assert run_program(program, "import errno\nassert number == errno.EPERM") == PASSED


FAILING = {
    "environment": ("return os.environ['PLANTED']", "exception"),
    "shell's status": ("assert os.system('true') == 0", "wrong answer"),
    "fork bomb": ("while True:\n    try: os.fork()\n    except OSError: pass", "time"),
    "pool": ("import multiprocessing\nmultiprocessing.Pool(2).map(abs, [1])", "forbidden"),
    "thread": ("import threading\nthreading.Thread(target=print).start()", "exception"),
    "many threads": (
        "import threading\nwhile True:\n"
        "    try: threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "    except RuntimeError: pass",
        "time",
    ),
    "C library": ("import ctypes\nctypes.CDLL(None).getpid()", "exception"),
    "limits": ("import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 9))", "exception"),
    "what is left of ctypes": (
        "kinds = [kind for kind in object.__subclasses__() if kind.__name__ == 'CDLL']\n"
        "kinds[0].__init__.__globals__['memmove']",
        "exception",
    ),
    "process handle": ("signal.pidfd_send_signal(os.pidfd_open(victim), 9)", "exception"),
    "huge file": (
        "with open('x', 'wb') as file:\n    while True: file.write(bytes(4096))",
        "files",
    ),
    "unlinked file": (
        "with open('x', 'wb') as file:\n    os.unlink('x')\n    file.write(bytes(1 << 17))",
        "files",
    ),
    "hole": ("with open('x', 'wb') as file: file.truncate(1 << 40)", "files"),
    "many files": (
        "for i in range(10**9):\n    with open(str(i), 'wb') as file: file.write(bytes(4096))",
        "files",
    ),
    "endless empty files": ("for i in range(10**9): open(str(i), 'wb').close()", "files"),
    "abort": ("os.abort()", "crashed"),
}


@pytest.mark.parametrize("name", FAILING)
def test_attacks_that_fail_otherwise(name, outside, victim):
    body, failure = FAILING[name]
    assert attack(body, outside, victim=victim) == Verdict(False, failure)


EXITS = ["sys.exit(0)", "os._exit(0)", "raise SystemExit", "raise SystemExit(0)", "sys.exit('ok')"]


@pytest.mark.parametrize("call", EXITS)
def test_exiting_early_is_no_pass(call, outside):
    for program in (f"import os, sys\n{call}", f"import os, sys\ndef add(a, b): {call}"):
        assert run_program(program, ADDS) == Verdict(False, "exited early")


FORGED = {
    "words": "print('passed', 'ok', 'True', 0)\nos._exit(0)",
    "to every file": "for fd in range(64):\n    try: os.write(fd, b'passed')\n"
    "    except OSError: pass\nos._exit(0)",
    "flood": "for fd in range(3, 64):\n    try: os.write(fd, b'passed' * 1000)\n"
    "    except OSError: pass\nos._exit(0)",
}


@rejects(
    "suite/sandbox/run.py",
    'word == secret + b"passed"',
    'b"passed" in word',
    "a report of a pass believed without the secret",
)
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_report_is_no_pass(name, outside):
    assert attack(FORGED[name], outside) == Verdict(False, "exited early")


TAMPERING = {
    "builtins": "import builtins\n"
    "for name in ('exec', 'compile', 'print', 'dict', 'BaseException', 'AssertionError', 'abs'):\n"
    "    setattr(builtins, name, lambda *a, **k: 0)",
    "builtins, late": "import builtins\ndef spoil(): builtins.abs = lambda x: 0",
    "its builtins": "__builtins__.AssertionError = KeyError\n__builtins__.abs = lambda x: 0",
    "AssertionError": "import builtins\nclass Quiet(Exception): pass\n"
    "builtins.AssertionError = AssertionError = Quiet",
    "modules": "import sys\nfor name in ('__main__', 'program', 'os', 'builtins'):\n"
    "    for key in list(vars(sys.modules[name])):\n"
    "        if key in ('judge', 'main', '_exit', 'write', 'exec'):\n"
    "            setattr(sys.modules[name], key, lambda *a: None)",
    "the runner": "import sys\nfor name in list(sys.modules): sys.modules.pop(name)",
    "names of the tests": "def verify(x): pass\n"
    "def spoil(): globals().update(verify=lambda x: None)",
    "at exit": "import atexit, os\natexit.register(os._exit, 0)",
    "hooks": "import sys\nsys.excepthook = sys.unraisablehook = sys.displayhook = print",
    "optimised": "import sys\n__debug__ or 1\nsys.dont_write_bytecode = True",
}


@rejects(
    "suite/sandbox/child.py",
    "scope = copy(names)",
    "scope = names",
    "the program's functions see the names of its tests",
)
@pytest.mark.parametrize("name", TAMPERING)
def test_tampering_with_the_checker_is_no_pass(name, outside):
    program = f"def spoil(): pass\n{TAMPERING[name]}\ndef add(a, b):\n    spoil()\n    return 0"
    tests = "def verify(x): assert abs(x - 5) == 0\nverify(5)\nx = add(2, 3)\nverify(x)"
    assert run_program(program, tests) == Verdict(False, "wrong answer")


# ways to a frame; were one open, the program would find the secret there and report a pass
FORGE = """
import gc, inspect, os, sys, traceback
def forge(found):
    while found is not None:
        for value in list(found.f_locals.values()):
            if isinstance(value, bytes) and len(value) == 32:
                for fd in range(3, 64):
                    try: os.write(fd, value + b'passed')
                    except OSError: pass
                os._exit(0)
        found = found.f_back
def failed():
    try: 1 / 0
    except ZeroDivisionError as error: return error.__traceback__
def keep():
    try: 1 / 0
    except ZeroDivisionError as error: cycle = error
def made():
    yield forge(running.gi_frame)
async def waits():
    forge(waiting.cr_frame)
"""
WAYS = {
    "_getframe": "forge(sys._getframe())",
    "currentframe": "forge(inspect.currentframe())",
    "stack": "forge(inspect.stack()[0].frame)",
    "walk_stack": "forge(next(traceback.walk_stack(None))[0])",
    "current_frames": "[forge(frame) for frame in sys._current_frames().values()]",
    "traceback": "forge(failed().tb_frame)",
    "getter": "forge(type(failed()).tb_frame.__get__(failed()))",
    "generator": "global running\n    running = made()\n    next(running)",
    "coroutine": "global waiting\n    waiting = waits()\n    waiting.send(None)",
    "settrace": "sys.settrace(lambda frame, *rest: forge(frame))\n    failed()",
    "setprofile": "sys.setprofile(lambda frame, *rest: forge(frame))\n    failed()",
    "collector": "[forge(o) for o in gc.get_objects() if inspect.isframe(o)]",
    "referrers": "[forge(o) for o in gc.get_referrers(failed) if inspect.isframe(o)]",
    "kept garbage": "gc.set_debug(gc.DEBUG_SAVEALL)\n    keep()\n    gc.collect()\n"
    "    [forge(o) for o in gc.garbage if inspect.isframe(o)]",
}


def forging(way):
    return f"{FORGE}\ndef add(a, b):\n    try:\n        {way.replace('    ', '        ')}\n" + (
        "    except (ValueError, AttributeError, RuntimeError, StopIteration): pass\n    return 0"
    )


@pytest.mark.parametrize("name", WAYS)
def test_frames_are_out_of_reach(name, outside):
    assert run_program(forging(WAYS[name]), ADDS) == Verdict(False, "wrong answer")


# ways to the names of the tests, or into their run
TO_TESTS = {
    "garbage": "gc.set_debug(gc.DEBUG_SAVEALL)\n    keep()\n    gc.collect()\n"
    "    for found in filter(inspect.isframe, gc.garbage): spoil(found)",
    "caller": "spoil(sys._getframe())",
    "current frames": "for found in sys._current_frames().values(): spoil(found)",
    "objects": "for found in filter(inspect.isframe, gc.get_objects()): spoil(found)",
    "functions": "for found in gc.get_objects():\n"
    "        if inspect.isfunction(found) and found.__name__ == 'verify':\n"
    "            found.__code__ = (lambda x: None).__code__",
    "trace": "sys.settrace(trace)",
}


@rejects(
    "suite/sandbox/child.py",
    "    sys.addaudithook(hook)",
    "    pass",
    "the run of the tests within a program's reach",
)
@rejects(
    "suite/sandbox/child.py",
    '    members |= {"f_back": None, "f_locals": {}, "f_globals": {}, "f_builtins": {}}',
    "    pass",
    "frames that tell what called them",
)
@pytest.mark.parametrize("name", TO_TESTS)
def test_names_and_run_of_the_tests_are_out_of_reach(name, outside):
    way = TO_TESTS[name].replace("\n    ", "\n        ")
    program = f"""
import gc, inspect, sys
def keep():
    try: 1 / 0
    except ZeroDivisionError as error: cycle = error
def spoil(found):
    while found is not None:
        if 'verify' in getattr(found, 'f_globals', ''):
            found.f_globals['verify'] = print
        found = getattr(found, 'f_back', None)
def trace(frame, event, argument):  # jumps over the second line of `verify`
    if frame.f_code.co_name == 'verify' and frame.f_lineno == 2:
        frame.f_lineno = 3
    return trace
def add(a, b):
    try:
        {way}
    except ValueError: pass
    return 0
"""
    tests = "def verify(x):\n    assert x == 5\n    return x\nx = add(2, 3)\nverify(x)"
    assert run_program(program, tests) == Verdict(False, "wrong answer")


def test_an_exception_that_the_tests_catch_does_not_lead_to_their_names(outside):
    program = """
kept = ValueError()
def add(a, b):
    traceback = kept.__traceback__
    if traceback is None:
        raise kept
    while traceback is not None:
        traceback.tb_frame.f_globals['verify'] = print
        traceback = traceback.tb_next
    return 0
"""
    tests = "def verify(x): assert x == 5\ntry: add(2, 3)\nexcept ValueError: pass\n"
    tests += "x = add(2, 3)\nverify(x)"
    assert run_program(program, tests) == Verdict(False, "wrong answer")


def test_no_function_of_the_c_library_is_left_in_the_garbage(outside):
    program = "import gc\ngc.set_debug(gc.DEBUG_SAVEALL)\ngc.collect()\n"
    program += "kept = [o for o in gc.garbage if 'prctl' in getattr(o, '__dict__', ())]"
    assert run_program(program, "assert kept == []") == PASSED


# a built-in function is no frame of its own: what it sees are the names of who gave the object up
FINALISER = """
import os
from functools import partial
def look(seen):
    for value in list(seen.values()):
        if isinstance(value, bytes) and len(value) == 32:
            for fd in range(3, 64):
                try: os.write(fd, value + b'passed')
                except OSError: pass
            os._exit(0)
    if 'libc' in seen: os._exit(0)
class Spy:
    __hash__ = partial(eval, "__import__('program').look({**globals(), **locals()}) or 0")
    __del__ = __hash__
class Carrier(OSError):
    def __init__(self): self.spy = self.errno = Spy()
"""


@rejects(
    "suite/sandbox/child.py",
    "    globals().clear()",
    "    pass",
    "names of the checker within reach of what a program leaves to be freed",
)
@pytest.mark.parametrize("body", ["raise Carrier", "def add(a, b): raise Carrier"])
def test_what_runs_among_the_checkers_names_finds_nothing_there(body, outside):
    assert run_program(FINALISER + body, ADDS) == Verdict(False, "exception")


@pytest.mark.parametrize(
    "tests",
    ["", "  \n", "# add(2, 3) == 5", "'''add'''", "pass", "x = 1", "assert add(2, 3) ==", "return"],
)
def test_what_is_not_tested_does_not_pass(tests, outside):
    assert run_program("def add(a, b): return a + b", tests) == Verdict(False, "no tests")


def test_a_check_that_is_not_called_is_no_test(outside):
    check = "def check(candidate):\n    assert candidate(2, 3) == 5\n"
    program = "def add(a, b): return a + b"
    assert run_program(program, check) == Verdict(False, "no tests")
    assert run_program(program, check + "check(add)") == PASSED


def test_the_order_of_sets_is_the_same_in_each_run(outside):
    program = "import sys\nsys.stdout = open('x', 'w')\ndef order(): return ''.join({*'abcdefgh'})"
    tests = f"assert order() == {hash_seeded()!r}"
    assert run_program(program, tests) == PASSED


def hash_seeded():
    """''.join({*'abcdefgh'}) of a Python whose hash seed is 0."""
    command = [sys.executable, "-c", "print(''.join({*'abcdefgh'}), end='')"]
    return subprocess.check_output(command, env={"PYTHONHASHSEED": "0"}, text=True)


def test_many_programs_keep_their_order(outside):
    pairs = [(f"def add(a, b): return a + b + {i % 3}", ADDS) for i in range(12)]
    verdicts = run_programs(iter(pairs), workers=3)
    assert [v.passed for v in verdicts] == [i % 3 == 0 for i in range(12)]
    assert run_programs([]) == []


def test_a_program_dies_with_its_parent(tmp_path):
    script = """if True:
        from pipelines.suite.sandbox import run as sandbox
        watch = sandbox.watch
        def watched(process, scratch, limits):
            def look(*arguments):
                if (scratch / "running").exists():
                    print(process.pid, flush=True)
            sandbox.too_much = look
            return watch(process, scratch, limits)
        sandbox.watch = watched
        program = "import time; open('running', 'w').close(); time.sleep(1000)"
        sandbox.confined(program, "assert True", sandbox.Limits())
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(sandbox.__file__).parents[1],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with parent:
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
    try:
        ended, _, _ = select.select([child], [], [], 60)
        if not ended:
            signal.pidfd_send_signal(child, signal.SIGKILL)
        assert ended
    finally:
        os.close(child)


LACKING = {
    "Landlock": ("LANDLOCK_ADD, LANDLOCK_RESTRICT = 444", "LANDLOCK_ADD, LANDLOCK_RESTRICT = 9999"),
    "no rules for it": ("LANDLOCK_RESTRICT, rules, 0)", "LANDLOCK_RESTRICT, -1, 0)"),
    "seccomp": ("PR_SET_NO_NEW_PRIVS = 1, 4, 22", "PR_SET_NO_NEW_PRIVS = 1, 4, 9999"),
    "its effect": ("(len(job['filter']) // 8,", "(1,"),
}


@pytest.mark.parametrize("name", LACKING)
def test_without_the_kernels_help_nothing_is_run(name, outside, tmp_path, monkeypatch):
    """As on a kernel that lacks a system call: its number is one that does not exist."""
    old, new = LACKING[name]
    source = sandbox.CHILD.read_text().replace('job["filter"]', "job['filter']")
    assert source.count(old) == 1
    lacking = tmp_path / "lacking.py"
    lacking.write_text(source.replace(old, new))
    monkeypatch.setattr(sandbox, "CHILD", lacking)
    unavailable.cache_clear()
    try:
        reason = unavailable()
        assert reason.startswith("no sandbox: ") and "\n" not in reason
        with pytest.raises(UserError, match=re.escape(reason)):
            run_program("open('ran', 'w')", "assert True")
    finally:
        unavailable.cache_clear()


@pytest.mark.parametrize("where", ["platform", "machine"])
def test_elsewhere_nothing_is_run(where, monkeypatch):
    if where == "platform":
        monkeypatch.setattr(sys, "platform", "darwin")
    else:
        monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    unavailable.cache_clear()
    try:
        assert "64-bit Linux" in unavailable()
    finally:
        unavailable.cache_clear()


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are of an unprivileged user")
def test_an_unprivileged_user_has_the_same_sandbox(monkeypatch):
    python = shutil.which("python3", path="/usr/bin")
    current = "import sys; sys.exit(sys.version_info < (3, 11))"
    if python is None or subprocess.run([python, "-c", current]).returncode:
        pytest.skip("needs a Python that all users may run")
    script = """if True:
        from pipelines.suite.sandbox.run import run_programs, unavailable
        assert unavailable() is None, unavailable()
        programs = "x = 1", "import os; os.fork()", "open('/etc/passwd')", "x = bytearray(1 << 40)"
        for verdict in run_programs([(program, "assert x == 1") for program in programs]):
            print(verdict.failure or "passed")
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in ("suite/sandbox/run.py", "suite/sandbox/child.py", "suite/sandbox/syscalls.py",
                     "common/errors.py", "common/printable.py"):  # fmt: skip
            target = Path(folder) / "pipelines" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / "pipelines" / name, target)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        printed = subprocess.check_output(
            [python, "-c", script], user=65534, group=65534, extra_groups=[], cwd=folder, text=True
        )
    assert printed.split("\n")[:-1] == ["passed", "forbidden", "forbidden", "memory"]


HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_of_the_calls_are_the_kernels(machine):
    header = Path(HEADERS[machine])
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    lines = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    kernel = {name: int(number) for name, number in lines}
    kernel.setdefault("newfstatat", kernel.get("fstatat"))
    column = list(HEADERS).index(machine)
    ours = numbers(machine)
    for name, both, *_ in (*BY_ARGUMENT, *OPENING):
        if both[column] is not None:
            ours[name] = both[column]
    assert ours == {name: kernel[name] for name in ours}
    dangerous = {"clone", "clone3", "execve", "execveat", "socket", "kill", "ptrace", "bpf"}
    assert not dangerous & set(ours)
