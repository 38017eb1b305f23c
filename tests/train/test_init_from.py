"""A run that starts from a parent: another run, or the files that it was exported to."""

import shutil
from pathlib import Path

import torch

from pipelines.artifacts.checkpoint import load_model
from pipelines.config.init_from import InitFrom
from pipelines.config.load import load_experiment
from pipelines.export import build
from pipelines.export.build import main as export
from pipelines.host.files import checkpoint_path
from tests.support.arrivals import arrives
from tests.support.training import RUN, same, tracked_runs, train_run


@arrives("init_from", "run hf copied_lr")
def test_copied_weights_have_a_learning_rate_of_their_own(workspace, capsys):
    """At 0 the decoder stays its parent's to the bit, and the latent is trained; a child of the
    exported folder is the same run but for its parent's name.
    """
    parent, _ = train_run("baseline")
    export("baseline", "hf", None, "llama")
    assert "| started from | random weights |" in Path("llama/README.md").read_text()
    found, _ = train_run(init_from=InitFrom(run="baseline", copied_lr=0.0))
    said = capsys.readouterr().err
    assert "nats per token before the first step" in said and "with z from the prior" in said
    assert found.keys() > parent.keys()
    assert all(torch.equal(found[name], weight) for name, weight in parent.items())

    _, manifest = load_model(checkpoint_path("smoke", RUN))
    rows = build.model_card(load_experiment(), manifest, 10_400)
    assert f"| started from | run baseline, sha256 {manifest.parent['sha256']} |" in rows
    _, runs = tracked_runs()
    (tracked,) = [run.data for run in runs if run.info.run_name == RUN]
    assert tracked.metrics["start/parent"] > 0
    assert tracked.params["parent.sha256"] == manifest.parent["sha256"]
    assert tracked.params["init_from.run"] == "baseline"

    shutil.rmtree("resume")
    again, _ = train_run(init_from=InitFrom(hf="llama", copied_lr=0.0))
    assert same(again, found)
    begun, _ = train_run(init_from=InitFrom(hf="llama", copied_lr=0.0), tokens=520)
    latent = found.keys() - parent.keys()
    assert not any(torch.equal(begun[name], found[name]) for name in latent), "all of it is trained"
