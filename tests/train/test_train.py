"""Training: resumable to the bit, tracked once, and what is logged or scored changes nothing."""

import torch

from ftmodel.config import Encoder, FreeBits, Inject, Per, Prior
from pipelines.config.schema import DesignChanges, OptimizerName
from pipelines.train.core import trainer
from pipelines.train.core.module import TrainingModule
from tests.support.kills import killed
from tests.support.training import RUN, losses, same, tracked_runs, train_run

OTHER_DESIGN = DesignChanges(
    encoder=Encoder.separate,
    inject=Inject.memory,
    per=Per.every,
    every=4,
    prior=Prior.recurrent,
    free_bits=FreeBits.batch,
)


def test_a_killed_run_resumes_to_the_bit_and_is_tracked_once(workspace, capsys):
    """It dies after MLflow heard of all steps but before a checkpoint. Held-out windows are scored
    every five steps, which changes no weight.
    """
    changes = {"latent": OTHER_DESIGN, "optim": {"name": OptimizerName.muon}}
    expected = train_run("free_k1", kappa_bits=0.125, **changes)
    assert "model.latent.encoder_blocks.1.ffn.down.weight" in expected[0]
    with killed(13, checkpoint=7):
        train_run(every_tokens=2600, **changes)
    weights, rows = train_run(every_tokens=2600, **changes)
    assert same(expected[0], weights)
    assert losses(expected[1]) == losses(rows)
    scored = [row["step"] for row in rows if row["held_out_bound_bits"]]
    assert scored == ["5", "10", "15", "20"]
    assert "% of the time went into held-out evaluation" in capsys.readouterr().err

    client, runs = tracked_runs()
    (run,) = [run for run in runs if run.info.run_name == RUN]
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "curve/ce_nats")
    assert [point.step for point in history] == list(range(1, 21))


def test_a_metric_of_one_line_is_in_the_curve_and_in_mlflow_also_of_a_killed_run(
    workspace, monkeypatch
):
    """As the mean over a row's five steps, of two micro-batches each; killed within a row."""
    logged = []

    class WithNorm(TrainingModule):
        def on_before_optimizer_step(self, optimizer):
            norm = torch.stack([p.grad.norm() for p in self.parameters()]).norm()
            logged.append(norm.double())
            self.log("grad_norm", norm)

    monkeypatch.setattr(trainer, "TrainingModule", WithNorm)
    monkeypatch.setattr(trainer, "ROWS", 4)
    with killed(8):
        train_run(compute={"accumulate": 2})
    _, rows = train_run(compute={"accumulate": 2})
    means = [torch.stack(logged[i : i + 5]).mean().item() for i in range(0, 20, 5)]
    assert [float(row["grad_norm"]) for row in rows] == means and len(logged) == 20
    client, (run,) = tracked_runs()
    for axis, key in (("curve", "step"), ("curve_by_tokens", "tokens")):
        points = client.get_metric_history(run.info.run_id, f"{axis}/grad_norm")
        found = [(point.step, point.value) for point in points]
        assert found == [(int(row[key]), float(row["grad_norm"])) for row in rows]
