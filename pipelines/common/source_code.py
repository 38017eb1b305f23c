"""Which code decides what a stage makes: the entries of its ``deps`` in dvc.yaml under CODE.

What stands there is a copy of the program without comments, docstrings and layout, which decide
nothing: DVC runs a stage again, and work is begun anew, only where the syntax tree is another one.
"""

import ast
import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import yaml

from pipelines.common.atomic_files import ROOT, replace_file

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
    """What a file of code says: a module without its prose, any other file as it is."""
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
    written = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    prefix = f"{CODE.as_posix()}/"
    return {
        name: [
            dep.removeprefix(prefix)
            for dep in stage.get("do", stage).get("deps", [])
            if dep.startswith(prefix)
        ]
        for name, stage in written.items()
    }


def hash_of(paths: Iterable[str]) -> str:
    """Hash of all code at and below ``paths``."""
    digest = sha256()
    for name, file in files(paths):
        digest.update(repr((name, content(file))).encode())
    return digest.hexdigest()


@cache  # what is edited while a stage is under way is not what it runs
def code_version(stage: str) -> str:
    """Hash of the code that decides what a stage makes of its inputs."""
    return hash_of(stages()[stage])


def mirror(target: Path = CODE) -> list[str]:
    """Bring the copy up to date; returns the names of the files that changed."""
    paths = dict.fromkeys(path for each in stages().values() for path in each)
    wanted = {name: content(file) for name, file in files(paths)}
    changed = []
    for old in [path for path in target.rglob("*") if path.is_file()]:
        if (name := old.relative_to(target).as_posix()) not in wanted:
            old.unlink()
            changed.append(name)
    for folder in sorted((p for p in target.rglob("*") if p.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            shutil.rmtree(folder)
    for name, text in wanted.items():
        path = target / name
        if not path.exists() or path.read_bytes() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as file:
                file.write(text)
            changed.append(name)
    return changed
