"""Files of conf/ and params.yaml that no one meant: one line that names the file, no traceback."""

import shutil
from pathlib import Path

import pytest

from pipelines import inputs
from pipelines.config import compose
from pipelines.config.load import load_experiment
from pipelines.host.errors import UserError
from tests.support.mutants import rejects
from tests.support.settings import refusal

ROOT = Path(__file__).parents[2]
DEEP = b"[" * 3000 + b"]" * 3000
SMOKE, MINI = "conf/experiment/smoke.yaml", "suite.name: mini, which has no tasks"
BROKEN = [
    ("conf/config.yaml", b"a: 1\nname: \xe9\n", "conf/config.yaml: line 2: not UTF-8"),
    (SMOKE, b"data:\n  b: &a {c: *a}\n", f"{SMOKE}: line 2: *a contains itself"),
    (SMOKE, b"# @package _global_\ndefaults: 3\n", "Invalid defaults list in 'experiment/smoke'"),
    (SMOKE, b"\xef\xbb\xbf# @package _global_\nname: a\n", f"{SMOKE} begins with a byte-order"),
    ("conf/data/stdlib.yaml", b"defaults: [{/source@_here_: text}]\n", "`# @package data.stdlib`"),
    (SMOKE, b"# mine\n\nname: a\n", f"{SMOKE} lacks its first line, `# @package _global_`"),
    ("conf/model/target_small.yaml", b"optim: {}\n", "`# @package models.target_small`"),
    ("conf/suite/mini.yaml", b"# @package suite\nname: mini\n", MINI),
]


@rejects("compose.compose_valid: «→write_params(config); »parse(", "params.yaml written unchecked")
@pytest.mark.parametrize(("file", "content", "words"), BROKEN, ids=[b[2] for b in BROKEN])
def test_a_broken_file_of_conf_is_named_and_params_yaml_stays(
    tmp_path, monkeypatch, file, content, words
):
    shutil.copytree("conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("before")
    Path(file).write_bytes(content)
    assert words in refusal(compose.main, ["experiment=smoke"])
    assert Path("params.yaml").read_text() == "before"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff", "line 1: not UTF-8"),
        (b"a: &a [*a]", "line 1: *a contains itself"),
        (b"data: " + DEEP, "nested more than 50 deep"),
        (b"a: [", "while parsing"),
        (b"[1, 2]", "not a mapping"),
        (b"runs:\n  a: {data: d}\n  a: {data: d}\n", "duplicate key a"),
    ],
)
def test_a_broken_params_yaml_is_named(tmp_path, monkeypatch, content, words):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_bytes(content)
    said = refusal(load_experiment)
    assert said.startswith("params.yaml: ") and words in said


def test_stage_sources_names_a_broken_params_yaml_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_bytes(b"a: &a [*a]")
    assert refusal(lambda: inputs.main.callback()).startswith(
        "params.yaml: line 1: *a contains itself"
    )


def test_missing_params_say_what_to_run(tmp_path):
    with pytest.raises(UserError, match="make repro"):
        load_experiment(tmp_path / "params.yaml")


def test_params_yaml_is_written_through_a_link(tmp_path, monkeypatch):
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    (tmp_path / "params.yaml").symlink_to("elsewhere.yaml")
    monkeypatch.chdir(tmp_path)
    compose.main(["experiment=smoke"])
    assert Path("params.yaml").is_symlink()
    assert load_experiment(Path("elsewhere.yaml")).name == "smoke"
