"""Runs commands. A user's mistake, or a disk that takes no file, ends one with a line and exit code
2; a bug of ours ends in a traceback.
"""

import errno
import getpass
import os
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from io import TextIOWrapper
from select import POLLERR, POLLOUT, poll

# full, a limit, read-only, not ours
UNWRITABLE = (errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.EPERM, errno.EROFS)
# of module files of clusters: they bind PyTorch's threads to cores, those of all stages to the same
BINDING = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND")
# a file in the place of a folder, say
FOREIGN = (errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR)


class UserError(Exception):
    """Something that the user can fix; the message is one line that names it."""


def printable(text: str) -> str:
    """Text of a model, a user or another program, made safe for a terminal or a page: control
    characters, and those that change the direction of text, become replacement characters.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def near_names(name: str, known: Iterable[str], at_most: int = 1) -> list[str]:
    """The known names that a mistyped one is most like, whatever their case; the nearest first."""
    by_lower_case = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower_case, at_most)
    return [by_lower_case[each] for each in near]


def did_you_mean(name: str, known: Iterable[str], at_most: int = 1) -> str:
    """Words that end an error about a name that is not known: "; did you mean kappa_bits?", or ""
    if it is like none of the known ones.
    """
    near = near_names(name, known, at_most)
    return f"; did you mean {', '.join(near)}?" if near else ""


def not_one_of(name: str, known: Iterable[str]) -> str:
    """Says that a name is not known, what is, and which of it may be meant."""
    known = [*known]
    return f"{name!r} is not one of {', '.join(known)}{did_you_mean(name, known)}"


def run(main: Callable[[], None]) -> None:
    """Run an entry point; print a UserError as one line on stderr and exit with code 2."""
    open_closed_streams()
    use_utf8()
    name_user()
    for name in BINDING:
        os.environ.pop(name, None)
    os.environ["MPLBACKEND"] = "agg"  # a notebook names its own; figures are drawn into files
    if not sys.stderr.isatty():  # before other libraries import tqdm
        os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:
        if not stdout_is_closed():
            raise
        raise SystemExit(141) from None  # as a shell says that SIGPIPE ended a command
    except (UserError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in UNWRITABLE + FOREIGN:
            raise
        sys.stdout.flush()
        print(f"error: {' '.join(printable(str(error)).split())}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None


def open_closed_streams() -> None:
    """Open /dev/null for each standard stream that is closed, as after `>&-`; Python has None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # takes the number that is free
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))


def stdout_is_closed() -> bool:
    """Whether nobody reads stdout any more, as after `| head`; if so, drops what is left for it."""
    stdout = poll()
    stdout.register(sys.stdout.fileno(), POLLOUT)
    closed = any(event & POLLERR for _, event in stdout.poll(0))
    if closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return closed


def name_user() -> None:
    """Set USER to the user's number if the user has no name, as in containers: DVC needs one."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = f"uid{os.getuid()}"


def use_utf8() -> None:
    """Write UTF-8 and read arguments as UTF-8, whatever the locale; child processes do so, too."""
    os.environ["PYTHONUTF8"] = "1"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if sys.getfilesystemencoding() != "utf-8":
        sys.argv = [os.fsencode(word).decode(errors="surrogateescape") for word in sys.argv]
