"""A run with a design of its own, from training to what is exported of it."""

import pytest
import torch
from omegaconf import OmegaConf

from ftmodel.model.latent_design import Gradient, LatentDesign
from ftmodel.model.mapper import pack_bits
from pipelines.artifacts.checkpoint import load_model
from pipelines.artifacts.paths import checkpoint_path
from pipelines.config.load import load_experiment
from pipelines.evaluate.stage import measure
from pipelines.export.build import main as export
from tests.support.remote_code import load, modules_in
from tests.support.training import RUN, tracked_runs, train_run

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
