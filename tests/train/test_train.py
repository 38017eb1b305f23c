"""Training: repeatable, resumable to the bit, tracked once, and careful with checkpoints."""

import shutil
from errno import ENOSPC
from pathlib import Path
from zipfile import ZipFile

import lightning as L
import pytest
import torch
import yaml

from ftmodel.model.objective import training_loss
from pipelines.artifacts.checkpoint import Manifest, load_model, read_checkpoint
from pipelines.artifacts.paths import checkpoint_path, resume_folder
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.errors import UserError
from pipelines.config.load import load_experiment
from pipelines.config.schema import Precision
from pipelines.train.core import module
from pipelines.train.core import trainer as fit_module
from pipelines.train.core.batches import StepBatches
from pipelines.train.core.curve_callback import CurveCallback
from pipelines.train.core.trainer import lightning_precision
from tests.support.training import RUN, check_close, losses, same, tracked_runs, train_run


def test_the_same_seed_gives_the_same_run_and_another_seed_another(workspace):
    first = train_run()
    shutil.rmtree("resume")
    again = train_run()
    other = train_run(seed=1)
    assert losses(first[1]) == losses(again[1])
    assert same(first[0], again[0])
    assert losses(first[1]) != losses(other[1])


def test_a_killed_run_resumes_to_the_bit_and_is_tracked_once(workspace, monkeypatch):
    uninterrupted = train_run()
    shutil.rmtree("resume")
    runs_before = {run.info.run_id for run in tracked_runs()[1]}

    def die_late(self, trainer, *rest):
        """The process dies at step 13, after MLflow heard of all steps but before a checkpoint."""
        inherited(self, trainer, *rest)
        if trainer.global_step == 7:
            trainer.save_checkpoint("resume/smoke/free_k1_8/00000007.ckpt")
        if trainer.global_step == 13:
            trainer.logger.save()
            raise RuntimeError("killed")

    inherited = CurveCallback.on_train_batch_end
    with monkeypatch.context() as patch:
        patch.setattr(CurveCallback, "on_train_batch_end", die_late)
        with pytest.raises(RuntimeError, match="killed"):
            train_run()
    resumed = train_run()
    assert same(uninterrupted[0], resumed[0])
    assert losses(uninterrupted[1]) == losses(resumed[1])

    client, runs = tracked_runs()
    runs = [run for run in runs if run.info.run_id not in runs_before]
    assert len(runs) == 1
    assert runs[0].info.status == "FINISHED"
    history = client.get_metric_history(runs[0].info.run_id, "train/ce_nats")
    assert [point.step for point in history] == list(range(1, 21))


def test_kappa_rises_with_the_optimizer_steps_also_of_a_resumed_run(workspace, monkeypatch):
    """And not with the micro-batches, two a step; a baseline has none."""

    def record(*arguments):
        seen.append(arguments[4])
        return training_loss(*arguments)

    def die(self, trainer, *rest):
        inherited(self, trainer, *rest)
        if trainer.global_step == 7:
            trainer.save_checkpoint("resume/smoke/free_k1_8/00000007.ckpt")
            raise RuntimeError("killed")

    monkeypatch.setattr(module, "training_loss", record)
    inherited = CurveCallback.on_train_batch_end
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(CurveCallback, "on_train_batch_end", die)
        with pytest.raises(RuntimeError, match="killed"):
            train_run(compute={"accumulate": 2}, kappa_warmup_steps=10)
    train_run(compute={"accumulate": 2}, kappa_warmup_steps=10)
    kappas = [0.125 * min(1, step / 10) for step in range(1, 21)]
    assert seen == pytest.approx([kappa for kappa in kappas for _ in range(2)])
    seen.clear()
    train_run("baseline", kappa_warmup_steps=10)
    assert set(seen) == {None}


def test_a_checkpoint_of_another_specification_is_not_resumed(workspace, capsys):
    train_run(seed=1)
    weights, _ = train_run(seed=0)
    assert "another specification" in capsys.readouterr().out
    shutil.rmtree("resume")
    assert same(weights, train_run(seed=0)[0])


def cut(path):
    path.write_bytes(path.read_bytes()[:1000])


