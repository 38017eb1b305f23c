"""What a trained run hands on."""

import os

import pytest
import torch

from pipelines.artifacts.checkpoint import ENTRY, HISTORY, Manifest
from pipelines.artifacts.curve import CurveRow, read_curve
from pipelines.artifacts.run_spec import RunSpec
from pipelines.host.files import JOURNAL
from pipelines.train.core.segments import publish
from tests.support.settings import smoke
from tests.support.training import RUN

MANIFEST = Manifest("smoke", RUN, {}, {}, 11, data_hash="data", spec_hash="ours")
ROWS = [CurveRow(step, 520 * step, 2.0, 1.5, 0.1, 100.0) for step in (10, 20)]


@pytest.mark.parametrize("links", [True, False])
def test_checkpoints_configuration_journal_and_curve_are_handed_on_again_and_again(
    tmp_path, monkeypatch, links
):
    """As copies where the file system has no links."""
    monkeypatch.chdir(tmp_path)
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: os.stat("nothing"))
    spec, root = RunSpec(smoke(f"runs.{RUN}.budgets=[5200]"), RUN), MANIFEST.resume
    content = {ENTRY: MANIFEST.entry, HISTORY: {"rows": [row.figures() for row in ROWS]}}
    for name in ("00000019", f"{spec.steps:08d}", "budgets/5200"):
        path = root / f"{name}.ckpt"
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(content | {"name": name}, path)
    (root / JOURNAL).write_text("journal")
    for _ in range(2):
        publish(spec, MANIFEST)
        folder = spec.checkpoint().parent
        assert {path.name for path in folder.iterdir()} == {
            *("last.ckpt", "5200.ckpt", "config.yaml", JOURNAL)
        }
        names = {torch.load(folder / f"{name}.ckpt")["name"] for name in ("last", "5200")}
        assert names == {f"{spec.steps:08d}", "budgets/5200"}
        assert spec.checkpoint().samefile(root / f"{spec.steps:08d}.ckpt") == links
        assert (folder / JOURNAL).read_text() == "journal"
        assert "kappa_bits: 0.125" in (folder / "config.yaml").read_text()
        assert read_curve(spec.results / "curve.csv") == ROWS
