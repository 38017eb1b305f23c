"""`make gpu`: PyTorch for the driver, the parts that are left, and what a GPU is measured by."""

import os
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from ftmodel import positions
from ftmodel.costs.training import memory
from perf import gpu, training, training_slice
from perf.training import TOY_SHAPE, Step, baseline_of, gpu_peak
from pipelines import ROOT
from pipelines.commands import doctor
from pipelines.config.compose import compose_config
from pipelines.config.load import parse
from pipelines.host.command_line import perform
from pipelines.host.errors import UserError
from tests.support.mutants import rejects

FOUND = "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'; echo '| Driver Version: 580.159.03  {}  |'"


def program(path, shell):
    path.write_text(f"#!/bin/sh\n{shell}\n")
    path.chmod(0o755)


@rejects('Makefile: «=→»$$torch"', "a CPU build of PyTorch left where a GPU is")
@pytest.mark.parametrize(
    ("smi", "build", "words"),
    [
        (FOUND.format("CUDA Version: 13.0"), "2.13.0", ""),
        (FOUND.format("CUDA UMD Version: 14.1"), "2.13.0", ""),
        (FOUND.format("CUDA Version: 12.2"), "2.13.0+cu126", ""),
        (FOUND.format("CUDA Version: 11.8"), None, "needs a driver that supports CUDA 12"),
        ("echo No devices found; exit 6", None, "no GPU on this machine"),
    ],
)
def test_the_build_is_exactly_the_pinned_version_for_the_drivers_cuda(tmp_path, smi, build, words):
    """A machine that no build serves is one line. pip takes `==` to allow a CPU build."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "constraints.txt").write_text("torchmetrics==1.9.0\ntorch==2.13.0\n")
    (tmp_path / "pyproject.toml").touch()
    for folder in ("bin", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    program(tmp_path / "bin/nvidia-smi", smi)
    for name in ("pip", "python"):
        program(tmp_path / ".venv/bin" / name, f'echo {name} "$@" >> asked')
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    environment["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["make", "gpu"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    if build is None:
        assert done.returncode == 2 and not (tmp_path / "asked").exists()
        assert done.stderr.startswith("error: ") and words in done.stderr
        return
    asked, *_, last = (tmp_path / "asked").read_text().splitlines()
    index = ""
    if build.endswith("cu126"):
        index = " --extra-index-url https://download.pytorch.org/whl/cu126"
    assert asked == f"pip install --quiet torch==={build}{index}"
    assert last == "python -m perf.gpu --minutes 50"


@pytest.mark.parametrize("reason", ["none", "driver 470.1 does not support this PyTorch (13.0)"])
def test_without_a_gpu_it_ends_in_one_line_and_nothing_is_written(monkeypatch, tmp_path, reason):
    finding = doctor.Finding("GPU", reason, doctor.COSTS)
    monkeypatch.setattr(doctor, "gpu", lambda: finding)
    words = "no GPU on this machine" if reason == "none" else re.escape(reason)
    with pytest.raises(UserError, match=f"^{words}; .*--rehearse"):
        perform(gpu.main, "gpu", ["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_it_does_what_is_left_or_named_on_a_page_of_the_day_and_the_device(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(gpu, "check_gpu", lambda: None)
    monkeypatch.setattr(gpu.torch.cuda, "get_device_name", lambda: "NVIDIA H100 (80 GB)")
    monkeypatch.setattr(gpu, "is_measured", lambda file: file.stem in ("tests", "documents"))
    monkeypatch.setattr(gpu, "run_parts", lambda *given: asked.append(given))
    monkeypatch.setenv("GPU_TESTS_ON", "")
    for names in ([], ["tests"]):
        perform(gpu.main, "gpu", [*names, "--minutes", "7", "--out", str(tmp_path)])
    (parts, left, page, _, minutes), (_, named, *_) = asked
    assert left == ["step_1_5b", "step_124m", "decoding", "slice"] and named == ("tests",)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_NVIDIA_H100_80_GB", page.name) and minutes == 7
    assert os.environ["GPU_TESTS_ON"] == "cuda"
    assert "--device cuda" in " ".join(parts["step_1_5b"].arguments)
    assert not any("--quick" in part.arguments for part in parts.values())
    assert sum(part.minutes for part in parts.values()) <= 50, "--minutes by default"


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
    assert gpu_peak(device) == (tera and pytest.approx(tera * 1e12))


def test_the_presets_are_the_experiments():
    for preset, expected in {"1.5B": (28, 1536, 131_072), "124M": (12, 768, 49_152)}.items():
        step = training.preset_step(preset, "cpu", quick=False)
        config = step.config
        assert (config.n_layers, config.d_model, step.vocabulary) == expected
        assert config.latent_bits == 16 and step.half and step.compiled
        assert step.sequences * step.accumulate == training.PRESETS[preset][1]


def test_as_many_sequences_as_fit_beside_the_other_arms_weights():
    step = Step(TOY_SHAPE, vocabulary=64, half=True)

    def needed(sequences):
        free, baseline = (
            memory(arm.config, 64, sequences, True) for arm in (step, baseline_of(step))
        )
        return free.total + baseline.parameters + baseline.optimizer

    for room, most, expected in (
        (needed(4), 8, 4),
        (needed(4) - 1, 8, 2),
        (needed(8), 8, 8),
        (needed(8), 4, 4),
        (needed(1) / 2, 8, 1),
    ):
        assert training.fitting_sequences(replace(step, sequences=most), room) == expected


def test_utilisation_is_of_the_tokens_of_all_micro_batches_and_of_the_peak(monkeypatch):
    """Steps of 3 micro-batches of 2 sequences, in 2 s and 4 s."""
    step = Step(TOY_SHAPE, vocabulary=64, sequences=2, accumulate=3, device="cuda")
    monkeypatch.setattr(training, "our_step", lambda step: (training.nn.Identity(), None))
    monkeypatch.setattr(
        training, "in_turns", lambda arms, turns: {"free": [4.0], "baseline": [2.0]}
    )
    monkeypatch.setattr(training, "fastest_product", lambda *_: 1e9)
    monkeypatch.setattr(training, "peak_bytes", lambda *_: 1)
    monkeypatch.setattr(training, "gpu_peak", lambda name: 1e12)
    monkeypatch.setattr(training.torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    found = {each.name: each for each in training.beside_baseline("1.5B", step, 1, 0.4)}
    tokens = training.STEPS_PER_TURN * 3 * 2 * TOY_SHAPE.context
    assert found["1.5B, baseline"].values == [tokens / 2]
    assert found["1.5B, free"].values == [tokens / 4]
    flops = training.flops_per_token(TOY_SHAPE, 64).total
    share = found["1.5B, free: model-FLOPs utilisation"]
    assert share.at_least == 0.4
    assert share.values == pytest.approx([tokens / 4 * flops / 1e12])
    bound = found["1.5B: FLOPs, free ÷ baseline"].values[0]
    assert found["1.5B: time, free ÷ baseline"].at_most == pytest.approx(bound + 0.015)


def test_both_masks_of_documents_are_measured_in_turns(monkeypatch):
    asked = []

    def turn():
        asked.append(positions.flex_works())

    monkeypatch.setattr(positions, "flex_works", lambda *_: True)
    monkeypatch.setattr(training, "our_step", lambda *_: (None, turn))
    monkeypatch.setattr(training, "peak_bytes", lambda *_: 1)
    found = {each.name: each for each in training.masks_of_documents(1, "cpu", quick=True)}
    assert asked == 2 * [False, True, True, False]
    assert found["64 tokens, memory, flex ÷ dense"].at_most == 1


@pytest.mark.parametrize("online", [True, False])
def test_both_arms_of_the_slice_are_those_of_the_experiment(monkeypatch, online):
    monkeypatch.chdir(ROOT)
    state = doctor.OK if online else doctor.COSTS
    monkeypatch.setattr(doctor, "hub", lambda: doctor.Finding("hub", "", state))
    experiment = parse(compose_config(training_slice.settings(quick=False)), "conf/")
    baseline, free = (experiment.runs[name] for name in training_slice.RUNS.values())
    assert (baseline.kappa_bits, free.kappa_bits) == (None, 0.5)
    assert baseline.tokens == free.tokens == training_slice.TOKENS
    assert not baseline.budgets and not free.budgets
    data = experiment.data["fineweb_edu"]
    assert list(data.parts) == ["fineweb_edu" if online else "stdlib"]
    assert (data.max_bytes <= 200_000_000) == online


@pytest.mark.slow
def test_everything_is_rehearsed(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("CUDA_VISIBLE_DEVICES", "GPU_TESTS_ON"):  # which the command sets
        monkeypatch.setenv(name, "")
    with pytest.raises(SystemExit) as ended:
        perform(gpu.main, "gpu", ["--rehearse", "--out", str(tmp_path)])
    [page] = tmp_path.glob("*.md")
    text = page.read_text()
    assert ended.value.code == 0, text
    assert "not measured" not in text and "numbers mean nothing" in text
    for row in (
        r"\d+ passed",
        r"1.5B: time, free ÷ baseline .* rehearsed",
        r"124M, free: share of the product's speed",
        r"64 tokens, memory, flex ÷ dense .* ≤ 1 \| rehearsed",
        r"tiny, batch 2, sampled, free ÷ ours: tokens/s .* ≥ 0.97",
        r"tiny, batch 1, greedy, ours ÷ Hugging Face: tokens/s .* ≥ 2",
        r"speed, free ÷ baseline \| [\d.]+ \| ratio",
    ):
        assert re.search(row, text), row
