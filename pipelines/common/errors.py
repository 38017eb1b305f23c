"""A user's mistake, or a disk that takes no file, ends in one line and exit code 2; a bug of ours
ends in a traceback.
"""

import sys
from collections.abc import Callable
from errno import EACCES, EDQUOT, EFBIG, ENOSPC, EPERM, EROFS

UNWRITABLE = (EACCES, EDQUOT, EFBIG, ENOSPC, EPERM, EROFS)  # full, a limit, read-only, not ours


class UserError(Exception):
    """Something for the user to mend; the message is one line that names it."""


def run(main: Callable[[], None]) -> None:
    """Run an entry point; print a UserError as one line on stderr and exit with code 2."""
    try:
        main()
    except (UserError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in UNWRITABLE:
            raise
        sys.stdout.flush()
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None


def no_command(description: str | None, used_by: str) -> None:
    """What a module that looks like a command says if it is run; ``used_by``: the command's."""

    def say() -> None:
        if "--help" not in sys.argv:
            raise UserError(f"this module is no command: `python -m {used_by}` uses it")
        print(f"{description}\nThis module is no command: `python -m {used_by}` uses it.")

    run(say)
