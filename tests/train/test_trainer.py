"""What a process makes of a run's settings, and how a training ends."""

import errno
import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import lightning as L
import pytest
import torch

from ftmodel.config import Per, Prior
from ftmodel.conversion.latent_start import StartLosses
from ftmodel.model.objective import training_loss
from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.derived import Budget
from pipelines.config.init_from import InitFrom
from pipelines.config.schema import Precision, Schedule
from pipelines.host.errors import UserError
from pipelines.train.core import trainer as trainer_module
from pipelines.train.core.acceleration import Compiled
from pipelines.train.core.callbacks import Checkpoints, CurveCallback
from pipelines.train.core.module import NonFinite
from pipelines.train.core.segments import Segment, Start, segments
from pipelines.train.core.trainer import (
    Process,
    SegmentTraining,
    fit,
    fit_segment,
    last_good,
    lightning_precision,
    quiet,
)
from pipelines.train.monitoring import CollapseWarning, Profile, Progress
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.settings import smoke
from tests.support.training import RUN, same

MANIFEST = Manifest("smoke", RUN, {}, {}, 11, data_hash="data", spec_hash="ours")
SHARDS = SimpleNamespace(metadata=SimpleNamespace(vocab_size=11, end_of_text=3))
STEP_7 = Path("00000007.ckpt")


def make(*overrides, name=RUN, process=None, checkpoint=None, tracking=None, segment=-1):
    spec = RunSpec(smoke(*(f"runs.{name}.{override}" for override in overrides)), name)
    start = Start(MANIFEST, segments(spec)[segment], checkpoint)
    return SegmentTraining(spec, process or Process(), start, None, tracking)


def patch(monkeypatch, **values):
    for name, value in values.items():
        monkeypatch.setattr(trainer_module, name, value)


@pytest.mark.parametrize(
    ("schedule", "budgets", "title"),
    [("cosine", "[5200]", RUN), ("wsd", "[]", RUN), ("wsd", "[5200]", f"{RUN} to 10,400 tokens")],
)
def test_a_training_is_called_by_its_run_and_one_of_several_segments_by_its_budget(
    schedule, budgets, title
):
    """A row of its curve ends where the trunk is left."""
    training = make("tokens=10400", f"budgets={budgets}")
    training.spec.optim.schedule = Schedule(schedule)
    assert training.title == title
    curve, *_ = training.build_callbacks(SHARDS)
    assert curve.ends == ({8, 20} if title != RUN else {20})


@pytest.mark.parametrize(("checkpoint", "parent"), [(None, "sweep"), (STEP_7, "")])
def test_a_journal_is_begun_or_gone_on_with(monkeypatch, capsys, checkpoint, parent):
    """That of a run below another one describes no experiment."""
    opened, tracking = Mock(), Mock()
    opened.return_value.run.parent = parent
    patch(
        monkeypatch,
        check_writable=Mock(),
        open_journal=opened,
        Tracking=tracking,
        experiment_note=lambda experiment: "note",
    )
    training = make(checkpoint=checkpoint)
    training.start_tracking()
    experiment = training.spec.experiment
    opened.assert_called_once_with(MANIFEST, experiment, go_on=checkpoint is not None)
    tracking.assert_called_once_with(opened.return_value, "" if parent else "note")
    said = f"{RUN}: going on from step 7\n" if checkpoint else ""
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("compiled", Compiled)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("warmup", [0, 5])
def test_a_model_is_compiled_by_what_a_worker_computes_and_as_a_whole_if_it_is_alone(
    monkeypatch, capsys, compiled, workers, warmup
):
    """And κ stays: each κ would be compiled anew. Rank 0 says what is compiled.

    The module has the end of text of the data, and the schedule of the segment.
    """
    speed_up = Mock(return_value=compiled)
    monkeypatch.setattr(torch, "compile", lambda function: (function,))
    patch(monkeypatch, speed_up=speed_up)
    process = Process(workers - 1, workers)
    tracking = None if workers > 1 else Mock()
    training = make(f"kappa_warmup_steps={warmup}", process=process, tracking=tracking)
    module = training.build_module(SHARDS)
    config = training.spec.config
    elements = training.spec.run.tokens * config.d_model * config.n_layers / workers
    assert speed_up.call_args.args[1:] == (training.spec.experiment.compute, elements)
    assert speed_up.call_args.kwargs == {"alone": (workers, warmup) == (1, 0)}
    assert (module.end_of_text, module.steps) == (3, 20)
    whole = compiled is Compiled.loss
    assert module.training_loss == ((training_loss,) if whole else training_loss)
    said = f"{RUN}: the first step compiles {compiled} (compute.compile)\n"
    assert capsys.readouterr().err == said * bool(compiled and tracking)


