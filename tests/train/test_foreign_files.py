"""What others have put into resume/ stays there and stops nothing."""

import pickle
from dataclasses import asdict

import pytest
import torch

from pipelines.artifacts.checkpoint import (
    ENTRY,
    Manifest,
    numbered,
    peek,
    read_checkpoint,
    resume_checkpoints,
)
from pipelines.common.errors import UserError
from pipelines.train.core.segments import newest_checkpoint
from pipelines.train.core.set_aside import sort_out
from tests.support.mutants import rejects

OURS = Manifest("smoke", "free", {}, {}, 11, data_hash="d", spec_hash="ours")


class Foreign:
    """Of a class that loading refuses."""


def save(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)


CONTENTS = {
    "text": lambda path: path.write_text("notes"),
    "empty": lambda path: path.write_bytes(b""),
    "pickle": lambda path: path.write_bytes(pickle.dumps({"a": 1})),
    "object": lambda path: torch.save(Foreign(), path),
    "tensor": lambda path: torch.save(torch.zeros(3), path),
    "list": lambda path: torch.save([1, 2], path),
    "other": lambda path: torch.save({"state_dict": {}}, path),
    "entry": lambda path: torch.save({ENTRY: 3}, path),
    "fields": lambda path: torch.save({ENTRY: {"experiment": 1}}, path),
    "types": lambda path: torch.save({ENTRY: {**asdict(OURS), "spec_hash": []}}, path),
    "folder": lambda path: path.mkdir(),
    "parts": lambda path: (path.mkdir(), (path / "worker-a.ckpt").write_text("")),
    "many": lambda path: (
        path.mkdir(),
        (path / "worker-00000-of-99999999999999.ckpt").write_text(""),
    ),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_a_foreign_checkpoint_is_none_of_ours(content, tmp_path):
    path = tmp_path / "00000010.ckpt"
    CONTENTS[content](path)
    assert peek(path) is None
    with pytest.raises(UserError, match=r"00000010\.ckpt: ") as caught:
        read_checkpoint(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", ["notes.ckpt", "00000010.ckpt", "00000030.ckpt"])
def test_a_run_goes_on_from_its_own_checkpoint(content, name, tmp_path):
    save(tmp_path / "00000020.ckpt", {ENTRY: asdict(OURS), "state_dict": {}})
    CONTENTS[content](tmp_path / name)
    sort_out(tmp_path, OURS)
    newest = newest_checkpoint(tmp_path, OURS)
    assert newest is not None and newest[0].name == "00000020.ckpt"
    assert any(path.name.startswith(name.partition(".")[0]) for path in tmp_path.iterdir())


@rejects(
    "artifacts/checkpoint.py",
    "key=lambda path: int(path.stem)",
    "key=lambda path: path.name",
    "checkpoints in the order of their names",
)
def test_a_foreign_name_is_no_step(tmp_path):
    for name in ("99999999", "100000000", "0foreign", "00000001-mine"):
        save(tmp_path / f"{name}.ckpt", {})
    assert [path.stem for path in numbered(tmp_path)] == ["99999999", "100000000"]


def test_a_file_where_the_folder_of_a_run_should_be(tmp_path):
    root = tmp_path / "free"
    root.write_text("notes")
    assert resume_checkpoints(root) == [] and numbered(root) == []
    sort_out(root, OURS)
    assert newest_checkpoint(root, OURS) is None
    assert root.read_text() == "notes"
