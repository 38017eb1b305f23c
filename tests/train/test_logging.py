"""`self.log` in the module reaches curve, MLflow and progress bar."""

from unittest.mock import Mock

import pytest
import torch

from ftmodel.designs.design import Per, Prior
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.load import load_experiment
from pipelines.train.core import trainer as fit_module
from pipelines.train.core.module import TrainingModule
from pipelines.train.core.segments import Start, segments
from pipelines.train.core.trainer import Process, SegmentTraining
from pipelines.train.progress import CollapseWarning
from tests.support.kills import killed
from tests.support.mutants import rejects
from tests.support.training import RUN, tracked_runs, train_run


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


@rejects(
    "SegmentTraining.build_callbacks: «kl_of_use(spec.config, →»kappa_bits«)→»", "a warning by κ"
)
@pytest.mark.parametrize(
    ("design", "expected"),
    [({}, 0.125), ({"per": Per.sequence}, 4 / 65), ({"prior": Prior.learned}, 0.0)],
)
def test_the_warning_of_a_collapse_goes_by_the_kl_of_a_latent_in_use(workspace, design, expected):
    spec = RunSpec(load_experiment(), RUN)
    spec.run.latent_bits = 4
    for name, value in design.items():
        setattr(spec.run.latent, name, value)
    start = Start(Mock(), segments(spec)[-1], None)
    training = SegmentTraining(spec, Process(), start, None, tracking=Mock())
    callbacks = training.build_callbacks(Mock())
    (warning,) = [each for each in callbacks if isinstance(each, CollapseWarning)]
    assert warning.kappa == warning.curve.kappa == pytest.approx(expected)
    assert warning.steps == 20
