"""What is done for memory and speed changes neither what is trained nor what a checkpoint holds."""

import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from ftmodel.costs import kept_activations
from ftmodel.model.config import ModelConfig
from ftmodel.model.latent_design import LatentDesign
from ftmodel.model.objective import training_loss
from ftmodel.model.transformer import FreeTransformer
from pipelines.config.schema import Compute, Precision
from pipelines.train import progress
from pipelines.train.core.acceleration import Compiled, blocks_of, speed_up
from tests.support.kills import killed
from tests.support.training import check_close, losses, same, train_run

SHAPE = ModelConfig(4, 32, 4, 2, 48, context=24, latent_bits=6)
SEPARATE = replace(SHAPE, latent=LatentDesign(encoder="separate"))
CONFIGS = {
    "baseline": replace(SHAPE, latent_bits=0),
    "shared": SHAPE,
    "separate": SEPARATE,
    "memory": replace(SHAPE, latent=LatentDesign(inject="memory")),
    "spans": replace(SHAPE, latent=LatentDesign(per="every", every=5)),
    "recurrent": replace(SHAPE, latent=LatentDesign(prior="recurrent")),
    "linear": replace(SHAPE, latent=LatentDesign(map="linear", prior="learned")),
}
CHECKPOINTING = Compute(activation_checkpointing=True)


def make(compute=None, config=SHAPE):
    torch.manual_seed(0)
    model = FreeTransformer(config, 23)
    if compute:
        speed_up(model, compute)
    return model


def step(model, documents=None):
    """The loss of one batch, after its backward pass."""
    rng = torch.Generator().manual_seed(1)
    tokens = torch.randint(23, (2, 25), generator=rng)
    noise = torch.rand(2, 24, 6, generator=rng) if model.config.latent_bits else None
    loss = training_loss(model, tokens[:, :-1], tokens[:, 1:], noise, 0.1, documents).total
    loss.backward()
    return loss


