"""`python -m perf.gpu`: what is measured is kept, what fails is said, and time is kept to."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from ftmodel.costs import flops_per_token, memory
from perf import alone, measure
from perf.gpu import __main__ as command, gpu_tests, record, training_step
from perf.gpu.__main__ import Part
from perf.gpu.peaks import peak
from pipelines import doctor
from pipelines.common.atomic_files import ROOT
from pipelines.common.errors import UserError
from tests.perf.checks import quick_figures
from tests.support.commands import call
from tests.support.mutants import rejects

FAKES = {
    "good": """
from perf.measure import figure
def measure(turns, quick, device, n=0):
    return [
        figure("fast", [0.5], "", at_least=0.4),
        figure("slow", [0.3], "", at_least=0.4),
        figure("number", [n], device),
    ]
""",
    "broken": "def measure(turns, quick, device): return 1 / 0",
    "endless": """
def measure(turns, quick, device):
    while True:
        pass
""",
}


def submit(work, module, turns, quick, limit, given):
    """In the place of the pool of one process: a part runs in this one."""
    return SimpleNamespace(result=lambda: work(module, turns, quick, None, given))


HEAD = {"device": "Some GPU", "driver": "580.1", "cuda": "13.0", "commit": "abc"}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Calls the command with parts on a made-up GPU; gives its exit code, the record, the page."""
    (tmp_path / "gpu_fakes").mkdir()
    for name, text in FAKES.items():
        (tmp_path / f"gpu_fakes/{name}.py").write_text(f'"""A fake."""\n{text}\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(command, "find_gpu", lambda: None)
    pool = nullcontext(SimpleNamespace(submit=submit))
    monkeypatch.setattr(alone, "ProcessPoolExecutor", lambda *_, **__: pool)
    monkeypatch.setattr(alone, "end_with_parent", lambda: None)
    monkeypatch.setattr(alone, "commit", lambda: "abc")
    head = record.header(rehearse=True) | HEAD | {"rehearsal": False}
    monkeypatch.setattr(record, "header", lambda rehearse: head | {"rehearsal": rehearse})

    def run_parts(*arguments, parts=None, **more):
        given = {name: Part(f"gpu_fakes.{module}", 1, "≥ 0.4") for name, module in more.items()}
        monkeypatch.setattr(command, "PARTS", parts or given)
        with pytest.raises(SystemExit) as ended:
            call("gpu", *arguments, "--out", str(tmp_path / "out"))
        [file] = (tmp_path / "out").glob("*.json")
        return ended.value.code, json.loads(file.read_text()), file.with_suffix(".md").read_text()

    return run_parts


def test_targets_are_met_or_missed_beside_what_they_were_measured_on(run, tmp_path):
    code, said, page = run(first="good")
    assert code == 0
    assert [said[key] for key in HEAD] == list(HEAD.values())
    assert [f.name for f in sorted((tmp_path / "out").iterdir())] == [
        f"{said['date']}_Some_GPU.{suffix}" for suffix in ("json", "md")
    ]
    assert page.startswith(f"# Some GPU, {said['date']}\n")
    for fact in ("device", "driver", "torch", "cuda", "precision", "commit", "date"):
        assert f"\n- {fact}: {said[fact]}\n" in page
    assert "| first | fast ≥ 0.4 | 0.5 | met |\n| first | slow ≥ 0.4 | 0.3 | missed |" in page
    assert [f["met"] for f in said["parts"]["first"]["figures"]] == [True, False, None]
    assert said["parts"]["first"]["figures"][2]["unit"] == "cuda"
    assert "rehears" not in page.lower()


@rejects(
    'failed |= "figures" not in entry',
    'failed |= "figures" not in entry and "skipped" in entry',
    "a GPU's part that fails, and exit code 0",
)
def test_a_part_that_fails_or_is_not_reached_is_recorded_and_the_others_go_on(run):
    code, said, page = run("--minutes", "1e-9", first="good")
    assert code == 1 and said["parts"] == {} and "not measured: not tried" in page
    code, said, page = run(first="broken", second="good")
    assert code == 1
    assert "in measure" in said["parts"]["first"]["failure"]
    assert "| first | ≥ 0.4 | | not measured: ZeroDivisionError: division by zero |" in page
    assert "| second | fast ≥ 0.4 | 0.5 | met |" in page
    assert page.count("ZeroDivisionError") > 1, "no traceback"


def test_what_is_measured_is_kept_and_the_next_call_does_the_rest(run, monkeypatch):
    def medians(*arguments, parts):
        code, said, page = run(*arguments, parts=parts)
        return code, [p["figures"][2]["median"] for p in said["parts"].values()], page

    assert run(first="good", second="broken")[0] == 1
    parts = {
        "first": Part("gpu_fakes.broken", 1, "≥ 0.4"),  # would fail, if it were measured again
        "second": Part("gpu_fakes.good", 1, "≥ 0.4", {"n": 7}),
    }
    assert medians(parts=parts)[:2] == (0, [0, 7])
    code, found, page = medians("first", parts=parts)
    assert code == 1, "a part that is named is measured again"
    assert found == [0, 7], "a failure now undoes what was measured"
    assert "measured; when tried again: ZeroDivisionError" in page
    goes_on = {"first": Part("gpu_fakes.good", 1, "", {"n": 8}, goes_on=True)}
    assert medians(parts=goes_on)[1][0] == 8
    head = record.header(rehearse=False)
    monkeypatch.setattr(record, "header", lambda rehearse: head | {"commit": "def"})
    monkeypatch.setattr(alone, "commit", lambda: "def")
    another_commit = {"first": Part("gpu_fakes.good", 1, "", {"n": 9})}
    assert medians(parts=another_commit)[1][0] == 9


@rejects(
    "        record.write(path,",
    "        len(todo) > 1 or record.write(path,",
    "a GPU's record that is written once, at the end",
)
def test_an_interruption_loses_nothing_that_was_measured(run, monkeypatch, tmp_path):
    really = command.alone

    def interrupted(module, *arguments, **options):
        if module == "gpu_fakes.broken":
            raise KeyboardInterrupt
        return really(module, *arguments, **options)

    monkeypatch.setattr(command, "alone", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(first="good", second="broken", third="good")
    texts = {file.suffix: file.read_text() for file in (tmp_path / "out").glob("*")}
    assert texts.keys() == {".json", ".md"}
    assert list(json.loads(texts[".json"])["parts"]) == ["first"]
    assert "| third | ≥ 0.4 | | not measured: not tried |" in texts[".md"]


@pytest.mark.slow
def test_a_part_is_ended_when_its_time_is_over_and_the_next_has_its_own(run, monkeypatch):
    monkeypatch.setattr(alone, "ProcessPoolExecutor", ProcessPoolExecutor)
    parts = {
        "first": Part("gpu_fakes.endless", 0.1, ""),
        "second": Part("gpu_fakes.good", 1, "≥ 0.4"),
    }
    code, said, page = run(parts=parts)
    assert code == 1
    assert "not measured: TimeoutError: not done after 6 s" in page
    assert "figures" in said["parts"]["second"]


def test_time_is_shared_out():
    names, minute = list(command.PARTS), 60
    assert command.limit(names, 50 * minute) == command.PARTS["tests"].minutes * minute
    assert command.limit(names, 10) == 10
    text = names.index("text")
    assert command.limit(names[text:], 6 * minute) == 2 * minute
    assert command.limit(names[text + 1 :], 6 * minute) == 3 * minute
    assert command.limit(["slice_free"], 6 * minute) == 6 * minute
    assert sum(part.minutes for part in command.PARTS.values()) <= 50, "--minutes by default"


@rejects(
    "'rehearsed' if rehearsal else verdict",
    "verdict",
    "a rehearsal on a GPU that shows met and missed",
)
def test_a_rehearsal_says_so_and_has_a_file_of_its_own(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    code, said, page = run("--rehearse", first="good")
    assert code == 0 and said["rehearsal"] is True
    assert (tmp_path / "out" / f"{said['date']}_rehearsal.json").exists()
    assert record.REHEARSAL in page and record.REHEARSAL in capsys.readouterr().err
    assert page.startswith("# Rehearsal, ")
    assert "| first | fast ≥ 0.4 | 0.5 | rehearsed |" in page
    assert said["parts"]["first"]["figures"][2]["unit"] == "cpu" and said["parts"]["first"]["quick"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "", "a part could find a GPU"


@pytest.mark.parametrize("reason", ["none", "driver 470.1 does not serve this PyTorch (13.0)"])
def test_without_a_gpu_it_ends_in_one_line_and_nothing_is_written(monkeypatch, tmp_path, reason):
    finding = doctor.Finding("GPU", reason, doctor.COSTS)
    monkeypatch.setattr(doctor, "gpu", lambda: finding)
    words = "no GPU on this machine" if reason == "none" else re.escape(reason)
    with pytest.raises(UserError, match=f"^{words}; .*--rehearse") as said:
        call("gpu", "--out", str(tmp_path / "out"))
    assert "\n" not in str(said.value) and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("device", "tera"),
    [
        ("NVIDIA H200", 989.4),
        ("NVIDIA H200 NVL", 835.5),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A10G", None),
    ],
)
def test_the_peak_is_that_of_dense_products_by_name(device, tera):
    assert peak(device) == (tera and pytest.approx(tera * 1e12))


@pytest.fixture
def uncompiled(monkeypatch):
    monkeypatch.setattr("perf.steps.compiled", lambda blocks: None)


def figures_of(preset):
    def measure(turns, quick):
        return training_step.measure(turns, quick, "cpu", preset)

    return quick_figures(SimpleNamespace(measure=measure))


@pytest.mark.parametrize(("preset", "target"), [("1.5 B", "≥ 0.4"), ("124 M", "")])
def test_a_step_is_held_against_peak_flops_and_planner(uncompiled, monkeypatch, preset, target):
    monkeypatch.setattr(training_step, "products", lambda *_: 1e9)
    found = figures_of(preset)
    for arm in ("baseline", "free"):
        assert found[f"{preset}, {arm}: model-FLOPs utilisation"].target == target
    bound = found[f"{preset}: FLOPs, free ÷ baseline"].median
    assert bound > 1
    assert found[f"{preset}: time, free ÷ baseline"].at_most == pytest.approx(bound + 0.015)
    config = training_step.replace(training_step.steps.QUICK, latent_bits=8)
    flops = flops_per_token(config, training_step.QUICK_VOCABULARY).total
    share = found[f"{preset}, free: model-FLOPs utilisation"].median
    assert share == pytest.approx(found[f"{preset}, free"].median * flops / 1e9)


@pytest.mark.parametrize("fits", [True, False])
def test_a_step_that_does_not_fit_is_tried_in_smaller_micro_batches(monkeypatch, fits):
    too_large = training_step.torch.OutOfMemoryError
    tried = Mock(side_effect=[too_large, []] if fits else too_large)
    monkeypatch.setattr(training_step, "side_by_side", tried)
    with nullcontext() if fits else pytest.raises(too_large):
        training_step.measure(1, True, "cpu", "1.5 B")
    assert [call.args[3:5] for call in tried.call_args_list] == [(2, 1), (1, 2)]


def test_tokens_of_all_micro_batches_count(uncompiled, monkeypatch):
    """Steps of 3 micro-batches of 2 sequences, in 2 s and 4 s."""
    seconds = {"baseline": [2.0], "free": [4.0]}
    monkeypatch.setattr(training_step, "in_turns", lambda *_: seconds)
    monkeypatch.setattr(training_step, "products", lambda *_: 1e9)
    free = training_step.replace(training_step.steps.QUICK, latent_bits=8)
    configs = {"baseline": training_step.replace(free, latent_bits=0), "free": free}
    found = training_step.side_by_side("1.5 B", configs, 64, 2, 3, "cpu", 1)
    speeds = {f.name: f.median for f in found}
    assert speeds["1.5 B, baseline"] == training_step.steps.IN_A_ROW * 3 * 2 * free.context / 2
    assert speeds["1.5 B, free"] == speeds["1.5 B, baseline"] / 2


def test_the_presets_are_the_experiments():
    config, vocabulary = training_step.shape("1.5 B")
    assert (config.n_layers, config.d_model, config.latent_bits) == (28, 1536, 16)
    assert vocabulary == 131_072
    config, vocabulary = training_step.shape("124 M")
    assert (config.n_layers, config.d_model, vocabulary) == (12, 768, 49_152)


def test_as_many_sequences_as_fit_beside_the_other_arms_weights():
    free, vocabulary = training_step.steps.QUICK, training_step.QUICK_VOCABULARY
    free = training_step.replace(free, latent_bits=8)
    configs = {"baseline": training_step.replace(free, latent_bits=0), "free": free}

    def needed(batch):
        arms = [memory(configs[arm], vocabulary, batch, True) for arm in ("free", "baseline")]
        return arms[0].total + arms[1].parameters + arms[1].optimizer

    for room, most, expected in (
        *((needed(4), 8, 4), (needed(4) - 1, 8, 2), (needed(8), 8, 8), (needed(8), 4, 4)),
        (needed(1) / 2, 8, 1),
    ):
        assert training_step.sequences(configs, vocabulary, most, room) == expected


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder with one file of tests, of this text, as the tests to be run."""

    def make(text):
        (tmp_path / "tests").mkdir()
        file = tmp_path / f"tests/test_made_up_{len(text)}.py"
        file.write_text(f"import pytest\npytestmark = pytest.mark.gpu\n{text}\n")
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu\n")
        monkeypatch.setattr(gpu_tests, "ROOT", tmp_path)
        monkeypatch.setenv(gpu_tests.DEVICE, "")

    return make


def test_tests_that_pass_are_counted(checkout):
    checkout("@pytest.mark.parametrize('n', [1, 2])\ndef test_a(n): pass")
    [figure] = gpu_tests.measure(1, False, "cuda")
    assert (figure.median, figure.met) == (2, True)
    assert os.environ[gpu_tests.DEVICE] == "cuda"


BROKEN = """
def test_b(): assert 1 == 2
@pytest.fixture
def f(): 1 / 0
def test_d(f): pass
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BROKEN, "assert 1 == 2.*test_b failed.*test_d failed"),
        ("def test_a(): pass\ndef test_c(): pytest.skip('no GPU')", "test_c skipped"),
        ("import nowhere", "nowhere"),
        ("", "no tests"),
    ],
)
def test_tests_that_do_not_pass_fail_the_part(checkout, text, words):
    checkout(text)
    with pytest.raises(AssertionError, match=f"(?s){words}"):
        gpu_tests.measure(1, False, "cuda")


