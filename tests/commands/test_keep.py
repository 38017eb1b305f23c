"""What is kept of a report stands alone, and says what made it."""

import re
import shlex
import shutil
import socket
from pathlib import Path

import pytest
import yaml

from pipelines import keep
from pipelines.common.errors import UserError
from pipelines.compose import compose_config, write_params
from tests.support.results import ROOT, change, make_report, run, write_experiment, write_latent

RUNS = {"base": run(), "free": run(kappa=0.125)}
REPORT = "report/tiny/report.md"
TRAINING = {"git_revision": "abc123", "device": "A Processor, 2 threads"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a finished report; tests must not change it."""
    folder = write_experiment(tmp_path_factory.mktemp("finished"), RUNS, {})
    write_latent(folder, "free")
    for name in RUNS:
        change(folder, name, "details.json", training=TRAINING)
    make_report(folder)
    return folder


@pytest.fixture
def project(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its copy, where the command is typed."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_report_figures_numbers_and_their_origin_are_kept(project: Path) -> None:
    keep.main("docs/figure4")
    folder, report = project / "docs/figure4", project / "report/tiny"
    assert {path.name for path in folder.iterdir()} == {
        "figure4.png", "figure4.csv", "latent_target.png", "README.md"
    }  # fmt: skip
    assert (folder / "figure4.png").read_bytes() == (report / "figures/figure4.png").read_bytes()
    text = (folder / "README.md").read_text()
    assert "make repro EXPERIMENT=tiny" in text
    assert "- Commit of the trainings: abc123\n" in text
    assert "- Device: A Processor, 2 threads\n" in text
    assert "- Time: 0:00:08 of training steps in 2 runs" in text  # 65 / 32.5 + 1 + 1 s a run
    assert "| free | 0 | 6,500 | 0:00:04 |" in text


def test_sections_of_a_report_are_kept_with_their_pictures(project: Path) -> None:
    keep.main("docs/kept", section=["curves", "bounds"])
    folder, report = project / "docs/kept", project / "report/tiny"
    assert {path.name for path in folder.iterdir()} == {"curves_target.png", "README.md"}
    picture = (report / "figures/curves_target.png").read_bytes()
    assert (folder / "curves_target.png").read_bytes() == picture
    text, page = (folder / "README.md").read_text(), (report / "report.md").read_text()
    assert "](curves_target.png)" in text and "figures/" not in text
    headings = re.findall("^## .*", text, re.MULTILINE)
    assert len(headings) == 2 and all(heading in page for heading in headings)
    rows = [line for line in text.splitlines() if line.startswith("| free |")]
    assert any("Free Transformer" in row for row in rows)
    assert all(row in page for row in rows[:-1])  # the last is of the trainings
    assert "`python -m pipelines.keep docs/kept --section curves --section bounds`" in text


def test_sections_are_kept_with_the_question_and_what_became_of_the_expectations(
    project: Path,
) -> None:
    params = yaml.safe_load((project / "params.yaml").read_text())
    expected = {"arm": "free", "than": "base", "bound": "no_difference", "because": None}
    params |= {"question": "Does z help?", "expectation": [expected]}
    (project / "params.yaml").write_text(yaml.safe_dump(params))
    make_report(project)
    keep.main("docs/kept", section=["bounds"])
    text, page = ((project / name).read_text() for name in ("docs/kept/README.md", REPORT))
    begin = text[: text.index("\n## ")].splitlines()[2:]
    assert begin[0] == "**Question:** Does z help?"
    assert begin[2].startswith("**Expected:** no difference between the bounds of free and base.")
    assert all(line in page for line in begin) and "<!--" not in text


def test_a_section_that_the_report_lacks_is_a_users_mistake(project: Path) -> None:
    with pytest.raises(UserError, match=r"--section: 'designs' is not one of .*bounds"):
        keep.main("docs/kept", section=["designs"])
    with pytest.raises(UserError, match=r"--section: name a folder"):
        keep.main(section=["bounds"])
    (project / "report/tiny/report.md").unlink()
    with pytest.raises(UserError, match=r"report\.md is missing: `dvc repro report`"):
        keep.main("docs/kept", section=["bounds"])
    assert not (project / "docs/kept").exists()


def test_nothing_kept_names_this_machine_or_a_place_outside(project: Path, finished: Path) -> None:
    keep.main("docs/figure4")
    folder, page = project / "docs/figure4", project / "report/tiny/index.html"
    for path in (folder / "figure4.csv", folder / "README.md", page):
        text = path.read_text()
        assert not any(str(place) in text for place in (project, finished, ROOT, Path.home()))
        assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)
    links = re.findall(r"\]\((.*?)\)", (folder / "README.md").read_text())
    assert links and all((folder / link).exists() and "/" not in link for link in links)
    assert not re.search(r"https?:|file:|url\(|@import|src=\"(?!data:)", page.read_text())


def test_what_is_unlike_among_the_runs_is_said_of_each(project: Path) -> None:
    change(project, "base", "details.json", training={})
    keep.main("docs/figure4")
    text = (project / "docs/figure4/README.md").read_text()
    assert "- Commit of the trainings: not recorded (base); abc123 (free)" in text


def test_it_can_be_kept_again(project: Path) -> None:
    """Over what was kept before; other files in the folder stay."""
    keep.main("docs/figure4")
    (project / "docs/figure4/note.md").write_text("mine")
    (project / "docs/figure4/figure4.csv").write_text("old")
    keep.main("docs/figure4")
    assert (project / "docs/figure4/note.md").exists()
    assert (project / "docs/figure4/figure4.csv").read_text() != "old"


def test_a_report_that_is_not_there_is_a_users_mistake(project: Path) -> None:
    shutil.rmtree(project / "report")
    with pytest.raises(UserError, match=r"report/tiny/figure4.csv is missing: `dvc repro report`"):
        keep.main("docs/figure4")
    assert not (project / "docs/figure4").exists()


@pytest.mark.parametrize(
    ("name", "changes", "command"),
    [
        ("smoke", [], "make repro EXPERIMENT=smoke"),
        (
            "planning",
            [
                "seeds=[0]",
                "~arms.path_star_2_baseline_plus1",
                "arms.path_star_2_baseline.tokens=64_000",
            ],
            "python -m pipelines.repro experiment=planning 'seeds=[0]' "
            "'~arms.path_star_2_baseline_plus1' arms.path_star_2_baseline.tokens=64000",
        ),
        (
            "smoke",
            [
                "evaluation.groups=5",
                "models.target_small.optim.lr=0.5",
                'question="does `z` help?"',
            ],
            """python -m pipelines.repro experiment=smoke 'question="does `z` help?"' """
            """models.target_small.optim.lr=0.5 evaluation.groups=5""",
        ),
    ],
)
def test_the_command_names_what_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, changes: list[str], command: str
) -> None:
    """And, typed, it composes the same again."""
    printed = typed_again(tmp_path, monkeypatch, name, changes)
    assert printed == command


def test_the_command_adds_what_was_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arm = "{data: target, model: target_small, kappa_bits: 1, tokens: 65, latent: {per: sequence}}"
    printed = typed_again(tmp_path, monkeypatch, "figure4", [f"+arms={{extra: {arm}}}"])
    assert '+arms={extra:{data:"target"' in printed and "extra_s0" not in printed


def typed_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, changes: list[str]
) -> str:
    """The printed command, which composes what it was printed of."""
    shutil.copytree(ROOT / "conf", folder / "conf")
    monkeypatch.chdir(folder)
    composed = compose_config([f"experiment={name}", *changes])
    write_params(composed)
    printed = keep.command(name)
    settings = shlex.split(printed.removeprefix(f"make repro EXPERIMENT={name}"))[4:]
    assert compose_config([f"experiment={name}", *settings]) == composed
    return printed
