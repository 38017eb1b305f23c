"""The process that runs one program; run.py starts it; README.md says what confines it.

It reads its job from stdin, gives up what it may do, runs the program and then its tests, and
writes one word after the job's secret. It imports nothing from the project, because it cannot read
the project's files, and every program pays for its start.

While the program is in control, the secret is in no variable, only on the stack of ``judge``. No
frame tells what called it or what it holds, so neither the secret nor the names of the tests can be
read from there. An audit hook, which Python cannot take away again, refuses tracing and the ways to
frames that are not the program's. Code that runs between and after uses nothing that the program
could have replaced.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import gc
import marshal
import os
import resource
import sys
from types import FrameType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing would be a third of the start
    from types import CodeType
    from typing import Any, NoReturn

OPEN_FILES = 64
SIGKILL = 9
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
CAPSET = {"x86_64": 126, "aarch64": 91}
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446  # on all machines
CAPABILITY_VERSION = 0x20080522
TP_NEW = object.__basicsize__ + 37 * 8  # of PyTypeObject, in bytes

# LANDLOCK_ACCESS_FS_* of linux/landlock.h
WRITE_FILE, READ_FILE, READ_DIR, REMOVE_FILE, MAKE_REG, TRUNCATE = (
    1 << bit for bit in (1, 2, 3, 5, 8, 14)
)
RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # ABI: how many rights it knows

WORDS: dict[int | None, bytes] = {
    errno.EPERM: b"forbidden",
    errno.EACCES: b"forbidden",
    errno.EFBIG: b"files",
    errno.ENOMEM: b"memory",
}


class PathBeneath(ctypes.Structure):
    """struct landlock_path_beneath_attr"""

    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


class Program(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


class CannotConfineError(Exception):
    """The kernel lacks something, or refuses it; one line."""


libc = ctypes.CDLL(None, use_errno=True)


def system(what: str, function: str, *arguments: Any) -> int:
    """Call the C library; raises CannotConfineError, with ``what`` was wanted, if that fails."""
    wide = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    result = getattr(libc, function)(*wide)
    if result < 0:
        raise CannotConfineError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return int(result)


def limit(job: dict[str, Any]) -> None:
    """Drop capabilities and set resource limits. No core dump, not even to a handler's pipe."""
    for kind, soft, hard in (
        (resource.RLIMIT_AS, job["memory_bytes"], job["memory_bytes"]),
        (resource.RLIMIT_CPU, job["cpu_seconds"], job["cpu_seconds"] + 1),
        (resource.RLIMIT_FSIZE, job["file_bytes"], job["file_bytes"]),
        (resource.RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES),
        (resource.RLIMIT_NPROC, 0, 0),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        ceiling = resource.getrlimit(kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(kind, (soft, hard))
    system("core dumps", "prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    system("capabilities", "syscall", CAPSET[os.uname().machine], header, none)


def close_files(readable: list[str], scratch: str) -> None:
    """Limit files by Landlock: read what is listed; make, write and remove only in ``scratch``."""
    what = "Landlock, which needs Linux 5.13 and `landlock` among the kernel's `lsm`"
    abi = system(what, "syscall", LANDLOCK_CREATE, None, 0, 1)
    handled = (1 << RIGHTS.get(abi, max(RIGHTS.values()))) - 1
    attributes = ctypes.c_uint64(handled)
    rules = system(what, "syscall", LANDLOCK_CREATE, ctypes.byref(attributes), 8, 0)

    def allow(path: str, rights: int) -> None:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return  # what is not there needs no right
        if not os.path.isdir(path):
            rights &= ~READ_DIR
        beneath = PathBeneath(rights & handled, descriptor)
        system(what, "syscall", LANDLOCK_ADD, rules, 1, ctypes.byref(beneath), 0)
        os.close(descriptor)

    for path in readable:
        allow(path, READ_FILE | READ_DIR)
    allow("/dev/null", READ_FILE | WRITE_FILE)
    allow(scratch, READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | MAKE_REG | REMOVE_FILE)
    system(what, "syscall", LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)


def confine(job: dict[str, Any], scratch: str) -> None:
    """Give up all that a program does not need, for good. Raises CannotConfineError."""
    system("the parent's death", "prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if os.getppid() != job["parent"]:
        raise CannotConfineError("the parent is gone")
    try:  # should memory run out all the same, this process is to go first
        with open("/proc/self/oom_score_adj", "w", encoding="utf-8") as file:
            file.write("1000")
    except OSError:
        pass
    limit(job)
    system("no_new_privs", "prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    close_files(job["readable"], scratch)
    blind_proxies()
    steps = Program(len(job["filter"]) // 8, job["filter"])
    system("seccomp filters", "prctl", PR_SET_SECCOMP, 2, ctypes.byref(steps), 0, 0)


def blind_frames() -> None:
    """Make frame objects tell neither their caller nor what they hold, from now on.

    A program can reach frames: from a traceback, which may lead through the tests, a generator, or
    ``gc.garbage`` of a collector told to keep what it finds. The module traceback needs them.
    """
    members = gc.get_referents(vars(FrameType))[0]  # the dict that a mappingproxy shows
    members |= {"f_back": None, "f_locals": {}, "f_globals": {}, "f_builtins": {}}
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(FrameType))  # as lookups are cached


def blind_proxies() -> None:
    """From Python 3.13 on, let nobody make the object that reads and sets what a frame holds: its
    class is to be found among all classes. Raises CannotConfineError.
    """
    proxy: Any = type(sys._getframe().f_locals)
    if proxy is dict:
        return
    ctypes.c_void_p.from_address(id(proxy) + TP_NEW).value = None
    del gc.get_referents(vars(proxy))[0]["__new__"]
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(proxy))
    try:
        proxy(sys._getframe())
    except TypeError:
        return
    raise CannotConfineError("this version of Python shows what frames hold")


def refuse_ways_to_frames(readable: list[str]) -> None:
    """From now on, refuse access to the frames of other code, running code in them, and compiled
    modules that reach memory or are not from the folders ``readable``.
    """
    events = {
        "sys._getframe",  # collections, typing and logging go on without it after a ValueError
        "sys._current_frames",
        "sys._current_exceptions",
        "sys.settrace",
        "sys.setprofile",
        "sys.monitoring.register_callback",
        "sys.addaudithook",
        "gc.get_objects",
        "gc.get_referrers",
        "gc.get_referents",
        "code.__new__",
        "cpython.PyInterpreterState_New",
    }
    modules = {
        *("_ctypes", "ctypes", "_ctypes_test", "_interpreters", "_xxsubinterpreters"),
        *("_testbuffer", "_testcapi", "_testinternalcapi", "_testlimitedcapi"),
    }
    folders = tuple(f"{folder}/" for folder in readable)

    def hook(  # all it uses it holds, as the program may replace what names stand for
        event: str,
        arguments: tuple[Any, ...],
        events: set[str] = events,
        modules: set[str] = modules,
        folders: tuple[str, ...] = folders,
        kind: type[type] = type,
        text: type[str] = str,
        refused: type[Exception] = ValueError,
        missing: type[Exception] = ImportError,
    ) -> None:
        if event in events or event.startswith("ctypes."):
            raise refused("not in the sandbox")
        if event == "import":
            name, path, *_ = arguments
            # a class of the program's own may compare as it likes
            if kind(name) is not text or name.rpartition(".")[2] in modules:
                raise missing("not in the sandbox")
            if path is not None and (
                kind(path) is not text or ".." in path or not path.startswith(folders)
            ):
                raise missing("not in the sandbox")

    sys.addaudithook(hook)


def outcome(
    definitions: CodeType, asserts: CodeType, names: dict[str, Any], own_builtins: dict[str, Any]
) -> bytes:
    """Run the program, then the tests; returns the word that says how that ended.

    Between and after them no code of the program's runs that this code calls: an exception may
    have properties, and numbers may have hashes, of its own.
    """
    run, copy, told_by = exec, dict.copy, WORDS.get
    number_of: Any = vars(OSError)["errno"].__get__
    kind, whole = type, int
    failed_assert, exits, no_memory, from_system = AssertionError, SystemExit, MemoryError, OSError
    everything = BaseException
    # `eval` as an object's `__del__` sees the names of the function that gives the object up: this
    globals().clear()

    word, testing = b"exception", False
    try:
        run(definitions, names)
        # the tests have names of their own, which the program's functions do not see
        scope = copy(names)
        scope["__builtins__"] = own_builtins
        testing = True
        run(asserts, scope)
        word = b"passed"
    except failed_assert:
        word = b"wrong answer" if testing else word
    except exits:
        word = b"exited early"
    except no_memory:
        word = b"memory"
    except from_system as error:
        number = number_of(error)
        word = told_by(number, word) if kind(number) is whole else word
    except everything:
        pass
    return word


def judge(definitions: CodeType, asserts: CodeType, job: dict[str, Any], report: int) -> NoReturn:
    """Run the program and the tests, and report how that ended, unless something ends it before."""
    write, leave, join = os.write, os._exit, b"".join
    module = ModuleType("program")
    names = vars(module)
    names["__builtins__"] = builtins
    own_builtins = vars(builtins).copy()
    blind_frames()
    for library in (libc, ctypes.pythonapi):
        vars(library).clear()  # functions that it has looked up are called with no audited event
    for name in [n for n in sys.modules if n.partition(".")[0] in ("ctypes", "_ctypes")]:
        vars(sys.modules.pop(name)).clear()  # its classes are still to be found, as all are
    sys.modules["__main__"] = sys.modules["program"] = module
    sys.path += job["packages"]
    refuse_ways_to_frames(job["readable"])
    # the secret waits on the stack, where no name reaches it, while the call beside it runs
    write(report, join((job.pop("secret"), outcome(definitions, asserts, names, own_builtins))))
    leave(0)


def main() -> None:
    report = int(sys.argv[1])
    with open(0, "rb", closefd=False) as file:
        job: dict[str, Any] = marshal.load(file)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)

    def tell(word: str) -> NoReturn:
        os.write(report, job["secret"] + word.encode())
        os._exit(0)

    try:
        confine(job, os.getcwd())
    except (CannotConfineError, OSError, ValueError) as error:
        tell(f"unconfined: {error}")
    try:
        asserts = compile(job.pop("tests"), "tests", "exec", dont_inherit=True)
        definitions = compile(job.pop("program"), "program", "exec", dont_inherit=True)
    except Exception:  # what can not be compiled gives more than SyntaxError
        tell("syntax error")
    judge(definitions, asserts, job, report)


if len(sys.argv) == 2 and sys.argv[1].isdigit():
    main()
else:
    print(f"{__doc__}\nThis module is no command: `python -m pipelines.suite` uses it.")
    sys.exit("--help" not in sys.argv and 2)
