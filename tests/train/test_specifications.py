"""Each specification of a run has checkpoints of its own; none is lost to another."""

from pathlib import Path

import yaml

from pipelines.artifacts.checkpoint import peek
from pipelines.artifacts.paths import resume_folder
from pipelines.evaluate import stage as evaluate_stage
from pipelines.train.core import manifest
from tests.support.kills import killed
from tests.support.training import RUN, find, losses, resume, same, train_run

FOLDER = resume_folder("smoke", RUN)
KILLED_AT = 7


def kill(**changes):
    with killed(KILLED_AT):
        train_run(**changes)


def change(**settings):
    """Change the run in params.yaml; its `lr` and `schedule` are the optimizer's."""
    params = yaml.safe_load(Path("params.yaml").read_text())
    optim = params["models"]["target_small"]["optim"]
    for key, value in settings.items():
        (optim if key in ("lr", "schedule") else params["runs"][RUN])[key] = value
    Path("params.yaml").write_text(yaml.safe_dump(params))


def start():
    """The step that the run goes on from, if it does."""
    checkpoint = find().checkpoint
    return int(checkpoint.stem) if checkpoint else None


def contents():
    """What lies in the run's folder, with the inode by which a file is known wherever it is."""
    return {str(p.relative_to(FOLDER)): p.stat().st_ino for p in FOLDER.rglob("*") if p.is_file()}


def test_checkpoints_of_other_code_stay_and_are_gone_on_from_with_that_code(
    workspace, trained, monkeypatch, capsys
):
    kill()
    before = contents()
    code = manifest.code_version
    monkeypatch.setattr(manifest, "code_version", lambda stage: "another")
    assert start() is None
    theirs = peek(next(FOLDER.rglob("*.ckpt")))
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    where = f"in {FOLDER / theirs.spec_hash} belong to another specification: code. Training"
    assert f"{RUN}: 2 checkpoints {where}" in said and theirs.git_revision in said
    train_run()  # to the end, by the other code
    assert before.items() <= contents().items()

    monkeypatch.setattr(manifest, "code_version", code)
    assert start() == KILLED_AT
    again = train_run()
    assert same(again[0], trained.weights)
    assert losses(again[1]) == losses(trained.rows)


def test_the_line_names_what_differs(workspace, monkeypatch, capsys):
    def said():
        assert start() is None
        return capsys.readouterr().out

    kill()
    plain = Path("params.yaml").read_text()
    change(kappa_bits=2.0, seed=3)
    assert "another specification: settings (kappa_bits, seed). Training" in said()
    Path("params.yaml").write_text(plain)
    change(lr=0.5)
    assert "settings (optim or compute.precision). Tr" in said()
    Path("params.yaml").write_text(plain)
    monkeypatch.setattr("torch.__version__", "9.9")
    assert "specification: torch (2." in said()


def test_a_finished_run_leaves_only_its_own_checkpoints_behind_to_delete(
    workspace, trained, monkeypatch
):
    kill(seed=5)
    others = contents()
    assert same(train_run()[0], trained.weights)
    (resume() / "00000099.unreadable").write_bytes(b"damaged")
    monkeypatch.setenv("DVC_STAGE", f"evaluate@{RUN}")
    evaluate_stage.main(RUN)
    assert Path("results/smoke", RUN, "evaluation.json").exists()
    assert {path.name for path in resume().iterdir()} == {"00000099.unreadable"}
    assert others.items() < contents().items() and len(contents()) == len(others) + 1