def flip(path):
    """Change a byte in the largest tensor, where the zip archive's structure stays whole."""
    with ZipFile(path) as archive:
        entry = max(archive.infolist(), key=lambda entry: entry.file_size)
    content = bytearray(path.read_bytes())
    content[entry.header_offset + entry.file_size] ^= 0xFF  # its header is shorter than it
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [cut, flip])
def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_used(
    workspace, capsys, monkeypatch, damage
):
    monkeypatch.setattr(fit_module, "CHECKPOINT_SECONDS", 0.0)
    weights, rows = train_run()
    before, newest = sorted(resume_folder("smoke", RUN).glob("*.ckpt"))
    damage(newest)
    starts = []
    monkeypatch.setattr(
        fit_module.TrainingModule,
        "on_train_start",
        lambda module: starts.append(module.trainer.global_step),
    )
    again = train_run()
    assert f"{newest}: not a readable checkpoint" in capsys.readouterr().out
    assert starts == [int(before.stem)] and starts[0] > 0
    assert same(weights, again[0])
    assert losses(rows) == losses(again[1])


def test_damaged_checkpoints_of_later_steps_do_not_push_out_good_ones(workspace, monkeypatch):
    folder = resume_folder("smoke", RUN)
    folder.mkdir(parents=True)
    for step in (30, 40):
        (folder / f"{step:08d}.ckpt").write_bytes(b"no checkpoint")
    weights, _ = train_run()
    assert [path.name for path in sorted(folder.glob("*.ckpt"))] == ["00000020.ckpt"]
    assert len(list(folder.glob("*.unreadable"))) == 2
    shutil.rmtree("resume")
    assert same(weights, train_run()[0])


def test_a_run_whose_checkpoints_are_all_damaged_starts_over(workspace, capsys):
    weights, _ = train_run()
    (path,) = resume_folder("smoke", RUN).glob("*.ckpt")
    cut(path)
    assert same(weights, train_run()[0])
    assert "not a readable checkpoint" in capsys.readouterr().out


