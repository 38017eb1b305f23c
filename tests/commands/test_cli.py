"""Help without side effects, wrong usage in one line, completion, and what is handed through."""

import os
import re
import subprocess
import sys
from unittest.mock import Mock

import click
import pytest
from click.shell_completion import BashComplete, ZshComplete

from pipelines import cli
from pipelines.cli import GROUPS, ftlab
from pipelines.commands import compose
from pipelines.host import errors
from pipelines.host.command_line import Number
from pipelines.host.files import ROOT
from tests.support.commands import call
from tests.support.mutants import rejects

COMMANDS = [name for names in GROUPS.values() for name in names]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_it_does_its_arguments_and_an_example(name, capsys):
    call("--help")
    assert f"\n  {name}  " in capsys.readouterr().out
    call(name, "--help")
    said = capsys.readouterr().out
    command = ftlab.get_command(None, name)
    is_stage = command.callback.__module__.endswith("main__")
    spelling = (
        "python -m pipelines." if is_stage else
        "python -m pipelines.cli " if name == "job" else "ftlab "  # Ray runs it in another copy
    )  # fmt: skip
    assert said.startswith(f"Usage: ftlab {name} ")
    assert sys.modules[command.callback.__module__].__doc__.splitlines()[0] in said
    assert re.search(rf"^      .*{spelling}{name}", said, re.MULTILINE)
    for parameter in command.params:
        assert parameter.help and parameter.help.split()[0] in said
        assert parameter.metavar or not isinstance(parameter.type, Number)  # its unit


def test_every_module_that_declares_a_command_is_one_of_ftlab_or_a_stage_of_dvc():
    declared = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("pipelines/**/*.py")
        if "\n@command(" in path.read_text(encoding="utf-8")
    ]
    found = [ftlab.get_command(None, name).callback.__module__ for name in COMMANDS]
    ours = [f"{module.replace('.', '/')}.py" for module in [*found, "pipelines.inputs"]]
    assert sorted(declared) == sorted(ours)


