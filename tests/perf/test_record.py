"""`python -m perf` and `perf.gpu`: what is measured is kept, whatever becomes of the next."""

import json
import os
import re
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from ftmodel.costs.training import flops_per_token
from perf import __main__ as perf, measure, record
from perf.gpu import __main__ as gpu, gpu_tests
from perf.gpu.training_step import QUICK_VOCABULARY
from perf.record import Part
from perf.steps import QUICK
from pipelines import ROOT
from pipelines.commands import doctor
from pipelines.host.errors import UserError
from tests.support.commands import call
from tests.support.mutants import rejects

FAKES = {
    "good": """
from perf.measure import figure
def measure(turns, quick, device="here", n=1):
    return [
        figure("here ÷ there", [1.0, 2.0, 4.0], at_least=2.5),
        figure("number", [n] * turns, ""),
        figure("mine", [os.getpid()], device, at_most=2e9),
    ]
""",
    "broken": "def measure(turns, quick, device=''): return 1 / 0",
    "killed": "def measure(turns, quick): os._exit(9)",
    "long": """
def measure(turns, quick, device):
    for _ in range(1 << 28):  # some seconds
        pass
""",
    "stopped": "def measure(turns, quick, device): raise KeyboardInterrupt",
}


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    (tmp_path / "fakes").mkdir()
    for name, text in FAKES.items():
        (tmp_path / f"fakes/{name}.py").write_text(f'"""A fake."""\nimport os\n{text}')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(perf, "PARTS", {name: Part(f"fakes.{name}") for name in FAKES})
    monkeypatch.setattr(record, "git_revision", lambda: "abc")


@pytest.fixture
def in_this_process(monkeypatch):
    """Parts run in this process: in one of its own, each would import PyTorch again."""
    submit = lambda work, *given: SimpleNamespace(result=lambda: work(*given))  # noqa: E731
    pool = nullcontext(SimpleNamespace(submit=submit))
    monkeypatch.setattr(record, "ProcessPoolExecutor", lambda *_, **__: pool)
    monkeypatch.setattr(record, "CDLL", Mock())


def run(command, out, *arguments):
    """Exit code, entries and page."""
    with pytest.raises(SystemExit) as ended:
        call(command, *arguments, "--out", str(out))
    [file] = out.glob("*.json")
    return ended.value.code, json.loads(file.read_text()), file.with_suffix(".md").read_text()


@rejects('record.record: = "«failure→skipped»', "a GPU's part that fails, and exit code 0")
@pytest.mark.slow
def test_each_is_measured_in_a_process_of_its_own_and_a_failure_stops_no_other(fakes, tmp_path):
    code, entries, page = run("perf", tmp_path / "out", "good", "--turns", "3")
    good = entries["good"]
    assert code == 0
    assert [figure["met"] for figure in good["figures"]] == [False, None, True]
    assert good["figures"][2]["median"] != os.getpid()
    assert good["turns"] == 3 and good["seconds"] > 0 and not good["quick"]
    assert f"torch {measure.torch.__version__}" in good["machine"]["software"]
    assert all(good["machine"][fact] in page for fact in ("cpu", "cores", "gpu", "software"))
    code, entries, page = run("perf", tmp_path / "out", "broken", "killed")
    assert code == 1
    assert "in measure" in entries["broken"]["failure"] and "ZeroDivisionError" in page
    assert "BrokenProcessPool" in entries["killed"]["failure"]
    assert "here ÷ there" in page, "what was measured before is lost"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("fast", "{}", r"no measurement 'fast'; there are good, "),
        ("good", "{", r"perf\.json cannot be read"),
        ("good", "[1]", r"perf\.json cannot be read"),
        ("good", '{"good": {"figures": []}}', r"perf\.json cannot be read"),
    ],
)
def test_a_mistake_ends_it_before_anything_is_measured(fakes, tmp_path, name, content, words):
    (tmp_path / "perf.json").write_text(content)
    with pytest.raises(UserError, match=words):
        call("perf", name, "--out", str(tmp_path))


@pytest.fixture
def on_gpu(fakes, in_this_process, tmp_path, monkeypatch):
    """Calls the command with parts on a made-up GPU."""
    monkeypatch.setattr(gpu, "find_gpu", lambda: None)
    monkeypatch.setattr(gpu.torch.cuda, "get_device_name", lambda: "Some GPU")

    def run_parts(*arguments, given=None, goes_on=False, **parts):
        made = {
            name: Part(f"fakes.{fake}", "≥ 0.4", 1, given or {}, goes_on=goes_on)
            for name, fake in parts.items()
        }
        monkeypatch.setattr(gpu, "PARTS", made)
        return run("gpu", tmp_path / "out", *arguments)

    return run_parts


