"""What is done for memory and speed changes neither what is trained nor what a checkpoint holds."""

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from ftmodel.config import LatentDesign, ModelConfig
from ftmodel.layers import Block
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import training_loss
from pipelines.config.schema import Compute, Precision
from pipelines.host import compiler
from pipelines.host.errors import UserError
from pipelines.train.core.acceleration import Compiled, blocks_of, speed_up, worth_compiling
from tests.support.arrivals import arrives
from tests.support.kills import killed
from tests.support.mutants import rejects
from tests.support.training import check_close, losses, train_run

SHAPE = ModelConfig(4, 32, 4, 2, 48, context=24, latent_bits=6)
CONFIGS = {"baseline": replace(SHAPE, latent_bits=0), "shared": SHAPE} | {
    name: replace(SHAPE, latent=LatentDesign(**design))
    for name, design in {
        "separate": {"encoder": "separate"},
        "memory": {"inject": "memory"},
        "spans": {"per": "every", "every": 5},
        "recurrent": {"prior": "recurrent"},
        "linear": {"map": "linear", "prior": "learned"},
    }.items()
}


def make(compute=None, config=SHAPE):
    torch.manual_seed(0)
    model = FreeTransformer(config, 23)
    if compute:
        speed_up(model, compute)
    return model


def step(model, documents=None):
    rng = torch.Generator().manual_seed(1)
    tokens = torch.randint(23, (2, 25), generator=rng)
    noise = torch.rand(2, 24, 6, generator=rng) if model.config.latent_bits else None
    loss = training_loss(model, tokens[:, :-1], tokens[:, 1:], noise, 0.1, documents).total
    loss.backward()
    return loss


@arrives("compute", "activation_checkpointing")
def test_activation_checkpointing_computes_each_block_twice(monkeypatch):
    forward, calls = Block.forward, []
    monkeypatch.setattr(Block, "forward", lambda *a, **k: calls.append(1) or forward(*a, **k))
    for checkpointing, times in ((False, 1), (True, 2)):
        calls.clear()
        model = make(Compute(activation_checkpointing=checkpointing))
        step(model)
        assert len(calls) == times * len(blocks_of(model))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=[*CONFIGS])
