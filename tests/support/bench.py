"""Copies of the code and its tests, to run tests on versions that are wrong on purpose."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.support.project_copy import PARTS

ROOT = Path(__file__).parents[2]
COPIED = (*PARTS, ".gitignore", "params.yaml", "benchmarks", "constraints.txt", "tests")


def copy_tree(source, target):
    """A copy whose files are links: to alter one, put another in its place."""
    shutil.copytree(source, target, copy_function=os.link, dirs_exist_ok=True)


class Bench:
    """The code and its tests, copied once, to run tests on copies of these."""

    def __init__(self, folder, python):
        self.folder, self.python = folder, python
        for name in COPIED:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                skip = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, folder / name, ignore=skip)
            else:
                shutil.copy(ROOT / name, folder / name)
        (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    cluster\n")

    def run(self, folder, tests):
        """Run tests (file::function) in a folder, whose own pytest.ini comes before this
        checkout's; tests/conftest.py checks that no other package is imported.
        """
        # with the worker's name in it, the fixtures of workspace.py would share their projects
        # with the tests of other copies, and of earlier checkouts on the same machine
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        environment |= {"PYTHONPATH": str(folder), "FTMODEL_UNDER_TEST": str(folder / "ftmodel")}
        options = ["-q", "--tb=short", "-p", "no:cacheprovider", *(f"tests/{t}" for t in tests)]
        command = [self.python, "-m", "pytest", *options]
        return subprocess.run(command, cwd=folder, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip

    def run_wrong(self, wrong, folder):
        """Run the test that should notice it on a copy altered as ``wrong`` says."""
        copy_tree(self.folder, folder)
        source = folder / wrong.package / wrong.file
        text = source.read_text()
        assert text.count(wrong.old) == 1, f"{wrong.file} no longer has once: {wrong.old}"
        source.unlink()
        source.write_text(text.replace(wrong.old, wrong.new))
        return self.run(folder, [wrong.noticed_by])


def noticed(result):
    """Whether tests failed, and by an assertion: exit code 1, no exception but AssertionError."""
    raised = re.findall(r"^E   (\S+)", result.stdout, re.MULTILINE)
    errors = {word for word in raised if re.fullmatch(r"(\w+\.)*\w*(Error|Exception):?", word)}
    return result.returncode == 1 and errors <= {"AssertionError:"}
