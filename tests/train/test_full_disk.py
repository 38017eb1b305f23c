"""A full disk: one line, nothing broken, and the same command goes on."""

import os
import shutil
import subprocess
from contextlib import contextmanager
from errno import ENOSPC
from functools import partial
from pathlib import Path

import pytest
import torch

from pipelines.artifacts.checkpoint import read_checkpoint
from pipelines.common import errors
from pipelines.train import stage as train
from pipelines.train.core.checkpoint_callback import Checkpoints, WholeFiles
from tests.support.training import RUN, losses, outcome, resume, same, tracked_runs

FULL_FROM = 9  # step


@contextmanager
def small_disk(folder, size):
    """A file system of its own in memory, mounted on ``folder``."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no mount here")
    if done.returncode:
        pytest.skip(f"mounting needs root: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(path):
    """Take all the room that is left."""
    with open(path, "wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError as error:
                assert error.errno == ENOSPC


def command(capsys):
    """`python -m pipelines.train`; returns the exit code and what it says on stderr of errors."""
    code = 0
    try:
        errors.run(partial(train.main, RUN))
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return code, [line for line in said.splitlines() if line.startswith("error: ")]


def test_a_full_disk_is_one_line_and_the_same_command_goes_on_once_there_is_room(
    workspace, trained, every_step, monkeypatch, capsys
):
    """A disk that holds the project but for its data."""
    inherited = Checkpoints.on_step

    def fill_up(self, trainer):
        if trainer.global_step == FULL_FROM:
            fill("filler")
        inherited(self, trainer)

    with small_disk(workspace / "disk", "8m") as disk:
        for name in ("params.yaml", "mlflow.db"):
            shutil.copy(name, disk)
        (disk / "data").symlink_to(workspace / "data")
        monkeypatch.chdir(disk)
        folder = resume()
        folder.mkdir(parents=True)
        (folder / "00000021.ckpt.partial").write_bytes(b"of a run that was killed")
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "on_step", fill_up)
            code, said = command(capsys)
        assert code == 2
        kept = sorted(path for path in folder.iterdir() if path.suffix == ".ckpt")
        assert [path.name for path in kept] == ["00000007.ckpt", "00000008.ckpt"]
        for path in kept:
            assert read_checkpoint(path)[0]["global_step"] == int(path.stem)
        assert said == [
            f"error: {folder}: No space left on device; last good checkpoint: {kept[-1]}"
        ]

        Path("filler").unlink()
        assert command(capsys) == (0, [])
        weights, rows = outcome()
        assert same(weights, trained.weights)
        assert losses(rows) == losses(trained.rows)
        client, (run,) = tracked_runs()
        points = client.get_metric_history(run.info.run_id, "curve/ce_nats")
        assert [point.step for point in points] == list(range(1, 21))
        assert run.info.status == "FINISHED"
        monkeypatch.chdir(workspace)


def test_torch_does_not_hide_that_the_disk_is_full_and_the_checkpoint_before_stays(tmp_path):
    """Its writer, told by the file, says only that a position is not what it expected."""
    with small_disk(tmp_path / "disk", "2m") as disk:
        small, large = ({"a": torch.zeros(n), "b": torch.zeros(n)} for n in (10, 250_000))
        path = disk / "run" / "whole" / "1.ckpt"  # in folders that are not there yet
        WholeFiles().save_checkpoint(small, path)
        fill(disk / "filler")
        os.truncate(disk / "filler", 600_000)
        with pytest.raises(OSError, match="No space left on device"):
            WholeFiles().save_checkpoint(large, path)
        assert [*path.parent.iterdir()] == [path]
        assert len(torch.load(path)["a"]) == 10
