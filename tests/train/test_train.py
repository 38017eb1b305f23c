"""Training: repeatable, resumable to the bit, tracked once, and careful with checkpoints."""

from pathlib import Path
from zipfile import ZipFile

import pytest
import torch

from ftmodel.designs.design import Encoder, FreeBits, Inject, Per, Prior
from ftmodel.model.objective import training_loss
from pipelines.artifacts.checkpoint import load_model, read_checkpoint
from pipelines.artifacts.paths import checkpoint_path
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.errors import UserError
from pipelines.config.load import load_experiment
from pipelines.config.schema import DesignChanges, OptimizerName
from pipelines.train import progress
from pipelines.train.core import module, trainer
from pipelines.train.core.batches import StepBatches
from tests.support.kills import killed
from tests.support.training import (
    RUN,
    losses,
    resume,
    same,
    tracked_runs,
    train_run,
)

OTHER_DESIGN = DesignChanges(
    encoder=Encoder.separate,
    inject=Inject.memory,
    per=Per.every,
    every=4,
    prior=Prior.recurrent,
    free_bits=FreeBits.batch,
)


def test_a_killed_run_resumes_to_the_bit_and_is_tracked_once(workspace):
    """It dies after MLflow heard of all steps but before a checkpoint. Of the default design and
    optimizer, see test_specifications.py.
    """
    changes = {"latent": OTHER_DESIGN, "optim": {"name": OptimizerName.muon}}
    expected = train_run("free_k1", kappa_bits=0.125, **changes)
    assert "model.latent.encoder_blocks.1.ffn.down.weight" in expected[0]
    with killed(13, checkpoint=7):
        train_run(**changes)
    resumed = train_run(**changes)
    assert same(expected[0], resumed[0])
    assert losses(expected[1]) == losses(resumed[1])

    client, runs = tracked_runs()
    (run,) = [run for run in runs if run.info.run_name == RUN]
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "curve/ce_nats")
    assert [point.step for point in history] == list(range(1, 21))


def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_used(
    workspace, trained, capsys, steps_taken
):
    with killed(10):
        train_run()
    before, newest = sorted(resume().glob("*.ckpt"))
    with ZipFile(newest) as archive:
        entry = max(archive.infolist(), key=lambda entry: entry.file_size)
    content = bytearray(newest.read_bytes())  # in the largest tensor; the archive stays whole
    content[entry.header_offset + entry.file_size] ^= 0xFF  # its header is shorter than it
    newest.write_bytes(content)
    later = resume() / "00000030.ckpt"  # which must not push out a good one
    later.write_bytes(b"no checkpoint")
    later.with_suffix(".unreadable").write_bytes(b"")  # of an earlier damage: it is replaced
    steps_taken.clear()
    again = train_run()
    said = capsys.readouterr().out
    assert all(f"{path}: not a readable checkpoint" in said for path in (newest, later))
    kept = {path.stem for path in resume().glob("*.ckpt")}
    assert kept == {"00000009", "00000020"} and len([*resume().glob("*.unreadable")]) == 2
    assert before.stem == "00000009" and steps_taken[0] == 10
    assert same(trained.weights, again[0])
    assert losses(trained.rows) == losses(again[1])


def test_a_loss_that_is_not_finite_stops_before_the_weights_are_touched(
    workspace, every_step, monkeypatch
):
    def broken(*arguments):
        loss = training_loss(*arguments)
        calls.append(loss)
        if len(calls) == 5:
            loss.total = loss.total * torch.inf
        return loss

    calls = []
    monkeypatch.setattr(module, "training_loss", broken)
    with pytest.raises(UserError) as caught:
        train_run()
    experiment = load_experiment()
    windows = Shards(Path("data/tokens/target")).windows("train", 65)
    ids = StepBatches(windows, 8, 20, experiment.runs[RUN].seed)[4]["windows"].tolist()
    kept = max(resume().glob("*.ckpt"))
    assert "not finite at step 5," in str(caught.value)
    assert f"windows {ids} of" in str(caught.value)
    assert str(caught.value).endswith(f"last good checkpoint: {kept}")
    assert tracked_runs()[1][0].info.status == "FAILED"
    weights = read_checkpoint(kept)[0]["state_dict"]
    assert all(tensor.isfinite().all() for tensor in weights.values())


def test_a_collapsed_latent_is_told_after_a_third_of_the_steps_and_tagged(workspace, monkeypatch):
    """Once, while it can be stopped: at the first row of 4, 5, 8, 10 … after a third of 20 steps;
    rows that end where held-out windows are scored are shorter.
    """
    steps, said = [], []

    def unused(*arguments):
        steps.append(len(steps) + 1)
        loss = training_loss(*arguments)
        loss.kl = loss.kl * 0
        return loss

    monkeypatch.setattr(module, "training_loss", unused)
    monkeypatch.setattr(trainer, "ROWS", 5)
    monkeypatch.setattr(progress, "say", lambda words: said.append((steps[-1], words)))
    _, curve = train_run(every_tokens=5 * 520)
    assert [int(row["step"]) for row in curve] == [4, 5, 8, 10, 12, 15, 16, 20]
    ((step, words),) = said
    assert step == 8 and words.startswith("free_k1_8: the latent has collapsed: for a third of the")
    assert tracked_runs()[1][0].data.tags["collapsed"] == "yes"


def test_a_checkpoint_loads_as_the_trained_model_beside_its_configuration(trained):
    path = trained.folder / checkpoint_path("smoke", RUN)
    model, _ = load_model(path)
    assert same({f"model.{k}": v for k, v in model.state_dict().items()}, trained.weights)
    text = (path.parent / "config.yaml").read_text()
    assert "kappa_bits: 0.125" in text and "latent_bits: 8" in text


def test_a_checkpoint_that_does_not_fit_its_model_is_one_line(trained, tmp_path):
    content, _ = read_checkpoint(trained.folder / checkpoint_path("smoke", RUN))
    content["free_transformer"]["architecture"]["d_model"] = 32
    torch.save(content, tmp_path / "last.ckpt")
    with pytest.raises(UserError, match="do not fit its configuration"):
        load_model(tmp_path / "last.ckpt")
