"""A full disk: one line, nothing broken, and the same command goes on."""

import os
import subprocess
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path

import pytest
import torch

from pipelines.artifacts.checkpoint import read_checkpoint
from pipelines.host.errors import UserError
from pipelines.train.core import trainer
from pipelines.train.core.callbacks import Checkpoints, WholeFiles
from tests.support.training import losses, resume, same, tracked_runs, train_run
from tests.support.workspace import enter


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


def test_a_full_disk_is_one_line_and_the_same_command_goes_on_once_there_is_room(
    tokenized, trained, tmp_path, monkeypatch
):
    inherited = Checkpoints.on_step

    def fill_up(self, *arguments):
        if self.step == 9:
            fill("filler")
        inherited(self, *arguments)

    with small_disk(tmp_path / "disk", "8m") as disk, monkeypatch.context() as inside:
        enter(tokenized, disk, inside)
        inside.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
        folder = resume()
        with pytest.MonkeyPatch.context() as patch, pytest.raises(UserError) as caught:
            patch.setattr(Checkpoints, "on_step", fill_up)
            train_run()
        kept = [folder / "00000007.ckpt", folder / "00000008.ckpt"]
        assert sorted(folder.glob("*.ckpt")) == kept
        for path in kept:
            assert read_checkpoint(path)[0]["global_step"] == int(path.stem)
        said = f"{folder}: No space left on device; last good checkpoint: {kept[-1]}"
        assert str(caught.value) == said
        Path("filler").unlink()
        weights, rows = train_run()
        assert same(weights, trained.weights)
        assert losses(rows) == losses(trained.rows)
        _, (run,) = tracked_runs()
        assert run.info.status == "FINISHED"


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