@rejects(
    "train.__main__: «→from pipelines.train import stage\n\n» @command(__doc__)",
    "help that imports",
    case="train --help",
)
@pytest.mark.parametrize("arguments", ["--help", "train --help", "train"])
def test_help_and_wrong_usage_import_neither_torch_nor_ray(arguments):
    program = """
import atexit, sys
from pipelines import cli
slow = {"torch", "ray", "mlflow", "omegaconf", "dvc"}
atexit.register(lambda: print(slow & {*sys.modules}, file=sys.stderr))
cli.main()
"""
    command = [sys.executable, "-c", program, *arguments.split()]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stderr.endswith("set()\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing command; see ftlab --help"),
        (["trian"], "No such command 'trian'; did you mean train?"),
        (["train"], "Missing argument 'RUN'; see ftlab train --help"),
        (["compose", "-x"], "No such option '-x'"),
        (["sample", "a", "--size", "0"], "'--size'"),
        (["sample", "a", "--temperature", "-1"], "'--temperature'"),
        (["sample", "a", "--seed", str(2**64)], "'--seed'"),
        (["sample", "a", "--temperature", "nan"], "nan is not a finite number"),
        (["job", "/lab"], "usage: ftlab job"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(monkeypatch, capsys, arguments, words):
    monkeypatch.setattr(sys, "argv", ["ftlab", *arguments])
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main()
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ") and said.err.count("\n") == 1
    assert words in said.err


OVERRIDES = ("key=-1", "~suite_runs", "+runs={a: {tokens: 1}}", "++x='a b'", "k=--help", "a=$HOME")
JOB = ("--", "dvc", "repro", "-f", "--help")


@pytest.mark.parametrize(
    ("name", "given", "arguments"),
    [
        ("compose", OVERRIDES, {"overrides": OVERRIDES}),
        ("sweep", OVERRIDES, {"overrides": OVERRIDES}),
        ("job", ("/lab", *JOB), {"folder": "/lab", "command": JOB}),
        ("sample", ("a", "--prompt", "-x"), {"prompt": "-x"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_pass_through_as_they_are(monkeypatch, name, given, arguments):
    calls = []
    command = ftlab.get_command(None, name)
    monkeypatch.setattr(command, "callback", lambda **handed: calls.append(handed))
    call(name, *given)
    assert arguments.items() <= calls[0].items()


def test_a_folder_that_takes_no_cache_is_left_in_one_line(monkeypatch, capsys):
    """PyTorch's modules could not even be imported."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/proc/self/x")
    shown = lambda **_: print(os.environ.get("TORCHINDUCTOR_CACHE_DIR"))  # noqa: E731
    monkeypatch.setattr(compose.main, "callback", shown)
    call("compose")
    said = capsys.readouterr()
    assert said.out == "None\n" and said.err.count("\n") == 1
    assert said.err.startswith("TORCHINDUCTOR_CACHE_DIR: /proc/self/x: ")


def test_exceptions_of_a_commands_work_are_not_clicks_to_handle(monkeypatch):
    def run(error):
        monkeypatch.setattr(compose.main, "callback", Mock(side_effect=error))
        monkeypatch.setattr(sys, "argv", ["ftlab", "compose"])
        cli.main()

    for error, code in ((errors.UserError("x"), 2), (KeyboardInterrupt(), 130), (SystemExit(7), 7)):
        with pytest.raises(SystemExit, match=rf"^{code}$"):
            run(error)
    for bug in (EOFError(), BrokenPipeError(), click.UsageError("of another library")):
        with pytest.raises(type(bug)):
            run(bug)


def completed(shell, monkeypatch, *words):
    monkeypatch.setenv("COMP_WORDS", " ".join(("ftlab", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    completion = shell(ftlab, {}, "ftlab", "_FTLAB_COMPLETE")
    arguments, incomplete = completion.get_completion_args()
    return [item.value for item in completion.get_completions(arguments, incomplete)]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["ev"], ["evaluate"]),
        (["train", "fr"], ["free_a", "free_b"]),
        (["data", ""], ["target", "2024"]),
        (["compose", "exp"], ["experiment=big", "experiment=small"]),
        (["compose", "experiment", "=", "s"], ["small"]),  # as bash cuts it
        (["compose", "experiment", "="], ["big", "small"]),
        (["compose", "experiment=small", "x"], []),
    ],
)
def test_the_shell_completes_names(monkeypatch, tmp_path, words, values):
    (tmp_path / "conf/experiment").mkdir(parents=True)
    for name in ("small", "big"):
        (tmp_path / f"conf/experiment/{name}.yaml").touch()
    (tmp_path / "params.yaml").write_text(
        "data: {target: {}, 2024: {}}\nruns: {free_a: {}, free_b: {}, base: {}}\n"
        "suite_runs: {text: stdlib}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert completed(BashComplete, monkeypatch, *words) == values
    whole = completed(ZshComplete, monkeypatch, "compose", "experiment=s")  # which zsh does not cut
    assert whole == ["experiment=small"]


@pytest.mark.parametrize("content", [None, b"\xff", b"runs: [", b"[]", b"runs: 3"])
def test_completion_says_nothing_where_there_is_no_params_yaml(monkeypatch, tmp_path, content):
    if content is not None:
        (tmp_path / "params.yaml").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert completed(BashComplete, monkeypatch, "train", "") == []


def refusal(monkeypatch, capsys, *arguments):
    """The line on stderr with which `ftlab` ends."""
    monkeypatch.setattr(sys, "argv", ["ftlab", *arguments])
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main()
    return capsys.readouterr().err


def test_the_script_of_another_copy_is_refused(monkeypatch, tmp_path, capsys):
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/cli.py").touch()
    monkeypatch.chdir(tmp_path)
    assert "python -m pipelines.cli" in refusal(monkeypatch, capsys, "report")


@pytest.mark.parametrize("words", [["sample", "a", "--prompt"], ["export", "a", "--out"]])
def test_an_argument_that_is_no_utf_8_is_named(words):
    with pytest.raises(errors.UserError, match="the argument caf\udce9 is not text in UTF-8"):
        call(*words, os.fsdecode(b"caf\xe9"))


GIVEN = {"sample": "a", "export": "a --to hf", "job": "/proc/lab -- true"}
GIVEN |= {"pretrained": "smollm2_135m", "report": ""}
GIVEN = dict.fromkeys(GROUPS["Stages, as DVC runs them"], "a") | GIVEN


@rejects(
    "cli.of_this_copy: check=None if «is_doctor→True» else",
    "a command outside the project's folder",
    case="sample",
)
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "doctor"])
def test_outside_the_projects_folder_every_command_is_refused_and_makes_nothing(
    monkeypatch, tmp_path, capsys, name
):
    """In a folder of the project, too: its files lie elsewhere."""
    words = GIVEN.get(name, "").split()
    for folder in (tmp_path, ROOT / "docs"):
        monkeypatch.chdir(folder)
        line = refusal(monkeypatch, capsys, name, *words)
        assert line == f"error: {folder} is not the project's folder: go to {ROOT}\n"
    assert not [*tmp_path.iterdir()]
