"""`python -m perf` and `perf.gpu`: what is measured is kept, whatever becomes of the next."""

import json
import os
import re
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from perf import __main__ as perf, measure, record
from perf.gpu import __main__ as gpu, gpu_tests
from perf.record import Part
from pipelines import ROOT, doctor
from pipelines.common.errors import UserError
from tests.support.commands import call
from tests.support.mutants import rejects

FAKES = {
    "good": """
from perf.measure import figure
def measure(turns, quick, device="here", n=1):
    return [
        figure("here ÷ there", [1.0, 2.0, 4.0], at_least=2.5),
        figure("all", [34_000.0] * turns, "tokens/s"),
        figure("mine", [os.getpid()], device, at_most=2e9),
        figure("number", [n], ""),
    ]
""",
    "broken": "def measure(turns, quick, device=''): return 1 / 0",
    "killed": "def measure(turns, quick): os._exit(9)",
    "first": "import nowhere",
    "endless": """
def measure(turns, quick, device):
    while True:
        pass
""",
    "stopped": "def measure(turns, quick, device): raise KeyboardInterrupt",
}


def in_one_process(*_, **__):
    """In the place of a pool of one process: a part runs in this one."""
    submit = lambda work, *given: SimpleNamespace(result=lambda: work(*given))  # noqa: E731
    return nullcontext(SimpleNamespace(submit=submit))


class Nothing:
    prctl = staticmethod(lambda *_: None)


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    (tmp_path / "fakes").mkdir()
    for name, text in FAKES.items():
        (tmp_path / f"fakes/{name}.py").write_text(f'"""A fake.\n\nMore."""\nimport os\n{text}')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(perf, "PARTS", {name: Part(f"fakes.{name}") for name in FAKES})
    monkeypatch.setattr(record, "git_revision", lambda: "abc")


def run(command, out, *arguments):
    """Exit code, entries and page."""
    with pytest.raises(SystemExit) as ended:
        call(command, *arguments, "--out", str(out))
    [file] = out.glob("*.json")
    return ended.value.code, json.loads(file.read_text()), file.with_suffix(".md").read_text()


def test_a_measurement_is_written_with_where_it_ran(fakes, tmp_path, capsys):
    code, entries, page = run("perf", tmp_path / "out", "good", "--turns", "3")
    assert code == 0 and (tmp_path / "out/perf.md").exists()
    good = entries["good"]
    assert [figure["met"] for figure in good["figures"]] == [False, None, True, None]
    assert f"torch {measure.torch.__version__}" in good["machine"]["software"]
    assert good["turns"] == 3 and good["seconds"] > 0 and not good["quick"]
    assert good["figures"][2]["median"] != os.getpid(), "not in a process of its own"
    assert "| here ÷ there | 2 (1 to 4) | ratio | ≥ 2.5 | missed |" in page
    assert "| all | 34,000 | tokens/s |  |  |" in page
    assert all(good["machine"][fact] in page for fact in ("cpu", "cores", "gpu", "software"))
    assert "A fake.\n" in page and "More." not in page and "rehears" not in page
    assert "1 of 2 targets" in capsys.readouterr().err