@arrives("run", "seed")
@rejects("SegmentTraining.build_module: «torch.manual_seed→»", "weights of earlier draws")
def test_initial_weights_depend_on_the_seed_of_the_run_alone():
    first, again, other = (
        make(f"seed={seed}").build_module(SHARDS).state_dict() for seed in (0, 0, 1)
    )
    assert same(first, again)
    matrices = [name for name, tensor in first.items() if tensor.dim() > 1]
    assert not any(torch.equal(first[name], other[name]) for name in matrices)


@pytest.mark.parametrize("init_from", [InitFrom(), InitFrom(run="baseline")])
@pytest.mark.parametrize("checkpoint", [None, STEP_7])
def test_a_run_starts_from_its_parent_once(monkeypatch, init_from, checkpoint):
    started = Mock(return_value=(StartLosses(1.5), {"rows": "padding"}))
    patch(monkeypatch, start_from_parent=started)
    training = make(checkpoint=checkpoint)
    training.spec.run.init_from = init_from
    training.build_module(SHARDS)
    assert started.called == (bool(init_from) and not checkpoint)
    assert training.padding == ({"rows": "padding"} if started.called else {})


@pytest.mark.parametrize("latent", [False, True])
@pytest.mark.parametrize("tracked", [False, True])
def test_losses_before_the_first_step_are_logged_and_said(capsys, latent, tracked):
    losses = StartLosses(1.5, 1.75, 1.25, 0.5) if latent else StartLosses(1.5)
    tracking = Mock() if tracked else None
    make(tracking=tracking).report_start(losses)
    said = f"{RUN}: nats per token before the first step: 1.5000 of the parent"
    if latent:
        said += ", 1.7500 with z from the prior, 1.2500 from the encoder, whose KL is 0.5000"
    assert capsys.readouterr().err == (f"{said}\n" if tracked else "")
    if tracked:
        figures = {"parent": 1.5}
        if latent:
            figures |= {"prior": 1.75, "posterior": 1.25, "kl": 0.5}
        tracking.journal.append.assert_called_once_with(prefix="start", figures=figures, step=0)


@rejects(
    "SegmentTraining.build_callbacks: «kl_of_use(spec.config, →»kappa_bits«)→»", "a warning by κ"
)
@pytest.mark.parametrize(
    ("design", "expected"),
    [({}, 0.125), ({"per": Per.sequence}, 4 / 65), ({"prior": Prior.learned}, 0.0)],
)
def test_the_warning_of_a_collapse_goes_by_the_kl_of_a_latent_in_use(design, expected):
    training = make(tracking=Mock())
    training.spec.run.latent_bits = 4
    for name, value in design.items():
        setattr(training.spec.run.latent, name, value)
    callbacks = training.build_callbacks(SHARDS)
    (warning,) = [each for each in callbacks if isinstance(each, CollapseWarning)]
    assert warning.kappa == warning.curve.kappa == pytest.approx(expected)
    assert warning.steps == 20


class Scoring(L.Callback):
    """In place of HeldOut."""

    def __init__(self, *given):
        self.given = given


@arrives("compute", "profile")
@pytest.mark.parametrize("tracked", [False, True])
def test_a_profile_is_made_by_rank_0_if_it_is_asked_for(tracked):
    training = make(name="baseline", tracking=Mock() if tracked else None)
    training.spec.experiment.compute.profile = True
    found = [each for each in training.build_callbacks(SHARDS) if isinstance(each, Profile)]
    expected = [Path("logs/smoke/trace_baseline_10400.json")] if tracked else []
    assert [each.path for each in found] == expected