@pytest.mark.parametrize("config", CONFIGS.values(), ids=[*CONFIGS])
def test_activation_checkpointing_changes_no_gradient(config):
    """To the bit, with and without documents."""
    for documents in (None, torch.arange(24).expand(2, -1) // 7):
        plain, checkpointed = make(config=config), make(CHECKPOINTING, config)
        assert torch.equal(step(plain, documents), step(checkpointed, documents))
        pairs = zip(plain.named_parameters(), checkpointed.parameters(), strict=True)
        for (name, parameter), other in pairs:
            assert torch.equal(parameter.grad, other.grad), name


@pytest.mark.parametrize("config", [SHAPE, SEPARATE], ids=["shared", "separate"])
def test_activation_checkpointing_keeps_no_more_than_inputs_of_blocks(config):
    """All blocks are wrapped, the encoder's too."""

    def kept(model):
        storages = {}

        def keep(tensor):
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with saved_tensors_hooks(keep, lambda tensor: tensor):
            model(torch.zeros(2, 24, dtype=torch.long), torch.rand(2, 24, 6))
        for parameter in model.parameters():
            storages.pop(parameter.untyped_storage().data_ptr(), None)
        return sum(storages.values())

    norms = 2 * 4 * 32 * 2 * 24  # what RMSNorm keeps on a CPU
    less = kept(make(CHECKPOINTING, config))
    assert less <= kept_activations(config, 2, half=False, activation_checkpointing=True) + norms
    assert less < 0.2 * kept(make(config=config))


@pytest.mark.parametrize(
    ("config", "blocks"), [(SHAPE, 5), (SEPARATE, 6)], ids=["shared", "separate"]
)
def test_names_in_a_state_dict_stay(config, blocks):
    model = make(Compute(activation_checkpointing=True, compile=True), config)
    plain = make(config=config)
    assert list(model.state_dict()) == list(plain.state_dict())
    model.load_state_dict(plain.state_dict())
    plain.load_state_dict(model.state_dict())
    assert len(blocks_of(model)) == blocks


def test_a_checkpointed_run_equals_a_plain_one(workspace, uninterrupted):
    weights, rows = train_run(compute={"activation_checkpointing": True})
    assert same(weights, uninterrupted[0])
    assert losses(rows) == losses(uninterrupted[1])


def is_compiled(model):
    return [block._compiled_call_impl is not None for block in blocks_of(model)]


@pytest.mark.parametrize(("wanted", "elements"), [(None, 1e20), (True, 1.0), (False, 1e20)])
def test_long_runs_are_compiled_unless_switched_off(wanted, elements, monkeypatch):
    """A failure of the compiler then means a run that is not compiled, but not if asked for."""
    monkeypatch.setenv("CXX", sys.executable)  # something that is there
    model = make()
    with torch._dynamo.config.patch(suppress_errors=wanted is not None):  # as of a run before
        compiled = speed_up(model, Compute(compile=wanted), elements)
        assert compiled is (Compiled.nothing if wanted is False else Compiled.blocks)
        assert torch._dynamo.config.suppress_errors is (wanted is None)
    assert all(is_compiled(model)) is any(is_compiled(model)) is (wanted is not False)


@pytest.mark.parametrize(
    ("alone", "checkpointing", "layers", "whole"),
    [
        (True, False, 4, True),
        (False, False, 4, False),
        (True, True, 4, False),
        (True, False, 6, False),
    ],
)
def test_a_shallow_model_of_one_worker_is_compiled_as_a_whole(alone, checkpointing, layers, whole):
    model = make(config=replace(SHAPE, n_layers=layers))
    compute = Compute(activation_checkpointing=checkpointing, compile=True)
    compiled = speed_up(model, compute, alone=alone)
    whole = alone and not checkpointing and layers == 4
    assert compiled is (Compiled.loss if whole else Compiled.blocks)
    assert all(is_compiled(model)) is any(is_compiled(model)) is not whole


def test_short_runs_are_not_compiled_and_none_without_a_compiler(monkeypatch):
    model = make()
    assert not speed_up(model, Compute(), 1e8)
    monkeypatch.setenv("CXX", "no such compiler")
    assert not speed_up(model, Compute(), 1e20)
    assert not any(is_compiled(model))


def test_a_checkpoint_after_the_first_step_is_no_part_of_what_compilation_takes(monkeypatch):
    """Nor is the loader, and a step is all of its micro-batches. 30 s in two micro-batches, a
    checkpoint of 7 s, then steps of 4 s.
    """
    clock, trainer, tracking = [0.0], MagicMock(global_step=5), MagicMock()
    monkeypatch.setattr(progress, "perf_counter", lambda: clock[0])
    compile_time = progress.CompileTime(tracking, "run", "blocks")
    compile_time.on_train_start(trainer, None)
    for loaded, micro, after in ((1, 15, 7), (2, 2, 0), (3, 2, 0)):
        for index in range(2):
            clock[0] += loaded
            compile_time.on_train_batch_start(trainer, None, {}, index)
            clock[0] += micro
            trainer.global_step += index
            compile_time.on_train_batch_end(trainer, None, {}, {}, index)
        clock[0] += after
    # the second micro-batch of a step is loaded in it: 31 s and 6 s
    tracking.tag.assert_called_once_with("compile_seconds", "25.0")


@pytest.mark.slow  # inductor compiles C++
@pytest.mark.parametrize(("what", "graphs"), [("blocks", 3), ("model and loss", 1)])
def test_a_compiled_run_agrees_and_a_plain_one_goes_on_from_it(
    workspace, uninterrupted, monkeypatch, capsys, what, graphs
):
    """Every figure of 20 steps within 1e-4, the last 10 of them in a plain run."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(Path("inductor").resolve()))
    torch._dynamo.reset()  # what other tests of this process have compiled does not count
    torch._dynamo.utils.counters.clear()
    with killed(10):
        train_run(compute={"compile": True, "activation_checkpointing": what == "blocks"})
    assert f" {what} compiled in" in capsys.readouterr().err
    # of blocks: any, the one that reads z, the encoder's
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
    resumed, rows = train_run()
    check_close(rows, uninterrupted[1])
    assert resumed.keys() == uninterrupted[0].keys()
    for name, weight in uninterrupted[0].items():
        torch.testing.assert_close(resumed[name], weight, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    "compile", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "compiled"]
)
def test_a_bf16_run_follows_a_float32_run(workspace, uninterrupted, monkeypatch, compile):
    """At each of 20 steps within 0.015 nats and 0.006 bits, three times what was measured of a
    compiled run: 0.0044 nats and 0.0018 bits.
    """
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(Path("inductor").resolve()))
    _, half = train_run(compute={"precision": Precision.bf16, "compile": compile})
    full = uninterrupted[1]
    assert len(full) == len(half) == 20
    assert losses(full) != losses(half)
    for row, wanted in zip(half, full, strict=True):
        for key, tolerance in (("loss_nats", 0.015), ("ce_nats", 0.015), ("kl_bits", 0.006)):
            assert float(row[key]) == pytest.approx(float(wanted[key]), abs=tolerance), key
