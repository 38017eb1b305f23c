"""Wrong versions of our code, each a mistake that is easy to make, must each fail a named test.

Public re-implementations of the paper pass all their own tests with the encoder made causal, the
injection removed, or the gradient cut. Here the code and its tests are copied, one piece of text
is replaced, and the test that exists to notice it is run on the copy. The list is in
tests/wrong_versions, one module a room; tests/mutants.py runs the slow ones, too.
"""

import os
import subprocess
import sys

import pytest

from tests.support.bench import ROOT, Bench, noticed
from tests.wrong_versions import wrong_versions

WRONG = [wrong for wrong in wrong_versions() if not wrong.slow]


@pytest.fixture(scope="module")
def bench(tmp_path_factory, warm_python):
    return Bench(tmp_path_factory.mktemp("bench"), warm_python)


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted({wrong.package for wrong in WRONG}))
def test_the_right_version_passes(bench, package):
    tests = sorted({wrong.noticed_by for wrong in WRONG if wrong.package == package})
    result = bench.run(bench.folder, tests)
    assert result.returncode == 0, result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_a_wrong_version_is_noticed(bench, tmp_path, wrong):
    result = bench.run_wrong(wrong, tmp_path / "copy")
    assert noticed(result), result.stdout


def test_the_list_fits_the_code_and_its_tests():
    """Names are distinct, the text to replace is there once, the test that notices it exists."""
    every = wrong_versions()
    assert len({wrong.name for wrong in every}) == len(every) > 100
    for wrong in every:
        file, _, test = wrong.noticed_by.partition("::")
        assert (ROOT / wrong.package / wrong.file).read_text().count(wrong.old) == 1, wrong.name
        assert f"def {test.partition('[')[0]}(" in (ROOT / "tests" / file).read_text(), wrong.name


@pytest.mark.slow
def test_another_ftmodel_than_the_copy_stops_the_tests(tmp_path):
    """The guard itself: with the wrong package imported nothing is run, and the code is not 1."""
    env = os.environ | {"FTMODEL_UNDER_TEST": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "tests/synthetic/test_target_scores.py"]
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert result.returncode == 4, result.stdout
    assert "is imported" in result.stdout + result.stderr