@arrives("evaluation", "every_tokens")
@rejects("build_callbacks: callbacks.«append(→insert(0, »curve)", "figures in the row after")
@pytest.mark.parametrize("name", [RUN, "baseline"])
@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("scored", [False, True])
def test_rank_0_has_more_callbacks_and_checkpoints_come_last(monkeypatch, name, tracked, scored):
    """Held-out windows are scored before the row ends that has the figures."""
    patch(monkeypatch, HeldOut=Scoring)
    training = make(name=name, tracking=Mock() if tracked else None)
    training.watch, training.padding = Mock(), {"rows": "padding"}
    training.spec.experiment.evaluation.every_tokens = 5200 if scored else None
    *others, checkpoints = callbacks = training.build_callbacks(SHARDS)
    kinds = [CurveCallback]
    if scored:
        kinds.insert(0, Scoring)
    curve = others[scored]
    if tracked:
        kinds += [CollapseWarning, Progress] if name == RUN else [Progress]
    assert [type(each) for each in callbacks] == [*kinds, Checkpoints]
    if tracked:
        assert (others[-1].curve, others[-1].name, others[-1].steps) == (curve, name, 20)
    if scored:
        assert callbacks[0].given == (training.spec, SHARDS, 5200, curve.leave_out)
        assert curve.ends == {10, 20}
    assert curve.record == (training.tracking.log_row if tracked else None)
    assert (curve.watch, curve.kappa) == (training.watch, 0.125 if name == RUN else 0.0)
    assert (checkpoints.root, checkpoints.seconds) == (MANIFEST.resume, 20.0)
    assert checkpoints.padding == training.padding


@pytest.mark.parametrize(("steps", "every"), [(3, 1), (150, 1), (151, 2), (300, 2), (301, 3)])
def test_a_curve_has_at_most_150_rows(steps, every):
    (curve, *_) = make(f"tokens={520 * steps}").build_callbacks(SHARDS)
    assert curve.every == every