@rejects('record.record: = "«failure→skipped»', "a GPU's part that fails, and exit code 0")
@pytest.mark.slow
def test_a_failure_stops_no_other_and_fails_the_command(fakes, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("perf", out, "good")[0] == 0
    code, entries, page = run("perf", out, "broken", "killed", "first")
    assert code == 1
    assert "in measure" in entries["broken"]["failure"]
    assert page.count("ZeroDivisionError") > 1, "no traceback"
    assert "BrokenProcessPool" in entries["killed"]["failure"]
    assert "No module named 'nowhere'" in entries["first"]["failure"]
    assert "here ÷ there" in page, "what was measured before is lost"
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_an_unknown_name_is_one_line(fakes, tmp_path):
    with pytest.raises(UserError, match=r"no measurement 'fast'; there are good, "):
        call("perf", "good", "fast", "--out", str(tmp_path / "no"))
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("content", ["{", "[1]", '{"good": {"figures": []}}'])
def test_another_file_of_that_name_is_one_line_before_anything_is_measured(
    fakes, tmp_path, content
):
    (tmp_path / "perf.json").write_text(content)
    with pytest.raises(UserError, match=r"perf\.json cannot be read"):
        call("perf", "good", "--out", str(tmp_path))


@pytest.fixture
def on_gpu(fakes, tmp_path, monkeypatch):
    """Calls the command with parts on a made-up GPU, in this process."""
    monkeypatch.setattr(gpu, "find_gpu", lambda: None)
    monkeypatch.setattr(gpu.torch.cuda, "get_device_name", lambda: "Some GPU")
    monkeypatch.setattr(record, "ProcessPoolExecutor", in_one_process)
    monkeypatch.setattr(record, "CDLL", lambda _: Nothing)

    def run_parts(*arguments, given=None, goes_on=False, **parts):
        monkeypatch.setattr(
            gpu,
            "PARTS",
            {
                name: Part(f"fakes.{fake}", "≥ 0.4", 1, given or {}, goes_on=goes_on)
                for name, fake in parts.items()
            },
        )
        return run("gpu", tmp_path / "out", *arguments)

    return run_parts


def test_a_gpus_file_has_its_date_and_name(on_gpu, tmp_path):
    code, entries, page = on_gpu(first="good")
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    date = entries["first"]["date"][:10]
    assert code == 0 and names == [f"{date}_Some_GPU.json", f"{date}_Some_GPU.md"]
    assert page.startswith(f"# Some GPU, {date}\n") and "\nTarget: ≥ 0.4\n" in page
    assert entries["first"]["figures"][2]["unit"] == "cuda"


def test_a_part_that_is_not_reached_is_said(on_gpu):
    code, entries, page = on_gpu("--minutes", "1e-9", first="good")
    assert code == 1 and entries == {} and "≥ 0.4: not measured" in page


def test_what_is_measured_is_kept_and_the_next_call_does_the_rest(on_gpu, monkeypatch):
    def numbers(*arguments, **more):
        code, entries, page = on_gpu(*arguments, **more)
        return code, [entry["figures"][3]["median"] for entry in entries.values()], page

    assert on_gpu(first="good", second="broken")[0] == 1
    again = {"first": "broken", "second": "good"}  # the first would fail, were it measured again
    assert numbers(**again, given={"n": 7})[:2] == (0, [1, 7])
    code, found, page = numbers("first", **again)
    assert code == 1, "a part that is named is measured again"
    assert found == [1, 7], "a failure now undoes what was measured"
    assert "ZeroDivisionError" in page and "34,000" in page
    assert numbers(first="good", given={"n": 8}, goes_on=True)[1] == [8, 7]
    monkeypatch.setattr(record, "git_revision", lambda: "def")
    assert numbers(first="good", given={"n": 9})[1] == [9, 7], "of another commit"


@rejects(
    "record.record: («→) if len(todo) > 1 else (»(",
    "a GPU's record that is written once, at the end",
)
def test_an_interruption_loses_nothing_that_was_measured(on_gpu, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        on_gpu(first="good", second="stopped", third="good")
    texts = {file.suffix: file.read_text() for file in (tmp_path / "out").glob("*")}
    assert texts.keys() == {".json", ".md"}
    assert list(json.loads(texts[".json"])) == ["first"]
    assert texts[".md"].partition("## third")[2].startswith("\n\n≥ 0.4: not measured")


@pytest.mark.slow
def test_a_part_is_ended_when_its_time_is_over(fakes):
    part = Part("fakes.endless", given={"device": "cpu"})
    entry = record.measure_part(part, 1, quick=False, seconds=6)
    assert "TimeoutError" in entry["failure"] and " 6 s" in entry["failure"]


def test_time_is_shared_out():
    parts, minute = list(gpu.PARTS.values()), 60
    assert record.time_for(parts[0], parts, 50 * minute) == 3 * minute
    assert record.time_for(parts[0], parts, 10) == 10
    text = list(gpu.PARTS).index("text")
    assert record.time_for(parts[text], parts[text:], 6 * minute) == 2 * minute
    assert record.time_for(parts[-1], parts[-1:], 6 * minute) == 6 * minute
    assert sum(part.minutes for part in parts) <= 50, "--minutes by default"


@rejects(
    'record.figure_row: «verdict = "rehearsed"→pass»',
    "a rehearsal on a GPU that shows met and missed",
)
def test_a_rehearsal_says_so_and_has_a_file_of_its_own(on_gpu, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    code, entries, page = on_gpu("--rehearse", first="good")
    assert code == 0 and list((tmp_path / "out").glob("*_rehearsal.json"))
    assert record.REHEARSAL in page and record.REHEARSAL in capsys.readouterr().err
    assert "| here ÷ there | 2 (1 to 4) | ratio | ≥ 2.5 | rehearsed |" in page
    assert entries["first"]["figures"][2]["unit"] == "cpu" and entries["first"]["quick"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "", "a part could find a GPU"


@pytest.mark.parametrize("reason", ["none", "driver 470.1 does not support this PyTorch (13.0)"])
def test_without_a_gpu_it_ends_in_one_line_and_nothing_is_written(monkeypatch, tmp_path, reason):
    finding = doctor.Finding("GPU", reason, doctor.COSTS)
    monkeypatch.setattr(doctor, "gpu", lambda: finding)
    words = "no GPU on this machine" if reason == "none" else re.escape(reason)
    with pytest.raises(UserError, match=f"^{words}; .*--rehearse"):
        call("gpu", "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@rejects(
    "perf.measure: «torch.utils.benchmark import→time import perf_counter as»",
    "a GPU's time without waiting for the GPU",
)
def test_the_clock_waits_for_a_gpu(monkeypatch):
    waits = []
    monkeypatch.setattr(measure.torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(measure.torch.accelerator, "synchronize", lambda: waits.append("gpu"))
    measure.in_turns({"a": lambda: waits.append("a"), "b": lambda: waits.append("b")}, 1)
    warm_up, turn = ["gpu", "b", "gpu", "a"], ["gpu", "a", "gpu", "gpu", "b", "gpu"]
    assert waits == warm_up + turn


@pytest.mark.slow
def test_everything_is_rehearsed(tmp_path, monkeypatch):
    """In this process: in one of its own, each part would import PyTorch again. Nor is C++ made."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    monkeypatch.setattr(record, "ProcessPoolExecutor", in_one_process)
    monkeypatch.setattr(record, "CDLL", lambda _: Nothing)
    for name in ("CUDA_VISIBLE_DEVICES", gpu_tests.DEVICE):  # which the command sets
        monkeypatch.setenv(name, "")
    code, entries, page = run("gpu", tmp_path, "--rehearse")
    assert code == 0, page
    assert list(entries) == list(gpu.PARTS)
    names = {figure["name"] for entry in entries.values() for figure in entry["figures"]}
    assert {"tests passed", "1.5 B, free: model-FLOPs utilisation", "free: speed"} <= names
    assert "speed, free ÷ baseline" in names
    assert "not measured" not in page
