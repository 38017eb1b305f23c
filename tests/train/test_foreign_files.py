"""What others have put into resume/ stays there and stops nothing."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from pipelines.artifacts.checkpoint import ENTRY, Manifest, load_model, peek_manifest
from pipelines.host.errors import UserError

OURS = Manifest("smoke", "free", {}, {}, 11, data_hash="d", spec_hash="ours")


class Payload:
    """Pickles into a call that would create the file ``mark``."""

    def __reduce__(self):
        return Path.touch, (Path("mark"),)


CONTENTS = {
    "empty": lambda path: path.write_bytes(b""),
    "part": lambda path: path.write_bytes(b"PK\x03\x04"),
    "code": lambda path: torch.save({"state_dict": {}, "evil": Payload()}, path),
    "tensor": lambda path: torch.save(torch.zeros(3), path),
    "other": lambda path: torch.save({"state_dict": {}}, path),
    "types": lambda path: torch.save({ENTRY: {**asdict(OURS), "spec_hash": []}}, path),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_a_foreign_checkpoint_is_one_line(content, tmp_path, monkeypatch):
    """None of its code is run."""
    monkeypatch.chdir(tmp_path)
    path = Path("00000030.ckpt")
    CONTENTS[content](path)
    assert peek_manifest(path) is None
    words = "not one of this project" if content == "other" else ""
    with pytest.raises(UserError, match=rf"00000030\.ckpt: .*{words}"):
        load_model(path)
    assert [*Path().iterdir()] == [path]
