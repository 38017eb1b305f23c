"""The copy of the code: what it leaves out, and that it is brought up to date."""

import os
import shutil
import subprocess

import pytest

from pipelines.host import source_code
from pipelines.host.errors import UserError
from pipelines.host.source_code import bare, code_version, mirror, stages, stages_reading
from tests import ROOT
from tests.support.mutants import rejects

PLAIN = b"""def area(r):
    return 3 * r * r


class Circle:
    unit = "m"
"""
PROSE = b'''"""Circles."""

# by Archimedes


def area(r):
    """Roughly."""
    return (3 * r
            * r)  # square metres


class Circle:
    """Round."""

    unit = 'm'
'''


def test_comments_docstrings_and_layout_decide_nothing():
    assert bare(PROSE) == bare(PLAIN)
    assert bare(b'def f():\n    """Nothing."""\n') == bare(b"def f():\n    pass\n")


def test_any_other_change_of_the_program_is_one():
    for old, new in ((b"3", b"4"), (b'"m"', b'"cm"'), (b"area", b"volume"), (b"* r *", b"+ r *")):
        assert bare(PLAIN.replace(old, new)) != bare(PLAIN)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of two stages with a file each, and one that both read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(source_code, "ROOT", tmp_path)
    deps = {"train": ["train", "shared.py"], "report": ["report", "shared.py"]}
    lines = ["stages:"]
    for stage, paths in deps.items():
        lines += [f"  {stage}:", "    deps:", "      - data/tokens"]
        lines += [f"      - data/inputs/code/{path}" for path in paths]
    (tmp_path / "dvc.yaml").write_text("\n".join(lines))
    for name in ("train/core.py", "report/page.jinja", "shared.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(PLAIN)
    (tmp_path / "train/__init__.py").write_text("from train import core\nimport shared")
    in_git(tmp_path)
    assert mirror().keys() == {
        *("report/page.jinja", "shared.py", "train/__init__.py", "train/core.py")
    }
    assert mirror() == {}
    return tmp_path


def in_git(folder):
    for command in ("init -q", "add -A"):
        subprocess.run(["git", *command.split()], cwd=folder, check=True)


def test_the_copy_follows_the_code(project):
    target = project / source_code.CODE
    (project / "shared.py").write_bytes(PROSE)
    assert mirror() == {}
    (project / "report/page.jinja").write_bytes(PROSE)  # no Python: prose counts
    assert mirror().keys() == {"report/page.jinja"}
    (project / "train/more").mkdir()
    (project / "train/core.py").rename(project / "train/more/core.py")
    (project / "train/__init__.py").write_text("from train.more import core\nimport shared")
    assert mirror() == {
        "train/__init__.py": "`from train import core` is now `from train.more import core`",
        "train/core.py": "is gone",
        "train/more/core.py": "is new",
    }
    assert not (target / "train/core.py").exists() and (target / "train/more/core.py").exists()


@rejects("source_code.mirror: or «digests.get(name) != pair→False»", "no edit is seen")
def test_what_was_edited_is_parsed_again_and_nothing_else(project, monkeypatch):
    """A file is edited whatever its time says: that of an image may be fixed."""
    parsed = []
    monkeypatch.setattr(source_code, "bare", lambda source: parsed.append(source) or bare(source))
    file, copy = project / "shared.py", project / source_code.CODE / "shared.py"
    time = file.stat().st_mtime_ns
    file.write_bytes(edited := PLAIN.replace(b"3", b"4"))
    os.utime(file, ns=(time, time))
    assert mirror() == {"shared.py": "`return 3 * r * r` is now `return 4 * r * r`"}
    assert mirror() == {}
    assert parsed == [edited] and copy.read_bytes() == bare(edited)
    copy.write_bytes(b"spoiled")
    assert mirror().keys() == {"shared.py"} and copy.read_bytes() == bare(edited)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("a = 1\nb = 2\nc = 3", "a = 1\nc = 4", "`b = 2` is now `c = 4`, and 1 more"),
        ("a = 1", "a = 1\nb = 2\nc = 3", "`b = 2` is new, and 1 more"),
        ("a = 1\nb = 2", "b = 2", "`a = 1` is gone"),
        (f"{'x' * 99}1", f"{'x' * 99}2", f"`…{'x' * 30}1` is now `…{'x' * 30}2`"),
        ("a = 1\n", "a = 1\r\n", "has other ends of lines"),
    ],
)
def test_a_change_is_told_by_its_first_line(old, new, words):
    assert source_code.first_change(old.encode(), new.encode()) == words


LEFT = [  # by vim, Emacs, a patch, Jupyter, macOS, NFS, a file manager, notes, an unused copy
    *(".core.py.swp", "core.py~", "#core.py#", "core.py.orig", ".ipynb_checkpoints/core.py"),
    *("._core.py", ".DS_Store", ".nfs01", "core copy.py", "notes.txt", "core_old.py"),
    *("old/core.py", "__pycache__/core.py"),
]


@rejects("source_code.is_leftover: «any(→False and any(»", "hidden files and backups count")
@pytest.mark.parametrize("git", [True, False])
def test_only_what_python_imports_is_code(project, git):
    if not git:
        shutil.rmtree(project / ".git")
    version = code_version.__wrapped__("train")
    for name in LEFT:
        if git or name != "notes.txt":
            (project / "train" / name).parent.mkdir(exist_ok=True)
            (project / "train" / name).write_bytes(b"\0no Python")
    assert mirror() == {} and code_version.__wrapped__("train") == version
    # a new module counts once the program mentions it, and so do those that it mentions
    (project / "train/first.py").write_text("from train import second")
    (project / "train/second.py").write_text("x = 1")
    assert mirror() == {}
    (project / "shared.py").write_text("import train.first")
    assert mirror().keys() == {"shared.py", "train/first.py", "train/second.py"}
    assert code_version.__wrapped__("train") != version


@rejects('source_code.mentioned: «b"iter_modules" in→b"-" in» init', "a section that is found")
def test_a_package_that_imports_what_it_finds_counts_whole(project):
    (project / "train/__init__.py").write_text("from pkgutil import iter_modules")
    mirror()
    (project / "train/unnamed.py").write_text("x = 1")
    assert mirror() == {"train/unnamed.py": "is new"}


def test_this_project_is_the_same_program_without_git(tmp_path, monkeypatch):
    def program():
        paths = dict.fromkeys(path for paths in stages().values() for path in paths)
        return [name for name, _ in source_code.files(paths)]

    known = program()
    for name in ("ftmodel", "pipelines", "dvc.yaml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(source_code, "ROOT", tmp_path)
    assert program() == known


@pytest.mark.parametrize("spoiled", [b"def broken(:", b"x = 'caf\xe9'", b"\0\5\26\7"])
def test_a_slip_in_an_edit_is_named_by_its_file(project, spoiled):
    (project / "shared.py").write_bytes(spoiled)
    for look in (mirror, lambda: code_version.__wrapped__("train")):
        with pytest.raises(UserError, match=r"^shared\.py.*: this is not Python \([^<>]*\)$"):
            look()


def test_the_stages_that_read_a_file(project):
    assert stages() == {"train": ["train", "shared.py"], "report": ["report", "shared.py"]}
    assert stages_reading(["train/more/core.py"]) == ["train"]
    assert stages_reading(["shared.py"]) == ["train", "report"]
    assert stages_reading(["elsewhere.py", "training/core.py"]) == []
