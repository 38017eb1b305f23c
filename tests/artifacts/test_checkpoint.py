"""A model is read back as it was trained."""

import os
from dataclasses import asdict

import pytest
import torch

from ftmodel.costs.training import parameters
from pipelines.artifacts.checkpoint import ENTRY, PREFIX, Manifest, load_model, read_checkpoint
from pipelines.common.errors import UserError
from tests.support.mutants import rejects


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
