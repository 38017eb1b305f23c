"""Programs in the sandbox: what is right passes, what is hostile neither passes nor harms."""

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
from pathlib import Path
from textwrap import indent

import psutil
import pytest

from pipelines.host.errors import UserError
from pipelines.host.files import ROOT
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
    commands = (process.info["cmdline"] for process in psutil.process_iter(["cmdline"]))
    return [command for command in commands if command and str(script) in command]


def state(folder):
    found = {}
    for path in (folder, *folder.rglob("*")):
        of = path.stat()
        content = path.read_text() if path.is_file() else ""
        found[path] = of.st_mode, of.st_uid, of.st_mtime, content
    return found


@pytest.fixture(autouse=True)
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
    before = state(folder)
    yield folder
    assert state(folder) == before
    assert not list(temporary.iterdir())
    assert not running(script)


def verdicts(programs, tests=ADDS, limits=None):
    """By the names of ``programs``."""
    pairs = ((program, tests) for program in programs.values())
    return dict(zip(programs, run_programs(pairs, limits), strict=True))


def all_fail(programs, failure):
    return dict.fromkeys(programs, Verdict(False, failure))


RIGHT = {
    "plain": "def add(a, b): return a + b",
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
    "main": "def add(a, b):\n    print('sum', a, b)\n    return a + b\n"
    "if __name__ == '__main__':\n    raise SystemExit",
}


def test_ordinary_programs_pass():
    assert verdicts(RIGHT) == dict.fromkeys(RIGHT, PASSED)
    assert run_programs([]) == []


WRONG = {  # failure → programs
    "wrong answer": ["def add(a, b): return a - b"],
    "exception": ["", "assert False", "def add(a, b): return add(a, b)"],
    "syntax error": [
        "Here is the function you asked for:",
        "def add(a, b): return a + b\0",
        "'\ud800'\ndef add(a, b): return a + b",
        "(" * 10_000 + ")" * 10_000,
    ],
    "forbidden": ["import os\nos.fork()"],
    "output": ["while True: print('x' * 1000)", "import sys\nwhile True: sys.stderr.write('x')"],
    "time": [
        "def add(a, b):\n    while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass",
    ],
    "killed": [
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
        "while True: pass"
    ],
    "memory": ["x = bytearray(10 << 30)", "x = []\nwhile True: x.append(bytes(1 << 20))"],
    "files": [
        "with open('x', 'wb') as file:\n    while True: file.write(bytes(4096))",
        "import os\nfile = open('x', 'wb')\nos.unlink('x')\nfile.write(bytes(1 << 17))",
        "with open('x', 'wb') as file: file.truncate(1 << 40)",
        "for i in range(10**9):\n    with open(str(i), 'wb') as file: file.write(bytes(4096))",
        "for i in range(10**9): open(str(i), 'wb').close()",
    ],
    "crashed": ["import os\nos.abort()"],
}


def test_wrong_programs_fail_by_name():
    expected = {text: failure for failure, programs in WRONG.items() for text in programs}
    found = verdicts({program: program for program in expected}, limits=SHORT)
    assert found == {program: Verdict(False, failure) for program, failure in expected.items()}


def test_waiting_ends_with_the_wall_time():
    programs = {
        "nothing left to wait on": "import os, time\nos.closerange(0, 64)\ntime.sleep(1000)",
        "again": "import time\nwhile True:\n    try: time.sleep(1)\n    except BaseException: pass",
    }
    assert verdicts(programs, limits=Limits(wall_seconds=1)) == all_fail(programs, "time")


def attempting(attempts, stopped_by, **values):
    """A program that tries all ``attempts``; `out` are those that no such exception stopped."""
    program = "import errno, fcntl, os, resource, signal, socket, subprocess, sys\n"
    program += "out = []\n" + "".join(f"{name} = {value!r}\n" for name, value in values.items())
    for name, body in attempts.items():
        program += f"def attempt():\n{indent(body, '    ')}\ntry:\n    attempt()\n"
        program += f"    out.append({name!r})\nexcept {stopped_by}: pass\n"
    return program


def check_stopped(attempts, stopped_by, **values):
    """All in one process; in a failure's message each in one of its own, for its name."""

    def verdict(attempts):
        return run_program(attempting(attempts, stopped_by, **values), "assert out == []")

    assert verdict(attempts) == PASSED, [
        name for name, body in attempts.items() if verdict({name: body}) != PASSED
    ]


