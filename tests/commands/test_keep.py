"""What is kept of a report stands alone, and says what made it."""

import json
import re
import shlex
import shutil
import socket
from contextlib import chdir, suppress
from pathlib import Path

import pytest

from pipelines.config.compose import compose_config, write_params
from pipelines.export import keep
from pipelines.host.errors import UserError
from tests import ROOT
from tests.support import settings
from tests.support.commands import call
from tests.support.mutants import rejects
from tests.support.results import change, make_report, run, write_experiment

RUNS = {"base": run(), "free": run(kappa=0.125)}
EXPECTED = {
    "arm": "free", "than": "base", "bound": "equivalent", "because": None, "smallest_effect": 0.01
}  # fmt: skip


def change_manifest(folder, name, **changes):
    content = json.loads((folder / "results/tiny" / name / "details.json").read_text())
    change(folder, name, "details.json", manifest=content["manifest"] | changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A project with a finished report; tests must not change it."""
    folder = write_experiment(tmp_path_factory.mktemp("finished"), RUNS, {})
    for name in RUNS:
        change_manifest(folder, name, git_revision="abc123", device="A Processor, 2 threads")
    with chdir(folder):
        settings.change("question", "Does z help?")
        settings.change("expectation", [EXPECTED])
    make_report(folder)
    return folder


@pytest.fixture
def project(finished, tmp_path, monkeypatch):
    """Its copy, where the command is typed."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_figure_4_and_its_origin_are_kept_and_name_no_place_outside(project, finished):
    keep.main("docs/figure4")
    folder, report = project / "docs/figure4", project / "report/tiny"
    assert {path.name for path in folder.iterdir()} == {"figure4.png", "README.md"}
    assert (folder / "figure4.png").read_bytes() == (report / "figures/figure4.png").read_bytes()
    text = (folder / "README.md").read_text()
    assert "make repro EXPERIMENT=tiny" in text
    assert ": abc123\n" in text and ": A Processor, 2 threads\n" in text
    assert ": 0:00:08 " in text  # 65 / 32.5 + 1 + 1 s in each of two runs
    assert "| free | 0 | 6,500 | 0:00:04 |" in text
    assert "](figure4.png)" in text and "](../report.md#" in text
    page = (report / "index.html").read_text()
    # a link may lead to a paper; nothing is loaded from anywhere
    assert not re.search(r"(?<!href=\")https?:|file:|url\(|@import|src=\"(?!data:)", page)
    for content in (page, text):
        assert not any(str(place) in content for place in (project, finished, ROOT, Path.home()))
        written = re.sub(r"base64,[\w+/=]+", "", content)  # a picture may have the letters, too
        assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", written)
    (folder / "note.md").write_text("mine")
    (folder / "figure4.png").write_text("old")
    change_manifest(project, "base", git_revision="")
    keep.main("docs/figure4")
    assert {path.name for path in folder.iterdir()} == {"figure4.png", "README.md", "note.md"}
    assert (folder / "figure4.png").read_bytes() == (report / "figures/figure4.png").read_bytes()
    assert "not recorded (base); abc123 (free)" in (folder / "README.md").read_text()


def test_sections_are_kept_with_question_expectations_and_pictures(project):
    call("keep", "docs/kept", "--section", "curves", "--section", "bounds")
    folder, report = project / "docs/kept", project / "report/tiny"
    assert {path.name for path in folder.iterdir()} == {"curves_target.png", "README.md"}
    picture = (report / "figures/curves_target.png").read_bytes()
    assert (folder / "curves_target.png").read_bytes() == picture
    text, page = (folder / "README.md").read_text(), (report / "report.md").read_text()
    assert "](curves_target.png)" in text and "figures/" not in text
    assert "](../measurement/filtering_bound.md)" in text
    begin = text[: text.index("\n## ")].splitlines()[2:]
    assert begin[0] == "**Question:** Does z help?"
    assert "the bounds of free and base equivalent (within 0.01)" in begin[4]
    assert all(line in page for line in begin) and "<!--" not in text
    headings = re.findall("^## .*", text, re.MULTILINE)
    assert len(headings) == 2 and all(heading in page for heading in headings)
    rows = [line for line in text.splitlines() if line.startswith("| free |")]
    assert any("Free Transformer" in row for row in rows)
    assert all(row in page for row in rows[:-1])  # the last is of the trainings
    assert "`ftlab keep docs/kept --section curves --section bounds`" in text


@rejects('keep.keep_report: "figure4" «→not »in', "a section that the report does not have")
def test_of_an_experiment_on_text_alone_the_bounds_are_kept(tmp_path, monkeypatch):
    write_experiment(tmp_path, {"base": run("text"), "free": run("text", kappa=0.125)}, {})
    monkeypatch.chdir(tmp_path)
    with suppress(UserError, KeyError):  # whatever it says, the page must be kept
        call("keep", "docs/kept")
    kept = tmp_path / "docs/kept/README.md"
    assert kept.exists() and "| free |" in kept.read_text()


def test_times_are_in_hours_minutes_and_seconds():
    assert [*map(keep.hours, (59.6, 3540, 3600, 3661))] == [
        "0:01:00", "0:59:00", "1:00:00", "1:01:01"
    ]  # fmt: skip


def test_what_the_report_lacks_is_a_users_mistake(project):
    with pytest.raises(UserError, match=r"--section: 'designs' is not one of .*bounds"):
        keep.main("docs/kept", section=["designs"])
    with pytest.raises(UserError, match=r"--section: name a folder"):
        call("keep", "--register", "--section", "bounds")
    with pytest.raises(UserError, match=r"^name a folder for the report, or --register$"):
        call("keep")
    shutil.rmtree(project / "results")
    with pytest.raises(UserError, match=r"evaluation\.json"):
        keep.main("docs/kept", section=["bounds"])
    assert not (project / "docs/kept").exists()


def test_a_folder_that_cannot_be_made_is_a_users_mistake(project):
    with pytest.raises(UserError, match=r"^/proc/kept: No such file or directory$"):
        call("keep", "/proc/kept")


def test_a_mapping_takes_the_place_of_a_value_and_a_value_that_of_a_mapping():
    before, after = {"a": {"b": 1}, "c": None}, {"a": 2, "c": {"d": "3"}}
    assert [*keep.differing(before, after)] == ["a=2", 'c={d:"3"}']


ARM = "{data: target, model: target_small, kappa_bits: 1, tokens: 65, latent: {per: sequence}}"
CHANGES = [
    "seeds=[0]",
    "~arms.path_star_2_baseline_plus1",
    "arms.path_star_2_baseline.tokens=64_000",
]
QUOTED = ["evaluation.groups=5", "models.target_small.optim.lr=0.5", 'question="does `κ` help?"']


@pytest.mark.parametrize(
    ("name", "changes", "command"),
    [
        ("smoke", [], "make repro EXPERIMENT=smoke"),
        ("planning", CHANGES, "ftlab repro experiment=planning 'seeds=[0]' "
         "'~arms.path_star_2_baseline_plus1' arms.path_star_2_baseline.tokens=64000"),
        ("smoke", QUOTED, """ftlab repro experiment=smoke """
         """'question="does `κ` help?"' models.target_small.optim.lr=0.5 evaluation.groups=5"""),
        ("figure4", [f"+arms={{extra: {ARM}}}"], None),
    ],
    ids=["nothing", "arms", "quotes", "more"],
)  # fmt: skip
def test_the_command_names_what_was_set_and_composes_it_again(conf, name, changes, command):
    composed = compose_config([f"experiment={name}", *changes])
    write_params(composed)
    printed = keep.command(name)
    if command:
        assert printed == command
    else:
        assert '+arms={extra:{data:"target"' in printed and "extra_s0" not in printed
    overrides = shlex.split(printed.removeprefix(f"make repro EXPERIMENT={name}"))[3:]
    assert compose_config([f"experiment={name}", *overrides]) == composed
