"""Tracks the code that decides what a stage makes: entries under CODE in its dvc.yaml ``deps``.

CODE holds a copy of the program without comments, docstrings and layout, which decide nothing. So
DVC runs a stage again, and unfinished work starts over, only if the syntax tree changes.
"""

import ast
import os
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import yaml

from pipelines.host.files import ROOT, write_file

CODE = Path("data/inputs/code")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def bare(source: bytes) -> bytes:
    """A Python program without comments, docstrings and layout; raises SyntaxError."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body[:1] = (
                [] if len(node.body) > 1 or isinstance(node, ast.Module) else [ast.Pass()]
            )
    return ast.unparse(tree).encode() + b"\n"


def content(path: Path) -> bytes:
    """What counts in a file of code: a module without its prose, any other file as it is."""
    source = path.read_bytes()
    return bare(source) if path.suffix == ".py" else source


def files(paths: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """The files at and below paths of the project's folder, by name, in order."""
    for path in paths:
        start = ROOT / path
        for file in sorted(start.rglob("*")) if start.is_dir() else [start]:
            if file.is_file() and "__pycache__" not in file.parts:
                yield file.relative_to(ROOT).as_posix(), file


def stages() -> dict[str, list[str]]:
    """The files and folders of code that each stage of dvc.yaml depends on."""
    written = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    prefix = f"{CODE.as_posix()}/"
    return {
        name: [
            dep.removeprefix(prefix)
            for dep in stage.get("do", stage).get("deps", [])
            if dep.startswith(prefix)
        ]
        for name, stage in written.items()
    }


@cache  # what is edited while a stage is under way is not what it runs
def code_version(stage: str) -> str:
    """Hash of the code that decides what a stage makes of its inputs."""
    digest = sha256()
    for name, file in files(stages()[stage]):
        digest.update(repr((name, content(file))).encode())
    return digest.hexdigest()


def mirror(target: Path = CODE) -> list[str]:
    """Bring the copy up to date; returns the names of the files that changed."""
    sources = dict(files(dict.fromkeys(path for paths in stages().values() for path in paths)))
    changed = []
    for old in [path for path in target.rglob("*") if path.is_file()]:
        if (name := old.relative_to(target).as_posix()) not in sources:
            old.unlink()
            changed.append(name)
    for name, source in sources.items():
        if copy_file(source, target / name):
            changed.append(name)
    return sorted(changed)


def copy_file(source: Path, copy: Path) -> bool:
    """Write what counts in ``source`` to ``copy``; returns whether the copy changed.

    A copy gets its source's modification time, so a file that was not edited is not parsed again.
    """
    changed_at = source.stat().st_mtime_ns
    if copy.exists():
        state = copy.stat()
        written_by_this_code = state.st_ctime_ns > Path(__file__).stat().st_mtime_ns
        if state.st_mtime_ns == changed_at and written_by_this_code:
            return False
    text = content(source)
    changed = not copy.exists() or copy.read_bytes() != text
    if changed:
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_file(copy, text)
    os.utime(copy, ns=(changed_at, changed_at))
    return changed


def stages_reading(names: Iterable[str]) -> list[str]:
    """The stages of dvc.yaml that depend on any of the named files of code."""
    paths = [Path(name) for name in names]
    return [
        stage
        for stage, deps in stages().items()
        if any(path.is_relative_to(dep) for path in paths for dep in deps)
    ]
