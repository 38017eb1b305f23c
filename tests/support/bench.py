"""A bench for altered code: copies of the project in which tests run, each in a forked process."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from compileall import compile_dir
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from tests import ROOT
from tests.support.warm_python import WarmPython

RECENT_COMMITS = 50


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, text=True, capture_output=True).stdout


def head_and_base() -> tuple[str, str]:
    """The newest commit, and the one before the recent ones."""
    head, *_, base = git("rev-list", f"--max-count={RECENT_COMMITS + 1}", "HEAD").split()
    return head, base


class Bench:
    """The project as it is in the working tree, and copies of it that differ in one file."""

    def __init__(self, folder: Path, end: ExitStack) -> None:
        self.folder, self.end = folder, end
        self.right = folder / "right"
        self.numbers = count()
        for name in git("ls-files", "-co", "--exclude-standard").splitlines():
            if (ROOT / name).is_file():
                (self.right / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.right / name)
        compile_dir(self.right, quiet=2)  # once for all copies

    @cached_property
    def python(self) -> Path:
        """It has imported the libraries, which takes seconds: only where copies are run."""
        return self.end.enter_context(closing(WarmPython())).command

    def run(
        self, folder: Path, *arguments: str, python: Path | str = "", timeout: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`python -m …` in a copy; raises subprocess.TimeoutExpired."""
        # with the worker's name in it, the fixtures of workspace.py would share their projects
        # with the tests of other copies
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        return subprocess.run(
            [python or self.python, "-m", *arguments],
            cwd=folder,
            env=kept | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(folder)},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
        )

    def pytest(
        self, folder: Path, *arguments: str, timeout: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        options = ["-q", "--tb=short", "-p", "no:cacheprovider"]
        return self.run(folder, "pytest", *options, *arguments, timeout=timeout)

    def pytest_on(
        self, path: str, text: str, *arguments: str, timeout: float | None = None
    ) -> tuple[subprocess.CompletedProcess[str] | None, float]:
        """What tests say of a copy whose file ``path`` is ``text``, None if they do not end within
        ``timeout`` seconds; and the seconds they took.
        """
        start = time.monotonic()
        folder = self.folder / str(next(self.numbers))
        # but what tests that run there, too, are about to write
        leave_out = shutil.ignore_patterns("*.pyc.*", ".hypothesis")
        shutil.copytree(self.right, folder, copy_function=os.link, ignore=leave_out)
        try:
            (folder / path).unlink()  # a link to the right version
            (folder / path).write_text(text, encoding="utf-8")
            result = self.pytest(folder, *arguments, timeout=timeout)
        except subprocess.TimeoutExpired:
            result = None
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return result, time.monotonic() - start


@contextmanager
def bench() -> Iterator[Bench]:
    with TemporaryDirectory() as folder, ExitStack() as end:
        yield Bench(Path(folder), end)
