"""`self.log` in the module reaches curve, MLflow and progress bar."""

import pytest
import torch

from pipelines.train.core import trainer as fit_module
from pipelines.train.core.module import TrainingModule
from tests.support.kills import killed
from tests.support.mutants import rejects
from tests.support.training import tracked_runs, train_run


@pytest.fixture
def norms(monkeypatch):
    """The module with one line more; what it has logged, a number a step."""
    logged = []

    class WithNorm(TrainingModule):
        def on_before_optimizer_step(self, optimizer):
            norm = torch.stack([p.grad.norm() for p in self.parameters()]).norm()
            logged.append(norm.item())
            self.log("grad_norm", norm)

    monkeypatch.setattr(fit_module, "TrainingModule", WithNorm)
    return logged


@rejects("CurveCallback.make_row: «.mean()→[-1]» for", "of the steps of a row the last alone")
@pytest.mark.parametrize(("accumulate", "rows"), [(1, 150), (2, 7)])
def test_a_metric_of_one_line_is_in_the_curve_in_mlflow_and_in_the_bar(
    workspace, monkeypatch, capsys, norms, accumulate, rows
):
    """As the mean over a row's steps, however many micro-batches they have."""
    monkeypatch.setattr(fit_module, "ROWS", rows)
    _, curve = train_run(compute={"accumulate": accumulate})
    every = -(-20 // rows)
    parts = [norms[i : i + every] for i in range(0, 20, every)]
    means = [torch.tensor(part).double().mean().item() for part in parts]
    assert len(norms) == 20
    assert list(curve[0])[6:9] == ["learning_rate", "tokens_per_second", "grad_norm"]
    assert [float(row["grad_norm"]) for row in curve] == means[: len(curve)]
    assert len(set(means)) == len(means)
    client, (run,) = tracked_runs()
    for axis, key in (("curve", "step"), ("curve_by_tokens", "tokens")):
        points = client.get_metric_history(run.info.run_id, f"{axis}/grad_norm")
        assert [(p.step, p.value) for p in points] == [
            (int(row[key]), float(row["grad_norm"])) for row in curve
        ]
    said = capsys.readouterr().err
    assert f", grad_norm={float(curve[-1]['grad_norm']):.4g}" in said
    assert "gradient_norm" not in said and "bits_in_use" not in said


def test_a_killed_run_goes_on_with_what_it_had_logged_of_a_row(workspace, monkeypatch, norms):
    """Killed in the middle of a row: its mean is that of all its steps."""
    monkeypatch.setattr(fit_module, "ROWS", 4)  # of 5 steps

    with killed(8):
        train_run()
    _, curve = train_run()
    assert len(norms) == 20
    means = [torch.tensor(norms[i : i + 5]).double().mean().item() for i in range(0, 20, 5)]
    assert [float(row["grad_norm"]) for row in curve] == means
