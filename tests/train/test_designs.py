"""A run with a design of its own, from training to what is exported of it."""

import shutil

import pytest
import torch
from omegaconf import OmegaConf

from ftmodel.model.latent_design import Gradient, LatentDesign
from ftmodel.model.mapper import pack_bits
from pipelines.artifacts.checkpoint import load_model
from pipelines.artifacts.paths import checkpoint_path, resume_folder
from pipelines.config.load import load_experiment
from pipelines.evaluate.stage import measure
from pipelines.export.build import main as export
from pipelines.train.core.curve_callback import CurveCallback
from tests.support.remote_code import load, modules_in
from tests.support.training import RUN, losses, same, tracked_runs, train_run

DESIGNS = [
    {"inject": "kv_all", "map": "linear", "free_bits": "sequence", "gradient": "score"},
    {"inject": "memory", "map": "linear", "free_bits": "sequence", "gradient": "score"},
]


@pytest.mark.parametrize("words", DESIGNS, ids=lambda words: words["inject"])
@torch.no_grad()
def test_a_design_is_trained_measured_tracked_and_exported(workspace, tmp_path, words):
    params, design = OmegaConf.load("params.yaml"), LatentDesign(**words)
    params.runs[RUN].update(latent=words, latent_bits=40)
    OmegaConf.save(params, "params.yaml")
    train_run()
    model, manifest = load_model(checkpoint_path("smoke", RUN))
    assert model.config.latent == design and model.latent.post_sampler.shape[0] == 40
    assert type(manifest.architecture["latent"]["gradient"]) is str, "no class in a checkpoint"
    assert model.config.latent.gradient is Gradient.score

    experiment = load_experiment()
    experiment.evaluation.tokens = 520
    measure(experiment, RUN)
    _, (tracked,) = tracked_runs()
    said = {key: tracked.data.params[f"architecture.latent.{key}"] for key in words}
    assert said == words
    assert tracked.data.metrics["bound/bits_per_token"] > 0

    export(RUN, "hf", None, None)
    tokens, noise = torch.randint(10, (2, 7)), torch.rand(2, 7, 40)
    expected = model.logits(model(tokens, codes=pack_bits(noise < 0.5)).hidden)
    with modules_in(tmp_path / "modules"):
        logits = load(workspace / "exports/smoke" / RUN)(tokens, latent_noise=noise).logits
    assert (logits - expected).abs().max() < 1e-5 * expected.std()


def test_a_killed_run_with_memory_ends_as_if_it_had_not_been(workspace, monkeypatch):
    """To the bit."""
    params = OmegaConf.load("params.yaml")
    params.runs[RUN].latent.inject = "memory"
    OmegaConf.save(params, "params.yaml")
    weights, rows = train_run()
    shutil.rmtree("resume")

    def stop(self, trainer, *rest):
        inherited(self, trainer, *rest)
        if trainer.global_step == 10:
            trainer.save_checkpoint(resume_folder("smoke", RUN) / "00000010.ckpt")
            raise RuntimeError("killed")

    inherited = CurveCallback.on_train_batch_end
    with monkeypatch.context() as patch:
        patch.setattr(CurveCallback, "on_train_batch_end", stop)
        with pytest.raises(RuntimeError, match="killed"):
            train_run()
    again, again_rows = train_run()
    assert same(again, weights) and losses(again_rows) == losses(rows)
