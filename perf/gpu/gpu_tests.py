"""The tests marked `gpu`: on a GPU our model gives what it gives on a CPU."""

import os
from contextlib import chdir, redirect_stdout
from io import StringIO

import pytest

from perf.measure import Figure, figure
from pipelines.host.files import ROOT

DEVICE = "GPU_TESTS_ON"  # what tests/conftest.py reads: a device that stands in for the GPU


class Outcomes:
    """A pytest plugin that collects outcomes."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.others: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.others.add(f"{report.nodeid} {report.outcome}")
        elif report.when == "call":
            self.passed.add(report.nodeid)


def measure(turns: int, quick: bool, device: str) -> list[Figure]:
    os.environ[DEVICE] = device
    outcomes, said = Outcomes(), StringIO()
    tests = ROOT.glob("tests/**/test_*.py")
    files = [str(p) for p in tests if "mark.gpu" in p.read_text(encoding="utf-8")]
    options = ["-q", "-m", "gpu", "-p", "no:cacheprovider", "--tb=short"]
    with chdir(ROOT), redirect_stdout(said):
        code = pytest.main([*options, *files], plugins=[outcomes])
    if code or outcomes.others or not outcomes.passed:
        lines = said.getvalue().splitlines()[-40:]
        words = ", ".join(sorted(outcomes.others)) or f"pytest ended with {code!r}"
        raise AssertionError("\n".join([*lines, words]))
    passed = len(outcomes.passed)
    return [figure("tests passed", [passed], "tests", at_least=passed)]
