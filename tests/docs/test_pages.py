"""What the pages tell a user to type works, and files that they name exist; links: test_site.py."""

import os
import re
import shlex
import shutil
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from omegaconf import OmegaConf

from pipelines.cli import GROUPS, ftlab
from pipelines.config.compose import compose_config
from pipelines.config.load import parse
from pipelines.sweep.plan import known_sweeps
from tests import ROOT
from tests.support.mutants import rejects
from tests.support.project_copy import Project

DOCS = ROOT / "docs"  # of its folders, one has pages; the others keep results
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md",
         *sorted([*DOCS.glob("*.md"), *DOCS.glob("measurement/*.md")])]  # fmt: skip
ELSEWHERE = {  # programs whose commands need another machine, files, a cluster or a new shell
    *("eval", "git", "pip", "source", "ray", "kubectl", "mlflow", "export"),
    *("RAY_ADDRESS=192.0.2.10:6379", "BENCHMARK_FILES=benchmark_files"),
}


def commands(page: Path) -> list[str]:
    """The indented lines of a page that are commands, without their comments."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\\\n\s*", " ", text)
    lines = re.findall(r"^    (\S.*?)(?:  +#.*)?$", text, re.MULTILINE)
    no_formula = r"[A-Za-z][\w.=:/-]*( (?![=[])|$)"
    return [line for line in lines if re.match(no_formula, line)]


COMMANDS = [(page.name, command) for page in PAGES for command in commands(page)]


def of_program(*names: str) -> pytest.MarkDecorator:
    chosen = sorted({c for _, c in COMMANDS if c.split()[0] in names})
    assert chosen, names
    return pytest.mark.parametrize("command", chosen)


def overrides_of(command: str) -> list[str]:
    """The key=value arguments of a command, those within make's SET among them."""
    found = []
    for word in shlex.split(command):
        name, _, value = word.partition("=")
        if name == "EXPERIMENT":
            found.append(f"experiment={value}")
        elif name == "SET":
            found += shlex.split(value)
        elif name and value and not word.startswith("-") and name.upper() != name:
            found.append(word)
    return found


def test_every_command_is_of_a_kind_that_is_tested():
    assert {"make repro", "make test", "make ui", "make check"} <= {c for _, c in COMMANDS}
    programs = {command.split()[0] for _, command in COMMANDS}
    assert programs <= {"make", "python", "ftlab", "dvc", "pytest", *ELSEWHERE}


@of_program("make")
def test_make_knows_the_target_and_its_settings_compose(command, monkeypatch):
    done = subprocess.run(f"{command} --dry-run", shell=True, cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(ROOT)
    if overrides := overrides_of(command):
        known = {path.stem for path in (ROOT / "conf/experiment").glob("*.yaml")}
        if overrides[0].partition("=")[2] in known or not overrides[0].startswith("experiment="):
            parse(compose_config(overrides), "conf/")
        else:
            made = {f"experiment={sweep}_best" for sweep in known_sweeps()}
            assert {*overrides} <= {"experiment=first", *made}, "the README's own, or a sweep's"


@rejects("Makefile: filter-out $(SETTINGS),$(«name→word»)", "a setting that make does not know")
@pytest.mark.parametrize("setting", ["experiment=tiny", "EXPERIMNT=tiny", "SET=a=1 experiment=b"])
def test_make_refuses_a_setting_that_it_would_ignore(setting):
    make = ["make", "--dry-run", "repro"]
    done = subprocess.run([*make, setting], cwd=ROOT, capture_output=True, text=True)
    known = setting.startswith("SET")
    assert (done.returncode == 0) == known
    assert known or f"{setting.partition('=')[0]}= is no setting of this Makefile" in done.stderr
    environment = os.environ | {"experiment": "tiny"}  # somebody else's
    subprocess.run(make, cwd=ROOT, env=environment, capture_output=True, check=True)


@of_program("python", "ftlab")
def test_commands_exist_and_take_what_they_are_given_and_their_settings_compose(
    command, monkeypatch
):
    program, name, *given = shlex.split(command)
    if program == "python":
        module, *given = given
        assert name == "-m" and find_spec(module), command
        name = module.removeprefix("pipelines.")
        assert module.startswith("perf") or name in (*GROUPS["Stages, as DVC runs them"], "inputs")
    monkeypatch.chdir(ROOT)
    if program == "ftlab" and not name.startswith("--"):
        with suppress(click.exceptions.Exit):  # by --help
            ftlab.get_command(None, name).make_context(name, list(given))
    if name in ("compose", "plan") and given != ["experiment=first"]:  # the README's own
        parse(compose_config([a for a in given if "=" in a and a[0] != "-"]), "conf/")


@of_program("ray")
def test_a_job_runs_the_copy_that_ray_makes_and_not_the_script_of_another(command):
    words = shlex.split(command)
    if "submit" in words:
        assert "--working-dir" in words and "ftlab" not in words


@of_program("pytest")
def test_folders_of_tests_exist(command):
    assert all((ROOT / path).exists() for path in command.split()[1:])


@pytest.mark.slow
def test_dvc_understands_what_it_is_asked(tmp_path):
    """Of `repro`, the targets; what the commands do is for other tests."""
    project = Project(tmp_path / "project")
    (project.folder / "params.yaml").write_text(OmegaConf.to_yaml(compose_config([])))
    for command in sorted({c for _, c in COMMANDS if c.startswith("dvc")}):
        words = shlex.split(command)
        if words[1] == "repro":
            words[1] = "status"  # resolves its targets in the same way, and needs no data
        elif words[1:3] == [
            "exp",
            "run",
        ]:  # composes as `ftlab compose` does, by another test
            parse(compose_config([w for w in words[3:] if "=" in w]), "conf/")
            continue
        elif words[1] in ("remote", "push", "pull") or words[1:3] == ["exp", "diff"]:
            continue  # with names of the reader; tests/end_to_end/test_remote.py does the like
        project.ok(*words)


def test_the_first_experiment_of_the_readme_composes_with_and_without_seeds(tmp_path, monkeypatch):
    readme = (ROOT / "README.md").read_text()
    (whole,) = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    seeds = re.search(r"```yaml\n(seeds.*?)```", (DOCS / "experiments.md").read_text(), re.DOTALL)
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "conf/experiment/first.yaml"
    file.write_text(whole)
    experiment = parse(compose_config(["experiment=first"]), "conf/")
    assert list(experiment.runs) == ["baseline", "free_k1_2"]
    file.write_text(whole.partition("runs:")[0] + seeds[1])
    experiment = parse(compose_config(["experiment=first"]), "conf/")
    assert len(experiment.runs) == 6


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_named_files_exist(page):
    """Of the project's own folders; what has a placeholder, or is made by a stage, need not."""
    names = re.findall(r"`((?:ftmodel|pipelines|conf|tasks|tests|perf|deploy|docs)/[^`\s]*)`",
                       page.read_text())  # fmt: skip
    for name in names:
        if not set(name) & set("<>*$…{"):
            assert (ROOT / name.partition("::")[0]).exists(), name


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 140
