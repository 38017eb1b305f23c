"""A run with a design of its own, from training to what is exported of it."""

import pytest
import torch
from omegaconf import OmegaConf

from ftmodel.designs.design import LatentDesign, Per
from ftmodel.inference.passes import from_prior
from pipelines.artifacts.checkpoint import load_model
from pipelines.artifacts.paths import checkpoint_path
from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.errors import UserError
from pipelines.config.load import load_experiment
from pipelines.evaluate.stage import measure
from pipelines.export.build import main as export
from tests.support.remote_code import load, modules_in
from tests.support.training import RUN, tracked_runs, train_run

DESIGNS = [
    dict(inject="kv_all", map="linear", prior="learned", free_bits="sequence", gradient="score"),
    dict(per="every", every=4, inject="residual", prior="recurrent", free_bits="batch"),
]


@pytest.mark.parametrize("words", DESIGNS, ids=str)
@torch.no_grad()
def test_a_design_is_trained_measured_tracked_and_exported(workspace, tmp_path, words):
    params, design = OmegaConf.load("params.yaml"), LatentDesign(**words)
    params.runs[RUN].latent.update(words)
    bits = params.runs[RUN].latent_bits = 40 if design.map == "linear" else 5
    params.models.target_small.architecture.latent_block = 1
    OmegaConf.save(params, "params.yaml")
    train_run()
    model, manifest = load_model(checkpoint_path("smoke", RUN))
    assert model.config.latent == design and model.config.latent_bits == bits
    assert (model.config.latent_block, model.config.lower_blocks) == (1, 0)
    assert type(manifest.architecture["latent"]["gradient"]) is str, "no class in a checkpoint"
    assert type(manifest.architecture["latent"]["encoder"]) is str
    assert model.config.latent.gradient is design.gradient

    experiment = load_experiment()
    experiment.evaluation.tokens = 520
    measure(RunSpec(experiment, RUN))
    _, (tracked,) = tracked_runs()
    said = {key: tracked.data.params[f"architecture.latent.{key}"] for key in words}
    assert said == {key: str(value) for key, value in words.items()}
    assert tracked.data.metrics["bound/bits_per_token"] > 0

    if design.per != Per.token:
        with pytest.raises(UserError, match=rf"latent\.per: {design.per} cannot be exported"):
            export(RUN, "hf", None, None)
        return
    export(RUN, "hf", None, None)
    tokens, noise = torch.randint(10, (2, 7)), torch.rand(2, 7, bits)
    expected = model.logits(from_prior(model, tokens, noise).hidden)
    learned = [*model.latent.prior.parameters()]
    assert all(weight.any() for weight in learned), "training does not leave it at 0"
    with modules_in(tmp_path / "modules"):
        theirs = load(workspace / "exports/smoke" / RUN)
        logits = theirs(tokens, latent_noise=noise).logits
        encoded = theirs(tokens, latent_noise=noise, encode_prompt=True).logits
    assert (logits - expected).abs().max() < 1e-5 * expected.std()
    expected = model.logits(model(tokens, noise).hidden)
    assert (encoded - expected).abs().max() < 1e-5 * expected.std()
