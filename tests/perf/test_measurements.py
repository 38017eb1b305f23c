"""Each benchmark runs at toy size and says what it was made for; how fast, is its own matter."""

import logging
import os

import pytest
import torch

from ftmodel.costs.filtering import filter_memory
from ftmodel.inference.filtering import filtering_bound
from ftmodel.kernels import product
from ftmodel.model.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer
from perf import (
    cross_entropy,
    data_path,
    decoding,
    filtering,
    harness,
    latent,
    mapper,
    pipeline,
    products,
    steps,
    tokenize,
    training,
)
from perf.measure import peak_bytes
from pipelines.artifacts import corpus
from tests.perf.checks import quick_figures


def test_cross_entropy():
    found = quick_figures(cross_entropy)
    assert "V = 101, float32: options ÷ ours, time" in found
    assert "V = 101, bf16: options ÷ ours, time" not in found


@pytest.mark.slow
def test_loader_training_and_start():
    names = list(quick_figures(data_path))
    of_arms = ("training", "loader", "loader ÷ training")
    for arm in ("baseline", "H = 8"):
        assert {f"target_small, {arm}: {each}" for each in of_arms} <= {*names}
    assert names[-2:] == ["start on 1 M tokens: first batch", "start on 2 M tokens: first batch"]


def test_decoding():
    found = quick_figures(decoding)
    for rows in (1, 2):
        for how in ("greedy", "sampled"):
            at = f"tiny, batch {rows}, {how}"
            assert found[f"{at}, free ÷ ours: tokens/s"].target == "≥ 0.97"
            assert found[f"{at}, ours ÷ Hugging Face: tokens/s"].target == "≥ 2"
        at = f"tiny, batch {rows}, free, 64 tokens, last eighth ÷ first"
        assert f"{at}: time per token" in found


def test_the_filter_is_set_against_the_other_bounds():
    assert list(quick_figures(filtering)) == ["tiny: 2 particles ÷ bounds"]


@pytest.mark.parametrize(("particles", "inject"), [(4, "kv"), (64, "kv"), (16, "memory")])
def test_memory_of_the_filter_is_what_the_allocator_says(particles, inject):
    """Within 15 %: which rows are resampled, and so copied, is chance."""
    config = ModelConfig(4, 64, 4, 2, 96, 128, latent_bits=8, latent={"inject": inject})
    torch.manual_seed(0)
    model = FreeTransformer(config, 101).eval()
    tokens = torch.randint(101, (8, config.context + 1))

    def bound():
        draw = lambda: torch.rand(8, config.context, 8)  # noqa: E731
        filtering_bound(model, tokens[:, :-1], tokens[:, 1:], particles, draw)

    measured = sum(p.nbytes for p in model.parameters()) + peak_bytes(bound)
    assert filter_memory(config, 101, 8, particles) == pytest.approx(measured, rel=0.15)


def test_every_kind_of_request_is_asked_of_every_arm(monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    try:
        names = list(quick_figures(harness))
    finally:
        logging.disable(logging.NOTSET)
    for kind in ("choices", "letters", "single", "generate"):
        of_kind = [name.removeprefix(f"{kind}, ") for name in names if name.startswith(kind)]
        free = ["free, K = 1 ÷ ours: requests/s", "free, K = 8 ÷ ours: requests/s"]
        expected = ["ours", "ours ÷ backend 8: requests/s", *free]
        assert of_kind == expected[: 3 if kind == "generate" else 4]


def test_the_latent_beside_its_peers():
    pytest.importorskip("x_transformers", reason="a peer; `make bench` installs it")
    found = quick_figures(latent)
    assert found["D = 32, H = 8: time"].target
    assert "H = 6: ours ÷ free-transformer, speed" in found


def test_the_latent_without_peers_takes_memory_beyond_a_baselines_however_large_the_table():
    config = latent.replace(latent.QUICK, latent_bits=12)
    found = latent.beside_baseline("tiny", config, False, False, 1)
    assert [each.unit for each in found] == ["ratio", "ratio", "ratio", "MiB", "MiB"]
    (memory,) = (each for each in found if each.name == "tiny: peak memory")
    assert memory.median > 1


def test_the_dense_form_that_the_mapper_is_timed_against_has_the_same_gradients():
    """In float32, as they are timed."""
    arms = mapper.Arm(mapper.dense, 20, 9, 7), mapper.Arm(mapper.exact, 20, 9, 7)
    for arm in arms:
        arm()
    one, other = arms
    torch.testing.assert_close(one.o.grad, other.o.grad, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(one.table.grad, other.table.grad, atol=1e-5, rtol=1e-4)


def test_mapper():
    found = quick_figures(mapper)
    assert len(found) == 8
    at = "mapper, H = 8, D = 16, 32 tokens, dense ÷ exact"
    assert found[f"{at}: time"].at_least == 3
    assert found[f"{at}: peak memory beside the table's gradient"].at_least == 20
    taken = "sums, H = 8, D = 16, 32 tokens, taken: Khatri-Rao; by codes ÷ Khatri-Rao: time"
    assert taken in found


@pytest.mark.slow
def test_every_stage_reaches_its_work_and_dvc_has_nothing_to_do():
    first, *starts, last = (each.name for each in pipeline.measure(turns=1, quick=False))
    assert first == "import of ftmodel beyond torch's"
    assert starts == [f"start of stage {name}" for name in (*pipeline.STAGES, "inputs", "compose")]
    assert last == "dvc repro of quickstart, nothing to do (21 stages)"


def test_products_leave_the_choice_as_it_was():
    before = product.ONEDNN
    found = quick_figures(products)
    assert "target_small, free, not compiled: oneDNN ÷ PyTorch's, speed" in found
    assert product.ONEDNN is before


def test_each_arm_of_products_multiplies_by_its_own_library():
    seen = []
    for ours in (True, False):
        products.switched(lambda: seen.append(product.ONEDNN), ours)()
    assert seen == [True, False]


def test_stage_tokenize_and_the_search_for_overlap(monkeypatch):
    monkeypatch.setattr(corpus, "PART_BYTES", corpus.PART_BYTES)
    assert list(quick_figures(tokenize)) == [
        *("stage tokenize", "tokenizers alone", "stage ÷ tokenizers: speed", "search for overlap")
    ]


def test_training():
    pytest.importorskip("litgpt", reason="a peer; `make bench` installs it")
    found = quick_figures(training)
    assert found["float32, not compiled: ours ÷ the faster"].target == "≥ 1"
    assert found["bf16, fastest: ours, share of it"].median < 1


def test_the_first_compiled_step_finds_nothing_of_earlier_runs(monkeypatch, tmp_path):
    caches = []

    def step(*_):
        return lambda: caches.append(os.environ["TORCHINDUCTOR_CACHE_DIR"])

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(steps, "step", step)
    monkeypatch.setattr(steps, "litgpt", steps.llama)
    monkeypatch.setattr(training, "SHAPE", training.QUICK)
    monkeypatch.setattr(training, "peak", lambda *_: 1.0)
    *_, first = training.measure(turns=1, quick=False)
    assert first.name == "first step of ours, compiled, nothing cached"
    assert [cache == str(tmp_path) for cache in caches] == [False] + [True] * 24