# of each means one; the calls that are not listed are those of DANGEROUS
FORBIDDEN = {
    # processes
    "fork": "if os.fork() == 0: os._exit(0)",
    "subprocess": "subprocess.run('true', shell=True)",
    "exec": "os.execv(sys.executable, [sys.executable, '-c', ''])",
    # signals and other processes
    "kill": "os.kill(victim, 9)",
    "signal of a pipe's owner": "fcntl.fcntl(1, fcntl.F_SETOWN, victim)",
    "limits of another": "resource.prlimit(victim, resource.RLIMIT_CPU, (99, 99))",
    "memory of another": "open(f'/proc/{victim}/mem', 'rb')",
    "own memory": "open('/proc/self/mem', 'rb')",
    # files
    "remove": "os.remove(outside + '/deep/victim')",
    "overwrite": "open(outside + '/deep/victim', 'w')",
    "replace": "open('mine', 'w').close()\nos.replace('mine', outside + '/deep/victim')",
    "new file": "open(outside + '/new', 'w')",
    "read": "open(outside + '/secret').read()",
    "list": "os.listdir(outside)",
    "environment of the parent": "open(f'/proc/{os.getppid()}/environ').read()",
    "truncate what may be read": "os.open(os.__file__, os.O_RDONLY | os.O_TRUNC)",
    # network
    "TCP": "socket.create_connection(('127.0.0.1', port), 1)",
    "root's rights": "os.close(os.open('closed', os.O_CREAT, 0))\nopen('closed')",
}
LOADING = """
from _imp import create_dynamic
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
"""
IMPOSSIBLE = {
    "environment": "os.environ['PLANTED']",
    "shell's status": "assert os.system('true') == 0",
    "thread": "import threading\nthreading.Thread(target=print).start()",
    "C library": "import ctypes\nctypes.CDLL(None).getpid()",
    "what is left of ctypes": "known = {k.__name__: k for k in object.__subclasses__()}\n"
    "known['CDLL'].__init__.__globals__['memmove']",
    "C library, asked for by what is like no name": "class Name(str):\n"
    "    __hash__ = lambda self: 7\n    __eq__ = lambda self, other: False\n"
    "__import__(Name('_ctypes'))",
    "C library, by another name": f"{LOADING}found = find_spec('_ctypes').origin\n"
    "create_dynamic(ModuleSpec('own._ctypes', None, origin=found))",
    "compiled module of its own": f"{LOADING}found = open(find_spec('_json').origin, 'rb').read()\n"
    "open('_json.so', 'wb').write(found)\n"
    "create_dynamic(ModuleSpec('_json', None, origin='./_json.so'))",
    "limits": "resource.setrlimit(resource.RLIMIT_CPU, (1, 9))",
    "process handle": "signal.pidfd_send_signal(os.pidfd_open(victim), 9)",
    "truncate by seccomp alone": "try: os.open(os.__file__, os.O_RDONLY | os.O_TRUNC)\n"
    "except OSError as error: assert error.errno != errno.EPERM  # Landlock's is EACCES",
}


@rejects(
    "child.refuse_ways_to_frames: «kind(name) is not text or→»", "a name that compares as it likes"
)
@rejects('child.refuse_ways_to_frames: name«.rpartition(".")[2]→»', "the C library by another name")
@rejects(
    "child.refuse_ways_to_frames: or «not path.startswith(folders)→False»", "its own machine code"
)
def test_there_is_no_way_out(outside):
    victim = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with victim, socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        values = dict(outside=str(outside), victim=victim.pid)
        try:
            port = server.getsockname()[1]
            check_stopped(FORBIDDEN, "PermissionError", **values, port=port)
            check_stopped(IMPOSSIBLE, "Exception", **values)
            assert victim.poll() is None
        finally:
            victim.kill()
        with pytest.raises(BlockingIOError):  # nobody has connected
            server.accept()


EARLY = {
    "exit": "raise SystemExit",
    "exit when called": "import sys\ndef add(a, b): sys.exit('ok')",
    "_exit": "import os\nos._exit(0)",
    "_exit when called": "import os\ndef add(a, b): os._exit(0)",
    "forged": "import os\nprint('passed')\nfor fd in range(64):\n"
    "    try: os.write(fd, b'passed')\n    except OSError: pass\nos._exit(0)",
    "flood": "import os\nfor fd in range(64):\n"
    "    try: os.write(fd, b'passed' * 1000)\n    except OSError: pass\nos._exit(0)",
}


@rejects('run.judged: «word == secret +→» b"passed"«→ in word»', "a pass without the secret")
def test_neither_an_early_exit_nor_a_forged_report_is_a_pass():
    assert verdicts(EARLY) == all_fail(EARLY, "exited early")


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
    "at exit": "import atexit, os, sys\natexit.register(os._exit, 0)\n"
    "sys.excepthook = sys.unraisablehook = sys.displayhook = print",
}


