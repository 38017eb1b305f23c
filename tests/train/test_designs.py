"""A run with a design of its own, from training to what is exported of it."""

import shutil

import pytest
import torch
from omegaconf import OmegaConf

from ftmodel.model.latent_design import Encoder, FreeBits, Inject, LatentDesign, Map, Per, Prior
from pipelines.artifacts.checkpoint import load_model
from pipelines.artifacts.paths import checkpoint_path
from pipelines.common.errors import UserError
from pipelines.config.load import load_experiment
from pipelines.config.schema import DesignChanges
from pipelines.evaluate.stage import measure
from pipelines.export.build import main as export
from pipelines.train.core.curve_callback import CurveCallback
from tests.support.remote_code import load, modules_in
from tests.support.training import RUN, losses, same, tracked_runs, train_run

WORDS = {
    "inject": "kv_all",
    "map": "linear",
    "prior": "learned",
    "free_bits": "sequence",
    "gradient": "score",
}
DESIGNS = {
    "other values": WORDS,
    "separate encoder": {"encoder": "separate", "encoder_layers": 3, "map": "linear"},
    "spans": {"per": "every", "every": 4, "prior": "recurrent"},
    "memory": {"inject": "memory", "prior": "recurrent"},
    "sequence": {"per": "sequence", "map": "linear", "inject": "residual", "free_bits": "batch"},
    "embedding": {"inject": "embedding", "free_bits": "position", "gradient": "sampled_code"},
}


@pytest.mark.parametrize("words", DESIGNS.values(), ids=[*DESIGNS])
@torch.no_grad()
def test_a_design_is_trained_measured_tracked_and_exported(workspace, tmp_path, words):
    params, design = OmegaConf.load("params.yaml"), LatentDesign(**words)
    params.runs[RUN].latent.update(words)
    bits = params.runs[RUN].latent_bits = 40 if design.map == "linear" else 5
    OmegaConf.save(params, "params.yaml")
    train_run()
    model, manifest = load_model(checkpoint_path("smoke", RUN))
    assert model.config.latent == design and model.config.latent_bits == bits
    assert type(manifest.architecture["latent"]["gradient"]) is str, "no class in a checkpoint"
    assert type(manifest.architecture["latent"]["encoder"]) is str
    assert model.config.latent.gradient is design.gradient

    experiment = load_experiment()
    experiment.evaluation.tokens = 520
    measure(experiment, RUN)
    _, (tracked,) = tracked_runs()
    said = {key: tracked.data.params[f"architecture.latent.{key}"] for key in words}
    assert said == {key: str(value) for key, value in words.items()}
    assert tracked.data.metrics["bound/bits_per_token"] > 0

    if design.per != Per.token:
        with pytest.raises(UserError, match=rf"latent\.per: {design.per} is not exported"):
            export(RUN, "hf", None, None)
        return
    export(RUN, "hf", None, None)
    tokens, noise = torch.randint(10, (2, 7)), torch.rand(2, 7, bits)
    expected = model.logits(model(tokens, prior_noise=noise).hidden)
    learned = model.latent.prior
    assert learned is None or learned.readout.weight.any(), "training does not leave it at 0"
    with modules_in(tmp_path / "modules"):
        theirs = load(workspace / "exports/smoke" / RUN)
        logits = theirs(tokens, latent_noise=noise).logits
        encoded = theirs(tokens, latent_noise=noise, encode_prompt=True).logits
    assert (logits - expected).abs().max() < 1e-5 * expected.std()
    expected = model.logits(model(tokens, noise).hidden)
    assert (encoded - expected).abs().max() < 1e-5 * expected.std()


KILLED = {
    "others": DesignChanges(encoder=Encoder.separate, inject=Inject.memory, prior=Prior.learned),
    "spans": DesignChanges(
        encoder=Encoder.separate, inject=Inject.embedding, per=Per.every, every=4
    ),
    "sequence": DesignChanges(per=Per.sequence, map=Map.linear, free_bits=FreeBits.batch),
    "recurrent": DesignChanges(
        inject=Inject.residual, prior=Prior.recurrent, free_bits=FreeBits.position
    ),
}


@pytest.mark.parametrize("design", KILLED.values(), ids=[*KILLED])
def test_a_killed_run_of_another_design_resumes_to_the_bit(workspace, monkeypatch, design):
    weights, rows = train_run(latent=design)
    separate = "model.latent.encoder_blocks.1.ffn.down.weight" in weights
    assert separate == (design.encoder == Encoder.separate)
    shutil.rmtree("resume")

    def die(self, trainer, *rest):
        inherited(self, trainer, *rest)
        if trainer.global_step == 7:
            trainer.save_checkpoint(f"resume/smoke/{RUN}/00000007.ckpt")
            raise RuntimeError("killed")

    inherited = CurveCallback.on_train_batch_end
    with monkeypatch.context() as patch:
        patch.setattr(CurveCallback, "on_train_batch_end", die)
        with pytest.raises(RuntimeError, match="killed"):
            train_run(latent=design)
    again, again_rows = train_run(latent=design)
    assert same(weights, again) and losses(rows) == losses(again_rows)
