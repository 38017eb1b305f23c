"""Wrong versions of our code, each a mistake that is easy to make, must each fail a named test.

Public re-implementations of the paper pass all their own tests with the encoder made causal, the
injection removed, or the gradient cut. Here a package and its tests are copied, one piece of text
is replaced, and the test that exists to notice it is run on the copy. The list is in
tests/wrong_versions, one module a room.
"""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.wrong_versions import wrong_versions

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

WRONG = wrong_versions()


def copy_tree(source, target):
    """A copy whose files are links: to alter one, put another in its place."""
    shutil.copytree(source, target, copy_function=os.link, dirs_exist_ok=True)


class Bench:
    """A package and the tests, copied once, to run tests on copies of these."""

    def __init__(self, package, folder, python):
        self.package, self.folder, self.python = package, folder, python
        skip = shutil.ignore_patterns("__pycache__")
        copied = ["ftmodel", "tests"]
        if package == "pipelines":
            copied += ["pipelines", "hydra_plugins", "conf", "tasks"]
            shutil.copy(ROOT / "dvc.yaml", folder)
        for name in copied:
            shutil.copytree(ROOT / name, folder / name, ignore=skip)
        (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    cluster\n")

    def run(self, folder, tests):
        """Run tests (file::function) in a folder, whose own pytest.ini comes before this
        checkout's; tests/conftest.py checks that no other package is imported.
        """
        environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        environment |= {"PYTHONPATH": str(folder), "FTMODEL_UNDER_TEST": str(folder / "ftmodel")}
        options = ["-q", "--tb=short", "-p", "no:cacheprovider", *(f"tests/{t}" for t in tests)]
        command = [self.python, "-m", "pytest", *options]
        return subprocess.run(command, cwd=folder, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip

    def run_wrong(self, wrong, folder):
        """Run the test that should notice it on a copy altered as ``wrong`` says."""
        copy_tree(self.folder, folder)
        source = folder / self.package / wrong.file
        text = source.read_text()
        assert text.count(wrong.old) == 1, f"{wrong.file} no longer has once: {wrong.old}"
        source.unlink()
        source.write_text(text.replace(wrong.old, wrong.new))
        return self.run(folder, [wrong.noticed_by])


@pytest.fixture(scope="module")
def bench(tmp_path_factory, warm_python):
    """Benches by package, each made when it is first asked for."""
    return cache(lambda package: Bench(package, tmp_path_factory.mktemp(package), warm_python))


@pytest.mark.parametrize("package", ["ftmodel", "pipelines"])
def test_the_right_version_passes(bench, package):
    tests = sorted({w.noticed_by for w in WRONG if w.package == package})
    here = bench(package)
    result = here.run(here.folder, tests)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: w.name)
def test_a_wrong_version_is_noticed(bench, tmp_path, wrong):
    """By a failed assertion: exit code 1, and no exception but AssertionError."""
    result = bench(wrong.package).run_wrong(wrong, tmp_path / "copy")
    assert result.returncode == 1, result.stdout
    raised = re.findall(r"^E   (\S+)", result.stdout, re.MULTILINE)
    errors = {word for word in raised if re.fullmatch(r"(\w+\.)*\w*(Error|Exception):?", word)}
    assert errors <= {"AssertionError:"}, result.stdout


def test_another_ftmodel_than_the_copy_stops_the_tests(tmp_path):
    """The guard itself: with the wrong package imported nothing is run, and the code is not 1."""
    env = os.environ | {"FTMODEL_UNDER_TEST": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "tests/synthetic/test_target_scores.py"]
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert result.returncode == 4, result.stdout
    assert "is imported" in result.stdout + result.stderr