@rejects("child.outcome: «copy(names)→names»", "the program's functions see the names of its tests")
def test_tampering_with_the_checker_is_no_pass():
    programs = {
        name: f"def spoil(): pass\n{body}\ndef add(a, b):\n    spoil()\n    return 0"
        for name, body in TAMPERING.items()
    }
    tests = "def verify(x): assert abs(x - 5) == 0\nverify(5)\nx = add(2, 3)\nverify(x)"
    assert verdicts(programs, tests) == all_fail(programs, "wrong answer")


# at any frame within reach, and those above it: forge a pass with the secret, spoil the tests
USE = """
import gc, inspect, os, sys, traceback
def use(found):
    while found is not None:
        for value in list(found.f_locals.values()):
            if isinstance(value, bytes) and len(value) == 32:
                for fd in range(3, 64):
                    try: os.write(fd, value + b'passed')
                    except OSError: pass
                os._exit(0)
        if 'verify' in found.f_globals:
            found.f_globals['verify'] = print
        found = found.f_back
def failed():
    try: 1 / 0
    except ZeroDivisionError as error: return error.__traceback__
def keep():
    try: 1 / 0
    except ZeroDivisionError as error: cycle = error
def made():
    yield use(running.gi_frame)
async def waits():
    use(waiting.cr_frame)
def trace(frame, event, argument):  # jumps over the second line of `verify`
    if frame.f_code.co_name == 'verify' and frame.f_lineno == 2:
        frame.f_lineno = 3
    return trace
kept = ValueError()
refusals = ValueError, AttributeError, RuntimeError, StopIteration
"""
WAYS = {
    "_getframe": "use(sys._getframe())",
    "current_frames": "for frame in sys._current_frames().values(): use(frame)",
    "traceback": "use(failed().tb_frame)",
    "getter": "use(type(failed()).tb_frame.__get__(failed()))",
    "generator": "global running\nrunning = made()\nnext(running)",
    "coroutine": "global waiting\nwaiting = waits()\nwaiting.send(None)",
    "settrace": "sys.settrace(lambda frame, *rest: use(frame))\nfailed()",
    "setprofile": "sys.setprofile(lambda frame, *rest: use(frame))\nfailed()",
    "objects": "for frame in filter(inspect.isframe, gc.get_objects()): use(frame)",
    "referrers": "for frame in filter(inspect.isframe, gc.get_referrers(failed)): use(frame)",
    "kept garbage": "gc.set_debug(gc.DEBUG_SAVEALL)\nkeep()\ngc.collect()\n"
    "for frame in filter(inspect.isframe, gc.garbage): use(frame)",
    "what the tests have caught": "found = kept.__traceback__\nwhile found is not None:\n"
    "    use(found.tb_frame)\n    found = found.tb_next",
    "functions": "for found in gc.get_objects():\n"
    "    if inspect.isfunction(found) and found.__name__ == 'verify':\n"
    "        found.__code__ = (lambda x: None).__code__",
    "trace": "sys.settrace(trace)",
}


@rejects("child.refuse_ways_to_frames: «sys.addaudithook→»(hook)", "the tests' run within reach")
@rejects('child.blind_frames: «members |= {→{»"f_back', "frames that tell what called them")
def test_secret_names_and_run_of_the_tests_are_out_of_reach():
    tests = "def verify(x):\n    assert x == 5\n    return x\n"
    tests += "try: add(2, 3)\nexcept ValueError: pass\nx = add(2, 3)\nverify(x)"

    def verdict(*ways):
        program = f"{USE}def add(a, b):\n    if kept.__traceback__ is None: raise kept\n"
        for way in ways:
            program += f"    try:\n{indent(way, ' ' * 8)}\n    except refusals: pass\n"
        return run_program(f"{program}    return 0", tests)

    assert verdict(*WAYS.values()) == Verdict(False, "wrong answer"), [
        name for name, way in WAYS.items() if verdict(way) != Verdict(False, "wrong answer")
    ]


def test_no_function_of_the_c_library_is_left_in_the_garbage():
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
    __del__ = staticmethod(partial(eval, "__import__('program').look({**globals(), **locals()})"))
class Carrier(OSError):
    def __init__(self): self.spy = Spy()
"""


@rejects("child.outcome: «globals().clear()→pass»", "the checker's names within reach")
def test_what_runs_among_the_checkers_names_finds_nothing_there():
    bodies = "raise Carrier", "def add(a, b): raise Carrier"
    programs = {body: FINALISER + body for body in bodies}
    assert verdicts(programs) == all_fail(programs, "exception")


# from Python 3.13 on, this class sets what a frame holds; the first of a traceback is the checker's
FORGER = """
class Forger(OSError):
    def __del__(self):
        for kind in object.__subclasses__():
            if kind.__name__ == 'FrameLocalsProxy':
                kind(self.__traceback__.tb_frame)['word'] = b'passed'
