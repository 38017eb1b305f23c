"""The copy of the code: what it leaves out, and that it is brought up to date."""

import os

import pytest

from pipelines.host import source_code
from pipelines.host.source_code import bare, mirror, stages, stages_reading

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
    return tmp_path


def test_the_copy_follows_the_code(project):
    target = project / "data/inputs/code"
    assert mirror(target) == ["report/page.jinja", "shared.py", "train/core.py"]
    assert mirror(target) == []
    (project / "shared.py").write_bytes(PROSE)
    assert mirror(target) == []
    (project / "report/page.jinja").write_bytes(PROSE)  # no Python: prose counts
    assert mirror(target) == ["report/page.jinja"]
    (project / "train/more").mkdir()
    (project / "train/core.py").rename(project / "train/more/core.py")
    assert mirror(target) == ["train/core.py", "train/more/core.py"]
    assert not (target / "train/core.py").exists() and (target / "train/more/core.py").exists()


def test_what_was_edited_is_parsed_again_and_nothing_else(project, monkeypatch):
    """A file that was put back with an older time was edited, too."""
    target, parsed = project / "copy", []
    mirror(target)
    monkeypatch.setattr(source_code, "bare", lambda source: parsed.append(source) or source)
    assert mirror(target) == [] == parsed
    (project / "shared.py").write_bytes(changed := PLAIN.replace(b"3", b"4"))
    os.utime(project / "shared.py", ns=(1, 1))
    assert mirror(target) == ["shared.py"]
    assert parsed == [changed] and (target / "shared.py").read_bytes() == changed


def test_the_stages_that_read_a_file(project):
    assert stages() == {"train": ["train", "shared.py"], "report": ["report", "shared.py"]}
    assert stages_reading(["train/more/core.py"]) == ["train"]
    assert stages_reading(["shared.py"]) == ["train", "report"]
    assert stages_reading(["elsewhere.py", "training/core.py"]) == []
