"""Tracks the code that decides what a stage makes: entries under CODE in its dvc.yaml ``deps``.

CODE holds a copy of the program without comments, docstrings and layout, which decide nothing. So
DVC runs a stage again, and unfinished work starts over, only if the syntax tree changes.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from functools import cache
from hashlib import sha256
from pathlib import Path

import yaml

from pipelines.host.errors import UserError
from pipelines.host.files import ROOT, write_file

CODE = Path("data/inputs/code")
DIGESTS = Path(".dvc/tmp/code.json")  # of each file and its copy, as the copy was made
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
BACKUP_ENDS = ("~", "#", ".bak", ".orig", ".rej")
IMPORTED_BY_PACKAGE = ("__init__", "__main__")
MAX_SHOWN_CHARACTERS = 60  # of a line that has changed


def bare(source: bytes) -> bytes:
    """A Python program without comments, docstrings and layout; raises SyntaxError."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body[:1] = (
                [] if len(node.body) > 1 or isinstance(node, ast.Module) else [ast.Pass()]
            )
    return ast.unparse(tree).encode() + b"\n"


def content(name: str, source: bytes) -> bytes:
    """What counts in a file of code: a module without its prose, any other file as it is."""
    if not name.endswith(".py"):
        return source
    try:
        return bare(source)
    except (SyntaxError, ValueError) as error:  # ValueError: Python 3.11.3 at a null byte
        line = getattr(error, "lineno", None)
        place = f"{name}, line {line}" if line else name
        reason = getattr(error, "msg", error)  # without its "<unknown>"
        raise UserError(f"{place}: this is not Python ({reason})") from None


def files(paths: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """The program's files at and below paths of the project's folder, by name, in order.

    They are the files that git tracks, and modules that the rest of the program mentions. Hidden
    files and backups never count: editors, notebooks and systems leave them.
    """
    found = {}
    for path in paths:
        start = ROOT / path
        for file in sorted(start.rglob("*")) if start.is_dir() else [start]:
            name = file.relative_to(ROOT)
            if file.is_file() and not is_leftover(name):
                found[name.as_posix()] = file
    try:
        asked = ["git", "ls-files", "-z"]
        listed = subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).stdout
    except FileNotFoundError:
        listed = b""
    program = {*listed.decode(errors="surrogateescape").split("\0")} & found.keys()
    if not program:  # outside git every module has to be mentioned, or belong to its package
        program = {n for n in found if not n.endswith(".py") or Path(n).stem in IMPORTED_BY_PACKAGE}
    modules = {name for name in found.keys() - program if name.endswith(".py")}
    if modules:
        program |= mentioned(modules)
    yield from ((name, file) for name, file in found.items() if name in program)


def is_leftover(name: Path) -> bool:
    """Whether a file, or a folder above it, is hidden, a backup or a cache."""
    return any(
        part.startswith((".", "#")) or part.endswith(BACKUP_ENDS) or part == "__pycache__"
        for part in name.parts
    )


def mentioned(modules: set[str]) -> set[str]:
    """Those of ``modules`` that the rest of the program may import.

    Code that imports a module has each part of its name. So somebody's copy of a module counts only
    if all these parts are words of other modules, params.yaml or dvc.yaml, or if its package
    imports whatever it finds.
    """
    tops = {Path(path).parts[0] for paths in stages().values() for path in paths}
    others = [ROOT / name for name in (*tops, "params.yaml", "dvc.yaml")]
    others += (file for top in (*tops, "tasks") for file in (ROOT / top).rglob("*.py"))
    unread = [
        file
        for file in others
        if file.is_file()
        and not is_leftover(place := file.relative_to(ROOT))
        and place.as_posix() not in modules
    ]
    words: set[bytes] = set()
    program: set[str] = set()
    while unread:
        for file in unread:
            words.update(re.findall(rb"\w+", file.read_bytes()))
        unread = []
        for name in modules - program:
            *package, module = Path(name).with_suffix("").parts
            parts = package if module in IMPORTED_BY_PACKAGE else [*package, module]
            init = (ROOT / name).with_name("__init__.py")
            if {part.encode() for part in parts} <= words or (
                init.is_file() and b"iter_modules" in init.read_bytes()
            ):
                program.add(name)
                unread.append(ROOT / name)  # it may import others
    return program


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
    """Hash of the code that decides what a stage makes of its inputs. Raises UserError."""
    digest = sha256()
    for name, file in files(stages()[stage]):
        digest.update(repr((name, content(name, file.read_bytes()))).encode())
    return digest.hexdigest()


def mirror(target: Path = CODE) -> dict[str, str]:
    """Bring the copy up to date; returns what changed, in words, by the file's name.

    Parsing all code takes seconds. So a file that has the same content as at the last call is not
    parsed again: its time may be the same after an edit. Raises UserError.
    """
    try:
        digests = json.loads(DIGESTS.read_bytes())
    except (FileNotFoundError, ValueError):
        digests = {}
    maker = sys.version.encode() + Path(__file__).read_bytes()
    sources = dict(files(dict.fromkeys(path for paths in stages().values() for path in paths)))
    changes = {}
    for old in [path for path in target.rglob("*") if path.is_file()]:
        place = old.relative_to(target)
        if place.as_posix() not in sources:
            old.unlink()
            if not is_leftover(place):
                changes[place.as_posix()] = "is gone"
    made = {}
    for name, file in sources.items():
        source, copy = file.read_bytes(), target / name
        before = copy.read_bytes() if copy.exists() else None
        pair = [sha256(maker + source).hexdigest(), sha256(before or b"").hexdigest()]
        if before is None or digests.get(name) != pair:
            after = content(name, source)
            pair[1] = sha256(after).hexdigest()
            if before is None:
                changes[name] = "is new"
            elif before != after:
                changes[name] = first_change(before, after)
            if before != after:
                copy.parent.mkdir(parents=True, exist_ok=True)
                write_file(copy, after)
        made[name] = pair
    if made != digests:
        DIGESTS.parent.mkdir(parents=True, exist_ok=True)
        write_file(DIGESTS, json.dumps(made))
    return dict(sorted(changes.items()))


def first_change(before: bytes, after: bytes) -> str:
    """The first line that differs, and how many others do, in words."""
    old, new = (text.decode(errors="replace").splitlines() for text in (before, after))
    blocks = [
        (old[start:end], new[first:last])
        for tag, start, end, first, last in SequenceMatcher(None, old, new).get_opcodes()
        if tag != "equal"
    ]
    if not blocks:
        return "has other ends of lines"
    was, now = (lines[0].strip() if lines else "" for lines in blocks[0])
    if was and now:
        pairs = zip(was, now, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(was), len(now)))
        start = max(0, same - MAX_SHOWN_CHARACTERS // 2)
        words = f"`{shown(was, start)}` is now `{shown(now, start)}`"
    else:
        words = f"`{shown(was or now)}` is {'gone' if was else 'new'}"
    more = sum(max(len(was), len(now)) for was, now in blocks) - 1
    return f"{words}, and {more} more" if more else words


def shown(line: str, start: int = 0) -> str:
    end = start + MAX_SHOWN_CHARACTERS
    return ("…" if start else "") + line[start:end] + ("…" if line[end:] else "")


def stages_reading(names: Iterable[str]) -> list[str]:
    """The stages of dvc.yaml that depend on any of the named files of code."""
    paths = [Path(name) for name in names]
    return [
        stage
        for stage, deps in stages().items()
        if any(path.is_relative_to(dep) for path in paths for dep in deps)
    ]