def test_a_loss_that_is_not_finite_stops_before_the_weights_are_touched(workspace, monkeypatch):
    def broken(*arguments):
        loss = training_loss(*arguments)
        calls.append(loss)
        if len(calls) == 5:
            loss.total = loss.total * torch.inf
        return loss

    calls = []
    monkeypatch.setattr(module, "training_loss", broken)
    monkeypatch.setattr(fit_module, "CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(UserError) as caught:
        train_run()
    experiment = load_experiment()
    windows = Shards(Path("data/tokens/target")).windows("train", 65)
    ids = StepBatches(windows, 8, 20, experiment.runs[RUN].seed)[4]["windows"].tolist()
    kept = max(resume_folder("smoke", RUN).glob("*.ckpt"))
    assert "not finite at step 5," in str(caught.value)
    assert f"windows {ids} of" in str(caught.value)
    assert str(caught.value).endswith(f"last good checkpoint: {kept}")
    assert tracked_runs()[1][0].info.status == "FAILED"
    weights = read_checkpoint(kept)[0]["state_dict"]
    assert all(tensor.isfinite().all() for tensor in weights.values())


def test_a_full_disk_is_one_line_and_keeps_the_last_good_checkpoint(workspace, monkeypatch):
    """The disk has room for two checkpoints, and for a part of the third."""
    monkeypatch.setattr(fit_module, "CHECKPOINT_SECONDS", 0.0)
    real = L.Trainer.save_checkpoint
    saved = []

    def full(self, path, **options):
        if len(saved) == 2:
            path.with_suffix(".part").write_bytes(b"half of it")
            raise OSError(ENOSPC, "No space left on device")
        real(self, path, **options)
        saved.append(path)

    with monkeypatch.context() as patch:
        patch.setattr(L.Trainer, "save_checkpoint", full)
        with pytest.raises(UserError, match="No space left on device; last good checkpoint") as e:
            train_run()
    assert str(e.value).endswith(str(saved[-1]))
    weights, _ = train_run()
    shutil.rmtree("resume")
    assert same(weights, train_run()[0])


def test_a_collapsed_latent_is_told_while_it_can_be_stopped_and_tagged(
    workspace, monkeypatch, capsys
):
    def unused(*arguments):
        loss = training_loss(*arguments)
        loss.kl = loss.kl * 0
        return loss

    monkeypatch.setattr(module, "training_loss", unused)
    train_run()
    said = capsys.readouterr().err
    assert said.count("free_k1_8: the latent has collapsed: for a third of the training") == 1
    assert tracked_runs()[1][0].data.tags["collapsed"] == "yes"


def test_mlflow_knows_what_decides_a_run_and_every_row_by_step_and_tokens(workspace):
    _, rows = train_run()
    client, (run,) = tracked_runs()
    wanted = {"kappa_bits": "0.125", "tokens": "10400", "seed": "0"}
    assert wanted.items() <= run.data.params.items()
    assert {
        "git_revision",
        "device",
        "data_hash",
        "config_hash",
        "optim.lr",
    } <= run.data.params.keys()
    for metric in ("ce_nats", "kl_bits", "hinge_nats", "learning_rate"):
        by_step = client.get_metric_history(run.info.run_id, f"train/{metric}")
        by_tokens = client.get_metric_history(run.info.run_id, f"train_by_tokens/{metric}")
        assert [p.step for p in by_step] == [int(r["step"]) for r in rows]
        assert [p.step for p in by_tokens] == [int(r["step"]) * 520 for r in rows]
        assert [p.value for p in by_step] == [float(r[metric]) for r in rows]


def test_the_budget_is_exact_to_one_batch(workspace):
    _, rows = train_run("baseline", tokens=10_399)
    assert rows[-1]["tokens"] == str(19 * 520)
    assert "kl_bits" not in rows[-1]


def test_the_resolved_configuration_lies_beside_the_checkpoint(workspace):
    train_run()
    text = (checkpoint_path("smoke", RUN).parent / "config.yaml").read_text()
    assert "kappa_bits: 0.125" in text
    assert "latent_bits: 8" in text


def test_a_checkpoint_loads_as_the_trained_model(workspace):
    weights, _ = train_run()
    model, manifest = load_model(checkpoint_path("smoke", RUN))
    assert isinstance(manifest, Manifest)
    assert same({f"model.{k}": v for k, v in model.state_dict().items()}, weights)


def test_a_checkpoint_keeps_the_block_that_reads_z(workspace):
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["models"]["target_small"]["architecture"]["latent_block"] = 1
    Path("params.yaml").write_text(yaml.safe_dump(params))
    train_run(tokens=520)
    model, _ = load_model(checkpoint_path("smoke", RUN))
    assert (model.config.latent_block, model.config.lower_blocks) == (1, 0)


class Payload:
    """Pickles into a call that would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def test_loading_a_checkpoint_runs_no_code_in_it(tmp_path):
    mark = tmp_path / "mark"
    torch.save({"state_dict": {}, "evil": Payload(str(mark))}, tmp_path / "evil.ckpt")
    with pytest.raises(UserError, match="not a readable checkpoint"):
        load_model(tmp_path / "evil.ckpt")
    assert not mark.exists()


def test_a_checkpoint_that_does_not_fit_its_model_is_one_line(workspace):
    train_run()
    path = checkpoint_path("smoke", RUN)
    content, _ = read_checkpoint(path)
    content["free_transformer"]["architecture"]["d_model"] = 32
    torch.save(content, path)
    with pytest.raises(UserError, match="do not fit its configuration") as caught:
        load_model(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04"])
def test_a_file_that_is_no_checkpoint_is_one_line(tmp_path, content):
    path = tmp_path / "last.ckpt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"last\.ckpt: not a readable checkpoint"):
        load_model(path)


def test_a_foreign_checkpoint_is_named(tmp_path):
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    with pytest.raises(UserError, match="not one of this project"):
        load_model(tmp_path / "other.ckpt")


@pytest.mark.parametrize(
    ("wanted", "gpu", "named"),
    [
        (Precision.auto, True, "bf16-mixed"),
        (Precision.auto, False, "32-true"),
        (Precision.float32, True, "32-true"),
        (Precision.bf16, False, "bf16-mixed"),
    ],
)
def test_auto_precision_is_bf16_where_a_gpu_has_it(monkeypatch, wanted, gpu, named):
    monkeypatch.setattr(fit_module.torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(
        fit_module.torch.cuda,
        "is_bf16_supported",
        lambda including_emulation: gpu or including_emulation,
    )
    assert lightning_precision(wanted) == named


def test_bf16_trains_close_to_float32(workspace):
    """Losses within 1 % after 20 steps."""
    _, full = train_run()
    _, half = train_run(compute={"precision": Precision.bf16})
    assert half[-1]["ce_nats"] != full[-1]["ce_nats"]
    assert float(half[-1]["ce_nats"]) == pytest.approx(float(full[-1]["ce_nats"]), rel=0.01)


@pytest.mark.parametrize("name", [RUN, "baseline"])
def test_micro_batches_change_nothing_but_rounding(workspace, name):
    """2 or 4 micro-batches: every figure of 20 steps within 1e-4, relative (float32)."""
    _, whole = train_run(name)
    for accumulate in (2, 4):
        shutil.rmtree("resume")
        _, parts = train_run(name, compute={"accumulate": accumulate})
        check_close(parts, whole)
