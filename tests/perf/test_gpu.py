"""What a GPU is measured by: its peak, steps beside it, and the tests marked `gpu`."""

import os
from dataclasses import replace

import pytest

from ftmodel import positions
from ftmodel.costs.training import memory
from perf import steps
from perf.gpu import documents, gpu_tests, training_step
from perf.gpu.peaks import peak

FREE = replace(steps.QUICK, latent_bits=8)
ARMS = {"baseline": steps.QUICK, "free": FREE}


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


def test_tokens_of_all_micro_batches_count(uncompiled, monkeypatch):
    """Steps of 3 micro-batches of 2 sequences, in 2 s and 4 s."""
    seconds = {"baseline": [2.0], "free": [4.0]}
    monkeypatch.setattr(training_step, "in_turns", lambda *_: seconds)
    monkeypatch.setattr(steps, "products", lambda *_: 1e9)
    found = training_step.both_arms("1.5 B", ARMS, 64, 2, 3, "cpu", 1)
    speeds = {f.name: f.median for f in found}
    assert speeds["1.5 B, baseline"] == steps.STEPS_PER_TURN * 3 * 2 * FREE.context / 2
    assert speeds["1.5 B, free"] == speeds["1.5 B, baseline"] / 2


def test_both_masks_of_documents_are_measured_in_turns(uncompiled, monkeypatch):
    asked = []

    def work():
        asked.append(positions.flex_works())

    monkeypatch.setattr(positions, "flex_works", lambda *_: True)
    monkeypatch.setattr(steps, "training_work", lambda *_: work)
    monkeypatch.setattr(documents, "peak_bytes", lambda *_: 1)
    found = {each.name: each for each in documents.measure(1, True, "cpu")}
    assert asked == 2 * [False, True, True, False]
    assert found["64 tokens, memory, flex ÷ dense"].target == "≤ 1"


def test_the_presets_are_the_experiments():
    for preset, expected in {"1.5 B": (28, 1536, 131_072), "124 M": (12, 768, 49_152)}.items():
        config, vocabulary = training_step.shape(preset)
        assert (config.n_layers, config.d_model, vocabulary) == expected
        assert config.latent_bits == 16


def test_as_many_sequences_as_fit_beside_the_other_arms_weights():
    def needed(batch):
        free, baseline = (memory(ARMS[arm], 64, batch, True) for arm in ("free", "baseline"))
        return free.total + baseline.parameters + baseline.optimizer

    for room, most, expected in (
        *((needed(4), 8, 4), (needed(4) - 1, 8, 2), (needed(8), 8, 8), (needed(8), 4, 4)),
        (needed(1) / 2, 8, 1),
    ):
        assert training_step.sequences(ARMS, 64, most, room) == expected


BROKEN = """
def test_b(): assert 1 == 2
@pytest.fixture
def f(): 1 / 0
def test_d(f): pass
"""


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("@pytest.mark.parametrize('n', [1, 2])\ndef test_a(n): pass", None),
        (BROKEN, "assert 1 == 2.*test_b failed.*test_d failed"),
        ("def test_a(): pass\ndef test_c(): pytest.skip('no GPU')", "test_c skipped"),
        ("import nowhere", "nowhere"),
        ("", "no tests"),
    ],
)
def test_tests_that_pass_are_counted_and_all_others_fail_the_part(
    tmp_path, monkeypatch, text, failure
):
    (tmp_path / "tests").mkdir()
    file = tmp_path / f"tests/test_made_up_{len(text)}.py"
    file.write_text(f"import pytest\npytestmark = pytest.mark.gpu\n{text}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu\n")
    monkeypatch.setattr(gpu_tests, "ROOT", tmp_path)
    monkeypatch.setenv(gpu_tests.DEVICE, "")
    if failure:
        with pytest.raises(AssertionError, match=f"(?s){failure}"):
            gpu_tests.measure(1, False, "cuda")
    else:
        [figure] = gpu_tests.measure(1, False, "cuda")
        assert (figure.median, figure.met) == (2, True)
    assert os.environ[gpu_tests.DEVICE] == "cuda"
