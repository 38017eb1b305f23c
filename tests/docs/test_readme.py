"""What the README tells a user to type, and the files it names, exist."""

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^    ((?:make|python|dvc) .*?)(?:  +#.*)?$", README, re.MULTILINE)


def test_the_commands_are_found():
    assert {"make repro", "make test", "make ui", "dvc metrics show"} <= set(COMMANDS)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make")])
def test_make_knows_the_target(command):
    done = subprocess.run(f"{command} --dry-run", shell=True, cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", re.findall(r"python -m ([\w.]+)", README))
def test_modules_to_run_exist(module):
    assert find_spec(module)


def test_named_files_exist():
    tree = README.split("## Where things are")[1]
    folder, names = ROOT, []
    for line in tree.splitlines():
        if found := re.match(r"^ {4}(\S+/)? *([\w./]+(?:, [\w./]+)*)?  ", line):
            folder = ROOT / found[1] if found[1] else folder
            names += [folder / name.strip() for name in (found[2] or "").split(",") if name.strip()]
    assert len(names) > 10
    assert [n for n in names if not n.exists() and not (ROOT / n.name).exists()] == []


def test_linked_pictures_exist():
    assert all((ROOT / path).exists() for path in re.findall(r"!\[.*?\]\((.*?)\)", README))
