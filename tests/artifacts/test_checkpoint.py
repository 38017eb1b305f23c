"""A model is read back as it was trained, and checkpoints are told apart."""

import os
from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch

from ftmodel.costs.training import parameters
from pipelines.artifacts.checkpoint import (
    ENTRY,
    PREFIX,
    Manifest,
    check_vocabulary,
    checkpoints_in,
    load_model,
    peek_manifest,
    read_checkpoint,
    remove_finished,
)
from pipelines.host.errors import UserError
from pipelines.host.files import JOURNAL
from tests.support.mutants import rejects

MANIFEST = Manifest("e", "r", {}, {}, 11, data_hash="d", spec_hash="s")


@rejects("checkpoint.load_model: (weights«→, assign=True»", "tied weights untied by reading")
@rejects("checkpoint.load_model: «.eval()→»", "a model read in training mode")
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_is_read_back_whole_and_tied_as_it_was(tmp_path, make_model, make_tokens, tied):
    model, tokens = make_model(tied=tied), make_tokens(2, 7)
    manifest = Manifest("e", "r", {}, asdict(model.config), 11, data_hash="", spec_hash="s")
    weights = {f"{PREFIX}{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save({"state_dict": weights, ENTRY: manifest.entry}, tmp_path / "last.ckpt")
    loaded, read = load_model(tmp_path / "last.ckpt")
    assert read.entry == manifest.entry and not loaded.training
    assert (loaded.readout.weight is loaded.embedding.weight) == tied
    elements = sum(parameter.numel() for parameter in loaded.parameters())
    assert elements == parameters(model.config, 11).total
    noise = torch.rand(2, 7, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours, theirs = ([m(tokens, noise).hidden, m.readout.weight] for m in (model, loaded))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_nobody_is_advised_to_run_what_a_foreign_file_brings(tmp_path):
    path = tmp_path / "last.ckpt"
    torch.save({"a": os.system}, path)
    with pytest.raises(UserError, match="more than tensors, numbers and texts") as caught:
        read_checkpoint(path)
    assert "weights_only" not in str(caught.value) and "safe_globals" not in str(caught.value)


@rejects("checkpoint.checkpoints_in: «int(path.stem)→path.name»", "checkpoints in order of names")
def test_a_foreign_name_is_no_step(tmp_path):
    for name in ("99999999", "100000000", "0foreign", "00000001-mine"):
        (tmp_path / f"{name}.ckpt").touch()
    assert [path.stem for path in checkpoints_in(tmp_path)] == ["99999999", "100000000"]


def test_a_damaged_tensor_is_found_where_tensors_are_read(tmp_path):
    path, tensor = tmp_path / "last.ckpt", torch.arange(1.0, 100.0)
    torch.save({"a": tensor, ENTRY: MANIFEST.entry}, path)
    right, wrong = (each.numpy().tobytes() for each in (tensor, -tensor))
    assert right in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(right, wrong))
    assert peek_manifest(path) == MANIFEST
    with pytest.raises(UserError, match=r"not a readable checkpoint \(bad checksum of .*data/0\)"):
        read_checkpoint(path)


def test_of_a_finished_run_only_its_own_checkpoints_are_deleted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for foreign in ([], ["budgets/notes"]):
        for name in ("20.ckpt", "decay-9/20.ckpt", "budgets/20.ckpt", JOURNAL, *foreign):
            (MANIFEST.resume / name).parent.mkdir(parents=True, exist_ok=True)
            (MANIFEST.resume / name).touch()
        remove_finished(MANIFEST)
        assert MANIFEST.resume.parent.exists() == bool(foreign)
    remove_finished(MANIFEST)  # nothing of its own is left
    assert [*MANIFEST.resume.rglob("*")] == [
        MANIFEST.resume / name for name in ("budgets", *foreign)
    ]


def test_a_model_of_other_data_is_refused():
    shards = SimpleNamespace(folder="data/tokens/a", metadata=SimpleNamespace(hash="d"))
    check_vocabulary("last.ckpt", MANIFEST, shards)
    shards.metadata.hash = "other"
    with pytest.raises(
        UserError, match=r"^last\.ckpt was trained on other data than data/tokens/a"
    ):
        check_vocabulary("last.ckpt", MANIFEST, shards)