@arrives("compute", "precision accumulate")
@rejects(
    "SegmentTraining.build_trainer: «, self.process.environment→»",
    "a training of one process takes a batch job's variables for its own",
    case="TORCHELASTIC_RUN_ID=1",
)
@pytest.mark.parametrize(
    "variables",
    [
        ["SLURM_NTASKS=4", "SLURM_JOB_NAME=train"],
        ["LSB_JOBID=1", "LSB_DJOB_RANKFILE=ranks", "JSM_NAMESPACE_LOCAL_RANK=0"],
        ["TORCHELASTIC_RUN_ID=1", "RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "GROUP_RANK=0"],
    ],
    ids=lambda variables: variables[0],
)
def test_a_training_of_one_process_asks_for_no_cluster(tmp_path, monkeypatch, variables):
    """And Lightning adds nothing of its own, but precision and micro-batches of the settings."""
    monkeypatch.chdir(tmp_path)
    Path("ranks").write_text("batch01\nlocalhost\n")
    for variable in [*variables, "JSM_NAMESPACE_SIZE=1"]:
        monkeypatch.setenv(*variable.split("="))
    training = make()
    compute = training.spec.experiment.compute
    compute.precision, compute.accumulate = Precision.bf16, 2
    trainer = training.build_trainer([])
    assert (trainer.precision, trainer.accumulate_grad_batches) == ("bf16-mixed", 2)
    assert (trainer.world_size, trainer.global_rank, trainer.is_global_zero) == (1, 0, True)
    chosen = trainer._accelerator_connector
    assert type(chosen.cluster_environment).__name__ == "LightningEnvironment"
    assert not chosen.use_distributed_sampler
    assert trainer.callbacks == trainer.loggers == []
    assert (trainer.max_steps, trainer.max_epochs) == (20, -1)


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize(
    ("segment", "error", "status"),
    [
        (0, None, "RUNNING"),
        (-1, None, "FINISHED"),
        (-1, ValueError("bug"), "FAILED"),
        (-1, KeyboardInterrupt(), "KILLED"),
        (-1, NonFinite(5, [7]), "FAILED"),
    ],
)
def test_a_training_ends_in_mlflow_as_it_ended_here(monkeypatch, segment, error, status, tracked):
    """An error that users can mend is one line, also if the disk is too full to note it down."""
    tracking = Mock() if tracked else None
    if error and tracked:
        tracking.finish.side_effect = UserError("the disk is full")
    tokens, budgets = "tokens=10400", "budgets=[5200]"
    training = make(tokens, budgets, checkpoint=STEP_7, tracking=tracking, segment=segment)
    if segment == 0:
        training.start.segment = Segment(Budget(5200, 10, True), 8, {})
    monkeypatch.setattr(RunSpec, "shards", lambda spec: SHARDS)
    made = {name: Mock() for name in ("build_module", "build_batches", "build_callbacks")}
    for name, value in made.items():
        monkeypatch.setattr(SegmentTraining, name, value)
    fitted = Mock(side_effect=error)
    build = Mock(return_value=SimpleNamespace(fit=fitted))
    monkeypatch.setattr(SegmentTraining, "build_trainer", build)
    if error:
        with pytest.raises(UserError if isinstance(error, NonFinite) else type(error)):
            training.train()
    else:
        training.train()
    module, batches = (made[name].return_value for name in ("build_module", "build_batches"))
    fitted.assert_called_once_with(module, batches, ckpt_path=STEP_7, weights_only=True)
    if tracked:
        tracking.finish.assert_called_once_with(status)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NonFinite(5, [7, 8]), f"{RUN}: .* at step 5, .* windows \\[7, 8\\] .*; no checkpoint was"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB. More"),
            f"{RUN}: .* compute.accumulate, .* compute.activation_checkpointing, or .* "
            "compute.strategy: fsdp \\(CUDA out of memory\\)$",
        ),
        (OSError(errno.ENOSPC, "full"), f"{MANIFEST.resume}: full; no checkpoint was"),
        (OSError("lost"), f"{MANIFEST.resume}: lost; no checkpoint was"),
        (KeyError("bug"), "$"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_user_can_mend_is_one_line(tmp_path, monkeypatch, error, words):
    training = make()
    monkeypatch.chdir(tmp_path)
    assert re.match(words, training.explain(error))


def test_a_step_of_more_digits_than_a_name_has_room_for_is_the_last_good_one(tmp_path):
    """A step of the trunk as one of a decay."""
    segment = Segment(Budget(10, 10**8, True), 99_999_999, {})
    assert last_good(tmp_path, segment) == "no checkpoint was written yet"
    (tmp_path / "decay-10").mkdir()
    for name in ("99999998", "99999999", "decay-10/100000000"):
        newest = tmp_path / f"{name}.ckpt"
        newest.touch()
        assert last_good(tmp_path, segment) == f"last good checkpoint: {newest}"


@pytest.mark.parametrize(
    ("wanted", "gpu", "native", "named"),
    [
        (Precision.auto, True, True, "bf16-mixed"),
        (Precision.auto, True, False, "32-true"),
        (Precision.auto, False, True, "32-true"),
        (Precision.float32, True, True, "32-true"),
        (Precision.bf16, False, False, "bf16-mixed"),
    ],
)
def test_auto_precision_is_bf16_where_a_gpu_has_it(monkeypatch, wanted, gpu, native, named):
    """Without emulation."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: native or including_emulation
    )
    assert lightning_precision(wanted) == named


@pytest.mark.parametrize("process", [None, Process(1, 2)])
def test_a_run_is_trained_segment_by_segment_to_its_end(monkeypatch, process):
    starts = [SimpleNamespace(segment=SimpleNamespace(last=last)) for last in (False, True)]
    fitted = Mock()
    patch(monkeypatch, find_start=Mock(side_effect=starts), fit_segment=fitted)
    fit("spec", MANIFEST, process, "watch")
    assert [call.args[2] for call in fitted.call_args_list] == starts
    for call in fitted.call_args_list:
        spec, used, _, watch = call.args
        assert (spec, watch) == ("spec", "watch")
        assert (used.rank, used.world_size) == ((1, 2) if process else (0, 1))
        assert used.trainer == {"devices": 1}
        assert used is process or process is None


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_alone_writes_the_journal(monkeypatch, rank):
    training = Mock()
    patch(monkeypatch, quiet=Mock(), keep_freed_memory=Mock(), SegmentTraining=training)
    fit_segment("spec", process := Process(rank, 2), "start", "watch")
    training.assert_called_once_with("spec", process, "start", "watch")
    assert training.return_value.start_tracking.called == (rank == 0)
    training.return_value.train.assert_called_once_with()


def test_lightnings_advice_on_choices_made_on_purpose_is_silent():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quiet()
        warnings.warn("The dataloader does not have many workers, which", stacklevel=1)
        warnings.warn("anything else", stacklevel=1)
    assert [str(each.message) for each in caught] == ["anything else"]