def test_activation_checkpointing_changes_no_gradient(config):
    """To the bit, with and without documents; and no name."""
    for documents in (None, torch.arange(24).expand(2, -1) // 7):
        plain = make(config=config)
        checkpointed = make(Compute(activation_checkpointing=True), config)
        assert [*checkpointed.state_dict()] == [*plain.state_dict()]
        assert torch.equal(step(plain, documents), step(checkpointed, documents))
        pairs = zip(plain.named_parameters(), checkpointed.parameters(), strict=True)
        for (name, parameter), other in pairs:
            assert torch.equal(parameter.grad, other.grad), name


@pytest.fixture
def compiler_works(monkeypatch):
    monkeypatch.setattr(compiler, "compiler_failure", lambda: None)


def is_compiled(model):
    return [block._compiled_call_impl is not None for block in blocks_of(model)]


@pytest.mark.parametrize(
    ("wanted", "elements", "failure", "compiled"),
    [
        (None, 3e9, None, Compiled.blocks),
        (True, 1.0, None, Compiled.blocks),
        (False, 1e20, None, Compiled.nothing),
        (None, 3e9 - 1, None, Compiled.nothing),
        (None, 1e20, "no Python.h", Compiled.nothing),
    ],
)
def test_long_runs_are_compiled_unless_switched_off(
    wanted, elements, failure, compiled, monkeypatch, capsys
):
    """From 10⁹ elements a thread on. A failure of the compiler then means a run that is not
    compiled, but not if asked for.
    """
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(compiler, "trial", lambda: failure)
    monkeypatch.setattr(compiler, "environment", lambda: f"of a test: {failure}")
    model = make()
    with torch._dynamo.config.patch(suppress_errors=wanted is not None):  # as of a run before
        assert speed_up(model, Compute(compile=wanted), elements) is compiled
        assert torch._dynamo.config.suppress_errors is (wanted is None)
    assert all(is_compiled(model)) is any(is_compiled(model)) is bool(compiled)
    said = capsys.readouterr().err
    assert said == ("nothing is compiled, and training takes longer: no Python.h\n" * bool(failure))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [worth_compiling(elements) for elements in (3e12 - 1, 3e12)] == [False, True]


@rejects("compiler.compiler_failure: «success.touch→»", "the compiler tried before every training")
@rejects("compiler.environment: VARIABLES«→[:0]»", "a compiler taken for another")
@pytest.mark.parametrize("cause", ["compiler", "headers", "cache", "path"])
def test_a_compiler_is_tried_once_and_its_failure_ends_with_its_cause(monkeypatch, tmp_path, cause):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    tried = []
    monkeypatch.setattr(compiler, "trial", lambda: tried.append(1))
    assert compiler.compiler_failure() is compiler.compiler_failure() is None
    assert len(tried) == 1
    with monkeypatch.context() as patch:
        (tmp_path / "file").touch()
        match cause:
            case "compiler":
                patch.setenv("CXX", "/bin/false")
                patch.setattr(compiler, "trial", lambda: "exit code 1")
            case "headers":
                patch.setenv("CPATH", "/nowhere")
                patch.setattr(compiler, "trial", lambda: "no Python.h")
            case "cache":
                patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file/cache"))
            case "path":
                (tmp_path / "t m p").mkdir()
                patch.setattr(tempfile, "tempdir", str(tmp_path / "t m p"))
        for _ in range(2):
            with pytest.raises(UserError, match=r"^compute\.compile: "):
                speed_up(make(), Compute(compile=True))
    assert compiler.compiler_failure() is None and len(tried) == 1


@pytest.mark.slow  # inductor starts
@rejects("compiler.TRIAL: «sys.exit→print»", "a compiler that fails taken for one that works")
@pytest.mark.parametrize("cxx", ["/bin/false", "/bin/true"])
def test_a_compiler_that_fails_is_one_line(monkeypatch, tmp_path, cxx):
    """The one without output is taken for a compiler until what it should have made is missing."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", cxx)
    reason = compiler.trial()
    assert reason and "\n" not in reason


@arrives("compute", "activation_checkpointing compile")
@pytest.mark.usefixtures("compiler_works")
@pytest.mark.parametrize(
    ("alone", "checkpointing", "layers"),
    [(True, False, 4), (False, False, 4), (True, True, 4), (True, False, 6)],
)
def test_a_shallow_model_of_one_worker_is_compiled_as_a_whole(alone, checkpointing, layers):
    model = make(config=replace(SHAPE, n_layers=layers))
    names = [*model.state_dict()]
    compute = Compute(activation_checkpointing=checkpointing, compile=True)
    compiled = speed_up(model, compute, alone=alone)
    whole = (alone, checkpointing, layers) == (True, False, 4)
    assert compiled is (Compiled.loss if whole else Compiled.blocks)
    assert all(is_compiled(model)) is any(is_compiled(model)) is not whole
    assert [*model.state_dict()] == names


@pytest.mark.slow  # inductor compiles C++
@pytest.mark.parametrize(("what", "graphs"), [("blocks", 3), ("model and loss", 1)])
def test_a_compiled_run_agrees_and_a_plain_one_goes_on_from_it(
    workspace, trained, monkeypatch, capsys, what, graphs
):
    """Every figure of 20 steps within 1e-4, the last 10 of them in a plain run."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(Path("inductor").resolve()))
    torch._dynamo.reset()  # what other tests of this process have compiled does not count
    torch._dynamo.utils.counters.clear()
    with killed(10):
        train_run(compute={"compile": True, "activation_checkpointing": what == "blocks"})
    assert f"compiles {what} (compute.compile)" in capsys.readouterr().err
    # of blocks: any, the one that reads z, the encoder's
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
    resumed, rows = train_run()
    check_close(rows, trained.rows)
    assert resumed.keys() == trained.weights.keys()
    for name, weight in trained.weights.items():
        torch.testing.assert_close(resumed[name], weight, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    "compile", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "compiled"]
)
def test_a_bf16_run_follows_a_float32_run(workspace, trained, monkeypatch, compile):
    """At each of 20 steps within 0.015 nats and 0.006 bits, three times what was measured of a
    run that inductor compiled (0.0044 nats and 0.0018 bits); here no C++ is.
    """
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    _, half = train_run(compute={"precision": Precision.bf16, "compile": compile})
    full = trained.rows
    assert len(full) == len(half) == 20
    assert losses(full) != losses(half)
    for row, wanted in zip(half, full, strict=True):
        for key, tolerance in (("loss_nats", 0.015), ("ce_nats", 0.015), ("kl_bits", 0.006)):
            assert float(row[key]) == pytest.approx(float(wanted[key]), abs=tolerance), key