@rejects(
    "        torch.cuda.synchronize()\n",
    "        pass\n",
    "a GPU's time without waiting for the GPU",
)
def test_the_clock_waits_for_a_gpu(monkeypatch):
    waits = []
    monkeypatch.setattr(measure.torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(measure.torch.cuda, "synchronize", lambda: waits.append("gpu"))
    measure.in_turns({"a": lambda: waits.append("a"), "b": lambda: waits.append("b")}, 1)
    warm_up, turn = ["gpu", "b", "gpu", "a"], ["gpu", "a", "gpu", "gpu", "b", "gpu"]
    assert waits == warm_up + turn


@pytest.mark.slow
def test_everything_is_rehearsed(tmp_path):
    options = ["--rehearse", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "perf.gpu", *options], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    [file] = tmp_path.glob("*.json")
    said = json.loads(file.read_text())
    assert list(said["parts"]) == list(command.PARTS)
    names = {f["name"] for entry in said["parts"].values() for f in entry["figures"]}
    assert {"tests passed", "1.5 B, free: model-FLOPs utilisation", "free: speed"} <= names
    assert "speed, free ÷ baseline" in names
    [picture] = said["parts"]["slice_free"]["pictures"]
    assert (tmp_path / picture).exists()
    assert "not measured" not in file.with_suffix(".md").read_text()