"""
CARRIERS = {
    "finaliser": "raise Forger",
    "property": "class Carrier(Forger):\n    errno = property(Forger.__del__)\nraise Carrier",
    "property that fails": "class Carrier(OSError):\n    errno = property(len)\nraise Carrier",
    "hash that fails": "class Number:\n    __hash__ = len\n"
    "error = OSError()\nerror.errno = Number()\nraise error",
}


@rejects("child.outcome: «number_of(error)→error.errno»", "a property runs in the checker")
@rejects("child.outcome: «kind(number) is whole→True»", "a number's hash runs in the checker")
def test_an_exception_of_the_programs_forges_nothing():
    programs = {name: FORGER + body for name, body in CARRIERS.items()}
    programs |= {
        f"{n} in a call": f"{FORGER}def add(a, b):\n{indent(b, '    ')}"
        for n, b in CARRIERS.items()
    }
    assert verdicts(programs) == all_fail(programs, "exception")


def test_what_is_not_tested_does_not_pass():
    program = "def add(a, b): return a + b"
    check = "def check(candidate):\n    assert candidate(2, 3) == 5\n"
    for tests in ("", "# add(2, 3) == 5", "'''add'''", "x = 1", "assert add(", "return", check):
        assert run_program(program, tests) == Verdict(False, "no tests"), tests
    assert run_program(program, check + "check(add)") == PASSED


def test_the_order_of_sets_is_the_same_in_each_run():
    order = "''.join({*'abcdefgh'})"
    command = [sys.executable, "-c", f"print({order}, end='')"]
    expected = subprocess.check_output(command, env={"PYTHONHASHSEED": "0"}, text=True)
    assert run_program(f"def order(): return {order}", f"assert order() == {expected!r}") == PASSED


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
    command = [sys.executable, "-c", script]
    settings = dict(cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)})
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **settings) as parent:
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
    "its effect": ('(len(job["filter"]) // 8,', "(1,"),
}


@pytest.fixture
def asked_anew():
    unavailable.cache_clear()
    yield
    unavailable.cache_clear()


@pytest.mark.parametrize("name", LACKING)
def test_without_the_kernels_help_nothing_is_run(name, tmp_path, monkeypatch, asked_anew):
    """As on a kernel that lacks a system call: its number is one that does not exist."""
    old, new = LACKING[name]
    source = sandbox.CHILD.read_text()
    assert source.count(old) == 1
    lacking = tmp_path / "lacking.py"
    lacking.write_text(source.replace(old, new))
    monkeypatch.setattr(sandbox, "CHILD", lacking)
    reason = unavailable()
    assert reason.startswith("no sandbox: ") and "\n" not in reason
    with pytest.raises(UserError, match=re.escape(reason)):
        run_program("open('ran', 'w')", "assert True")


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(sys, "platform", "darwin"), (platform, "machine", lambda: "riscv64")],
)
def test_elsewhere_nothing_is_run(module, name, value, monkeypatch, asked_anew):
    monkeypatch.setattr(module, name, value)
    assert "64-bit Linux" in unavailable()


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
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # that all users may read
        for name in ("suite/sandbox/run.py", "suite/sandbox/child.py", "suite/sandbox/syscalls.py",
                     "host/errors.py", "host/machine.py"):  # fmt: skip
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
DANGEROUS = """
fork vfork clone clone3 execve execveat socket socketpair connect bind sendmsg ptrace bpf kill tkill
tgkill rt_sigqueueinfo pidfd_open pidfd_send_signal process_vm_readv process_vm_writev rt_sigaction
setitimer timer_create setsid setpgid prlimit64 setrlimit setpriority prctl seccomp mkdir mkdirat
mknod mknodat link linkat symlink symlinkat truncate chmod fchmod fchmodat chown fchown fchownat
utimensat setxattr fsetxattr mount umount2 unshare setns chroot setuid setgid sethostname
memfd_create shmget io_uring_setup openat2 open_by_handle_at
"""


@rejects("syscalls.FREE: 128 «→chmod 90 - fchmodat 268 53 »", "modes may change", case="x86_64")
@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_of_the_calls_are_the_kernels(machine):
    column = list(HEADERS).index(machine)
    ours = numbers(machine)
    for name, both, *_ in (*BY_ARGUMENT, *OPENING):
        if both[column] is not None:
            ours[name] = both[column]
    assert not {*DANGEROUS.split()} & set(ours)
    header = Path(HEADERS[machine])
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    lines = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    kernel = {name: int(number) for name, number in lines}
    kernel.setdefault("newfstatat", kernel.get("fstatat"))
    assert ours == {name: kernel[name] for name in ours}
