"""What is installed: the library alone from a wheel, and by extras what `pipelines` imports."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
import venv
from functools import partial
from importlib.metadata import distribution, packages_distributions
from math import isfinite
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from types import SimpleNamespace
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from pipelines import export
from pipelines.common.file_listing import canonical
from pipelines.host import command_line
from pipelines.host.errors import UserError
from tests import ROOT
from tests.support.commands import call
from tests.support.mutants import rejects
from tests.support.requirements import EXTRAS, PROJECT, closure

LIBRARY = {"torch", "numpy", "scipy"}
OURS = {"ftmodel", "hydra_plugins", "perf", "pipelines", "tests"}
PIPELINE = ("lab", "cluster", "suite", "export", "plots")
HOMES = {  # files that may need an extra to be imported
    "cluster": ("cluster/connection.py", "sweep/", "train/distributed.py"),
    "suite": ("suite/",),
    "export": ("export/",),
    "plots": ("commands/plots.py",),
}
TOOLS = {  # for development, and imported by nothing of ours
    "accelerate",
    *("check-jsonschema", "mypy", "pre-commit", "pytest-xdist", "ruff", "setuptools"),
    *("mkdocs-material", "setuptools-scm", "types-pyyaml", "types-tqdm"),
}


def declared(requirements):
    return {canonical(Requirement(each).name) for each in requirements} - {"free-transformer-lab"}


def of_extras(*names):
    return set().union(*(declared(EXTRAS[name]) for name in names))


def imported(path, on_import=False):
    """Names of the packages of others that a file imports, or that importing it imports."""
    tree = ast.parse(path.read_text())
    for node in tree.body if on_import else ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module]
        yield from {name.partition(".")[0] for name in names} - OURS - sys.stdlib_module_names


@pytest.fixture(scope="module")
def distributions():
    """The distributions, by a name of a package that they install."""
    return {name: {*map(canonical, found)} for name, found in packages_distributions().items()}


@pytest.fixture
def needs(distributions):
    """Distributions that the files of folders import."""

    def of(*folders):
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
        names = {name for path in paths for name in imported(path)}
        return [distributions[name] for name in names]

    return of


@rejects("analysis.differences: linregress«→\nimport pandas» from", "the library imports pandas")
def test_the_library_needs_pytorch_numpy_and_scipy(needs):
    assert declared(PROJECT["dependencies"]) == LIBRARY
    assert all(found & LIBRARY for found in needs("ftmodel"))


def test_what_the_pipeline_imports_is_declared_and_the_rest_is_not(needs):
    found, extras = needs("pipelines", "hydra_plugins", "tasks"), of_extras(*PIPELINE)
    assert [names for names in found if not names & (extras | LIBRARY)] == []
    assert extras - set().union(*found) == {"zstandard"}  # `datasets` does
    found, extras = needs("tests", "perf"), of_extras("dev")
    everything = extras | of_extras(*PIPELINE) | LIBRARY
    assert [names for names in found if not names & everything] == []
    assert extras - set().union(*found) == TOOLS
    (ours,) = (Requirement(each) for each in EXTRAS["dev"] if "free-transformer-lab" in each)
    assert ours.extras == {*PIPELINE, "s3"}


def test_what_needs_an_extra_is_imported_where_that_extra_is_used(distributions):
    named = {}
    for extra, homes in HOMES.items():
        for path in (ROOT / "pipelines").rglob("*.py"):
            for name in imported(path):
                if distributions[name] & of_extras(extra):
                    named[name] = extra
                    home = path.relative_to(ROOT / "pipelines").as_posix().startswith(homes)
                    assert home or name not in imported(path, on_import=True), path
    assert named == command_line.EXTRAS and {*named.values()} == {*HOMES}


def test_a_missing_extra_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gguf", None)
    for module in ("build", "llama_cpp"):  # which another test may have imported
        monkeypatch.delitem(sys.modules, f"pipelines.export.{module}", raising=False)
        monkeypatch.delattr(export, module, raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception) as caught:
        call("export", "a", "--to", "gguf")
    assert caught.type is UserError
    assert re.match(r"gguf is not installed: .*'\.\[export\]'", str(caught.value))


LOOP = re.findall(r"```python\n(.*?)```", (ROOT / "docs/library.md").read_text(), re.DOTALL)[0]
LOOP = LOOP.replace("backward()", "backward()  # type: ignore[no-untyped-call]")  # PyTorch's


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    """An environment with the wheel and what that needs, made without a network; and the loop."""
    folder = tmp_path_factory.mktemp("user")
    source, python = folder / "source", folder / "venv/bin/python"
    for name in ("ftmodel", "pipelines", "hydra_plugins"):
        copytree(ROOT / name, source / name, ignore=ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        copy(ROOT / name, source)
    venv.create(folder / "venv", with_pip=False)
    settings = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    pip = partial(subprocess.run, check=True, env=settings)
    command, alone = [sys.executable, "-m", "pip", "--quiet"], ["--no-deps", "--no-index"]
    pip([*command, "wheel", *alone, "--no-build-isolation", f"--wheel-dir={folder}", source])
    (wheel,) = folder.glob("*.whl")
    pip([*command, f"--python={python}", "install", *alone, wheel])
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder / "venv")}))
    for name in closure([*LIBRARY]):
        installed = distribution(name)
        for top in {path.parts[0] for path in installed.files if path.suffix != ".pth"} - {".."}:
            if not (packages / top).exists():
                (packages / top).symlink_to(installed.locate_file(top))
    (folder / "loop.py").write_text(LOOP)
    return SimpleNamespace(folder=folder, python=python, wheel=wheel)


@pytest.mark.slow
def test_a_wheel_has_the_library_and_what_says_that_the_rest_needs_a_checkout(user):
    names = [name for name in ZipFile(user.wheel).namelist() if ".dist-info/" not in name]
    assert {name.partition("/")[0] for name in names} == {"ftmodel", "pipelines"}
    assert all(name.count("/") == 1 for name in names if name.startswith("pipelines/"))
    modules = {
        f"ftmodel/{path.relative_to(ROOT / 'ftmodel')}" for path in ROOT.glob("ftmodel/**/*.py")
    }
    assert modules < {*names}


@pytest.mark.slow
def test_the_wheel_trains_in_an_environment_with_nothing_else(user):
    command = [user.python, "-I", "loop.py"]
    printed = subprocess.check_output(command, cwd=user.folder, text=True).splitlines()
    losses = [float(line.split()[3].strip(",")) for line in printed]
    assert len({*losses}) == 10 and all(map(isfinite, losses))


@pytest.mark.slow
def test_mypy_strict_sees_the_librarys_types(user):
    """It passes the loop, and sees a mistake in it: the types are not Any."""
    wrong = LOOP.replace("(config, V)", "(config, str(V))")
    (user.folder / "wrong.py").write_text(wrong)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", user.python]
    done = subprocess.run(
        [*command, "loop.py", "wrong.py"], cwd=user.folder, capture_output=True, text=True
    )
    error, _ = done.stdout.splitlines()  # and how many there are
    assert error.startswith("wrong.py:") and "Argument 2" in error


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["python", "-m", "pipelines.cli", "compose"], ["ftlab", "train"]]
)
def test_a_command_outside_a_checkout_is_refused_in_one_line(user, command, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    command = [user.python.with_name(command[0]), *command[1:]]
    done = subprocess.run(command, cwd=user.folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: `pipelines` works in a checkout of the project alone: ")