@rejects('record.figure_row: «verdict =→» "rehearsed"', "a rehearsal that shows met and missed")
@pytest.mark.parametrize(
    ("options", "file", "device", "verdict", "visible"),
    [
        ([], "Some_GPU", "cuda", "missed", "0"),
        (["--rehearse"], "rehearsal", "cpu", "rehearsed", ""),
    ],
)
def test_a_gpus_file_has_its_date_and_name_and_a_rehearsal_says_so(
    on_gpu, tmp_path, monkeypatch, options, file, device, verdict, visible
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    code, entries, page = on_gpu(*options, first="good")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    date = entries["first"]["date"][:10]
    assert code == 0 and names == [f"{date}_{file}.json", f"{date}_{file}.md"]
    assert "\nTarget: ≥ 0.4\n" in page
    assert f"| here ÷ there | 2 (1 to 4) | ratio | ≥ 2.5 | {verdict} |" in page
    assert entries["first"]["figures"][2]["unit"] == device
    assert (record.REHEARSAL in page) == entries["first"]["quick"] == bool(options)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible, "what a part can find"


def test_a_part_ends_when_its_time_is_over_and_what_is_not_reached_is_said(on_gpu):
    code, entries, page = on_gpu("--minutes", "0.002", first="long", second="good")
    assert code == 1 and list(entries) == ["first"]
    assert "TimeoutError" in entries["first"]["failure"]
    assert page.partition("## second")[2].startswith("\n\n≥ 0.4: not measured")
    assert on_gpu("--minutes", "1e-9", second="good")[0] == 1


def test_what_is_measured_is_kept_and_the_next_call_does_the_rest(on_gpu, monkeypatch):
    def numbers(*arguments, **more):
        code, entries, page = on_gpu(*arguments, **more)
        return code, [entry["figures"][1]["median"] for entry in entries.values()], page

    assert on_gpu(first="good", second="broken")[0] == 1
    again = {"first": "broken", "second": "good"}  # the first would fail, were it measured again
    assert numbers(**again, given={"n": 7})[:2] == (0, [1, 7])
    code, found, page = numbers("first", **again)
    assert code == 1, "a part that is named is measured again"
    assert found == [1, 7], "a failure now undoes what was measured"
    assert "ZeroDivisionError" in page and "here ÷ there" in page
    assert numbers(first="good", given={"n": 8}, goes_on=True)[1] == [8, 7]
    monkeypatch.setattr(record, "git_revision", lambda: "def")
    assert numbers(first="good", given={"n": 9})[1] == [9, 7], "of another commit"


@rejects("record.record: («→) if len(todo) > 1 else (»(", "a record written once, at the end")
def test_an_interruption_loses_nothing_that_was_measured(on_gpu, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        on_gpu(first="good", second="stopped", third="good")
    texts = {file.suffix: file.read_text() for file in (tmp_path / "out").glob("*")}
    assert texts.keys() == {".json", ".md"}
    assert list(json.loads(texts[".json"])) == ["first"]


def test_time_is_shared_out():
    parts, minute = list(gpu.PARTS.values()), 60
    assert record.time_for(parts[0], parts, 50 * minute) == 3 * minute
    assert record.time_for(parts[0], parts, 10) == 10
    text = list(gpu.PARTS).index("text")
    assert record.time_for(parts[text], parts[text:], 6 * minute) == 2 * minute
    assert sum(part.minutes for part in parts) <= 50, "--minutes by default"


@pytest.mark.parametrize("reason", ["none", "driver 470.1 does not support this PyTorch (13.0)"])
def test_without_a_gpu_it_ends_in_one_line_and_nothing_is_written(monkeypatch, tmp_path, reason):
    finding = doctor.Finding("GPU", reason, doctor.COSTS)
    monkeypatch.setattr(doctor, "gpu", lambda: finding)
    words = "no GPU on this machine" if reason == "none" else re.escape(reason)
    with pytest.raises(UserError, match=f"^{words}; .*--rehearse"):
        call("gpu", "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@rejects(
    "perf.measure: «torch.utils.benchmark import→time import perf_counter as»", "no wait for a GPU"
)
def test_the_clock_waits_for_a_gpu(monkeypatch):
    waits = []
    monkeypatch.setattr(measure.torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(measure.torch.accelerator, "synchronize", lambda: waits.append("gpu"))
    measure.in_turns({"a": lambda: waits.append("a"), "b": lambda: waits.append("b")}, 1)
    warm_up, turn = ["gpu", "b", "gpu", "a"], ["gpu", "a", "gpu", "gpu", "b", "gpu"]
    assert waits == warm_up + turn


@pytest.mark.slow
def test_everything_is_rehearsed(in_this_process, tmp_path, monkeypatch):
    """C++ is not made."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    for name in ("CUDA_VISIBLE_DEVICES", gpu_tests.DEVICE):  # which the command sets
        monkeypatch.setenv(name, "")
    code, entries, page = run("gpu", tmp_path, "--rehearse")
    assert code == 0, page
    assert list(entries) == list(gpu.PARTS)
    assert "not measured" not in page
    found = {each["name"]: each for entry in entries.values() for each in entry["figures"]}
    assert found["speed, free ÷ baseline"]["median"] > 0
    for name, target in {
        "1.5 B, baseline: model-FLOPs utilisation": "≥ 0.4",
        "1.5 B, free: model-FLOPs utilisation": "≥ 0.4",
        "124 M, free: model-FLOPs utilisation": "",
        "tiny, batch 2, sampled, free ÷ ours: tokens/s": "≥ 0.97",
        "tiny, batch 1, greedy, ours ÷ Hugging Face: tokens/s": "≥ 2",
        "64 tokens, memory, flex ÷ dense": "≤ 1",
    }.items():
        assert found[name]["target"] == target, name
    bound = found["1.5 B: FLOPs, free ÷ baseline"]["median"]
    assert bound > 1
    assert found["1.5 B: time, free ÷ baseline"]["at_most"] == pytest.approx(bound + 0.015)
    flops = flops_per_token(replace(QUICK, latent_bits=8), QUICK_VOCABULARY).total
    share = found["1.5 B, free: model-FLOPs utilisation"]["median"]
    reached = found["1.5 B: products"]["median"] * 1e12
    assert share == pytest.approx(found["1.5 B, free"]["median"] * flops / reached)
