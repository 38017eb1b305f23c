"""Files of conf/ and params.yaml that no one meant: one line that names the file, no traceback."""

import shutil
from pathlib import Path

import pytest
import yaml

from pipelines import compose, inputs
from pipelines.common.errors import UserError
from pipelines.common.yaml_files import read_yaml
from pipelines.config.load import load_experiment
from tests.support.mutants import rejects

ROOT = Path(__file__).parents[2]
DEEP = b"[" * 3000 + b"]" * 3000
SMOKE = "conf/experiment/smoke.yaml"
BROKEN = [
    (SMOKE, b"name: \xff\xfe\n", f"{SMOKE}: line 1: not UTF-8"),
    ("conf/config.yaml", b"a: 1\nname: \xe9\n", "conf/config.yaml: line 2: not UTF-8"),
    (SMOKE, b"question: &a [*a]\n", f"{SMOKE}: line 1: *a contains itself"),
    (SMOKE, b"data:\n  b: &a {c: *a}\n", f"{SMOKE}: line 2: *a contains itself"),
    (SMOKE, b"question: " + DEEP, f"{SMOKE}: line 1: nested more than 50 deep"),
    ("conf/config.yaml", b"defaults: 3\n", "Invalid defaults list in 'config'"),
    (SMOKE, b"# @package _global_\ndefaults: 3\n", "Invalid defaults list in 'experiment/smoke'"),
    (SMOKE, b"# @package _global_\nruns: {null: {}}\n", "runs: Incompatible key type"),
    ("conf/suite/mini.yaml", b"", "suite.name is missing"),
    (
        "conf/suite/mini.yaml",
        b"# @package suite\nname: mini\n",
        "suite.name: mini, which has no tasks",
    ),
]


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@rejects(
    "config/suite.py", '(self.name == "none") != (not self.tasks)', "False", "a suite without tasks"
)
@rejects(
    "compose.py",
    "    config = compose_config(overrides)\n    parse",
    "    config = compose_config(overrides)\n    write_params(config)\n    parse",
    "params.yaml written before it is checked",
)
@pytest.mark.parametrize(("file", "content", "words"), BROKEN, ids=[b[2] for b in BROKEN])
def test_a_broken_file_of_conf_is_named_and_params_yaml_stays(project, file, content, words):
    (project / "params.yaml").write_text("before")
    (project / file).write_bytes(content)
    with pytest.raises(UserError) as caught:
        compose.main(["experiment=smoke"])
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert (project / "params.yaml").read_text() == "before"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff", "line 1: not UTF-8"),
        (b"a: &a [*a]", "line 1: *a contains itself"),
        (b"data: " + DEEP, "nested more than 50 deep"),
        (b"a: [", "while parsing"),
    ],
)
@pytest.mark.parametrize("read", [load_experiment, lambda: inputs.main()])
def test_a_broken_params_yaml_is_named(project, read, content, words):
    (project / "params.yaml").write_bytes(content)
    with pytest.raises(UserError) as caught:
        read()
    assert str(caught.value).startswith("params.yaml: ")
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_an_anchor_that_is_used_again_is_fine(tmp_path):
    (tmp_path / "a.yaml").write_text("a: &a {b: 1}\nc: *a\nd: &d [2]\ne: *d\n")
    assert yaml.safe_load(read_yaml(tmp_path / "a.yaml"))["e"] == [2]


def test_params_yaml_that_is_a_link_to_itself(project):
    (project / "params.yaml").symlink_to("params.yaml")
    for read in (load_experiment, lambda: inputs.main()):
        with pytest.raises(UserError, match=r"^params\.yaml: Too many levels of symbolic links$"):
            read()
    compose.main(["experiment=smoke"])  # which makes a file of it
    assert load_experiment().name == "smoke"


def test_params_yaml_that_is_a_folder(project):
    (project / "params.yaml").mkdir()
    for read in (load_experiment, lambda: compose.main(["experiment=smoke"])):
        with pytest.raises(UserError, match=r"^params\.yaml: Is a directory$"):
            read()


def test_params_yaml_is_written_through_a_link(project):
    (project / "elsewhere.yaml").write_text("before")
    (project / "params.yaml").symlink_to("elsewhere.yaml")
    compose.main(["experiment=smoke"])
    assert (project / "params.yaml").is_symlink()
    assert load_experiment(project / "elsewhere.yaml").name == "smoke"
