"""What is done for memory and speed changes neither what is trained nor what a checkpoint holds."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from training import RUN, check_close, losses, same, train_run

from ftmodel.config import ModelConfig
from ftmodel.costs import kept_activations
from ftmodel.objective import training_loss
from ftmodel.transformer import FreeTransformer
from pipelines.checkpoint import checkpoint_path, load_model, make_card
from pipelines.schema import Compute, load_experiment
from pipelines.shards import Shards
from pipelines.speed import blocks_of, speed_up

SHAPE = ModelConfig(4, 32, 4, 2, 48, context=24, latent_bits=6)
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


@pytest.mark.parametrize("bits", [0, 6])
def test_activation_checkpointing_changes_no_gradient(bits):
    """To the bit, with and without documents."""
    config = replace(SHAPE, latent_bits=bits)
    for documents in (None, torch.arange(24).expand(2, -1) // 7):
        plain, checkpointed = make(config=config), make(CHECKPOINTING, config)
        assert torch.equal(step(plain, documents), step(checkpointed, documents))
        pairs = zip(plain.named_parameters(), checkpointed.parameters(), strict=True)
        for (name, parameter), other in pairs:
            assert torch.equal(parameter.grad, other.grad), name


def test_activation_checkpointing_keeps_no_more_than_inputs_of_blocks():
    """All blocks are wrapped, the encoder's too: else what is kept would exceed what is counted by
    a block, and by more than RMSNorm's share on a CPU.
    """

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

    norms = 2 * 4 * 32 * 2 * 24
    less = kept(make(CHECKPOINTING))
    assert less <= kept_activations(SHAPE, 2, half=False, activation_checkpointing=True) + norms
    assert less < 0.2 * kept(make())


def test_names_in_a_state_dict_stay():
    model = make(Compute(activation_checkpointing=True, compile=True))
    plain = make()
    assert list(model.state_dict()) == list(plain.state_dict())
    model.load_state_dict(plain.state_dict())
    plain.load_state_dict(model.state_dict())
    assert len(blocks_of(model)) == 5


def test_a_checkpointed_run_equals_a_plain_one_and_shares_its_specification(workspace):
    """Weights to the bit; its checkpoint is gone on from without checkpointing."""
    weights, rows = train_run()
    model, card = load_model(checkpoint_path("smoke", RUN))
    shutil.rmtree("resume")
    again, again_rows = train_run(compute={"activation_checkpointing": True})
    assert same(weights, again)
    assert losses(rows) == losses(again_rows)
    loaded, loaded_card = load_model(checkpoint_path("smoke", RUN))
    assert loaded_card.spec_hash == card.spec_hash
    assert same(model.state_dict(), loaded.state_dict())


def test_memory_and_speed_are_no_part_of_a_runs_specification(workspace):
    experiment, shards = load_experiment(), Shards(Path("data/tokens/target"))
    before = make_card(experiment, RUN, shards).spec_hash
    experiment.compute.compile = experiment.compute.activation_checkpointing = True
    assert make_card(experiment, RUN, shards).spec_hash == before


@pytest.mark.slow  # inductor compiles C++
def test_a_compiled_run_agrees_and_a_plain_one_goes_on_from_it(workspace, monkeypatch):
    """Every figure of 20 steps within 1e-4, with and without activation checkpointing."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(workspace / "inductor"))
    weights, rows = train_run()
    for checkpointing in (False, True):
        shutil.rmtree("resume")
        compute = {"compile": True, "activation_checkpointing": checkpointing}
        compiled, compiled_rows = train_run(compute=compute)
        check_close(compiled_rows, rows)
        assert compiled.keys() == weights.keys()
        for name, weight in weights.items():
            torch.testing.assert_close(compiled[name], weight, atol=1e-4, rtol=1e-3)
    again, _ = train_run()  # its last checkpoint is that of the compiled run: nothing to train
    assert same(again, compiled)
