"""Checkpoints of another specification are set aside and come back by themselves; none is lost."""

import shutil
from functools import partial
from pathlib import Path

import yaml

from pipelines.artifacts.checkpoint import peek, read_checkpoint, remove_finished
from pipelines.artifacts.paths import resume_folder
from pipelines.common import source_code
from pipelines.common.atomic_files import ROOT
from pipelines.evaluate import stage as evaluate_stage
from pipelines.train.core import manifest
from tests.support.kills import killed
from tests.support.training import RUN, find, losses, same, train_run

FOLDER = resume_folder("smoke", RUN)
KILLED_AT = 7


def kill(**changes):
    """Train to a checkpoint of step KILLED_AT, and no further."""
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


def test_what_decides_weights_is_another_specification_and_words_are_not(tmp_path, monkeypatch):
    """Nor is what is shown, how processes are launched, or what is tracked."""
    for name in ("pipelines", "ftmodel"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    monkeypatch.setattr(source_code, "ROOT", tmp_path)
    version = partial(source_code.code_version.__wrapped__, "train")

    def edit(name, old, new):
        text = (tmp_path / name).read_text()
        assert text.count(old) == 1, f"{name} no longer has once: {old}"
        (tmp_path / name).write_text(text.replace(old, new))

    before = version()
    edit("pipelines/train/core/module.py", "import lightning as L", "import lightning as L  # !")
    edit("pipelines/train/core/trainer.py", '"""All that one process needs', '"""Everything')
    edit("pipelines/train/progress.py", '"loss": f"{row.loss_nats:.3f} nats"', '"loss": "?"')
    edit("pipelines/train/distributed.py", "socket", "socket|another word")
    edit("pipelines/tracking/live.py", "SECONDS = 5.0", "SECONDS = 6.0")
    assert version() == before
    edit("pipelines/train/core/optimizer.py", "> 1 else 0.0", "> 1 else 0.1")
    another = version()
    edit("ftmodel/model/mapper.py", "weights = 1 << ", "weights = 2 << ")
    assert len({before, another, version()}) == 3


def test_checkpoints_of_other_code_are_set_aside_and_come_back_with_the_code(
    workspace, uninterrupted, monkeypatch, capsys
):
    kill()
    before = contents()
    code = manifest.code_version
    monkeypatch.setattr(manifest, "code_version", lambda stage: "another")
    assert start() is None
    theirs = peek(next(FOLDER.rglob("*.ckpt")))
    aside = FOLDER / "aside" / theirs.spec_hash
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert f"{RUN}: 2 checkpoints belong to another specification: code. Set aside" in said
    assert theirs.git_revision in said and f"mv {aside}/* {FOLDER}/" in said
    assert contents() == {f"aside/{theirs.spec_hash}/{k}": inode for k, inode in before.items()}

    train_run()  # to the end, by the other code
    assert set(before.values()) <= set(contents().values())

    monkeypatch.setattr(manifest, "code_version", code)
    assert start() == KILLED_AT
    assert "2 checkpoints are of this specification again: brought back" in capsys.readouterr().out
    assert before.items() <= contents().items()
    again = train_run()
    assert same(again[0], uninterrupted[0])
    assert losses(again[1]) == losses(uninterrupted[1])


def test_the_line_names_what_differs(workspace, monkeypatch, capsys):
    def said():
        start()
        return capsys.readouterr().out

    kill()
    capsys.readouterr()
    plain = Path("params.yaml").read_text()
    change(kappa_bits=2.0, seed=3)
    assert "another specification: settings (kappa_bits, seed). Set aside" in said()
    Path("params.yaml").write_text(plain)
    assert "brought back" in said()
    change(lr=0.5)
    assert "settings (optim or compute.precision). Set" in said()
    Path("params.yaml").write_text(plain)
    said()
    monkeypatch.setattr("torch.__version__", "9.9")
    assert "specification: torch (2." in said()


def test_budgets_and_decays_are_set_aside_with_the_rest(workspace):
    change(schedule="wsd", budgets=[5 * 520, 8 * 520])
    kill()
    before = contents()
    assert {Path(name).parent.name for name in before} == {"", "decay-4160", "budgets"}
    change(seed=5)
    assert start() is None
    assert set(contents().values()) == set(before.values())
    assert {path.name for path in FOLDER.iterdir()} == {"aside"}
    change(seed=0)
    assert start() == KILLED_AT
    assert contents() == before


def test_what_was_set_aside_twice_takes_the_place_of_nothing(workspace):
    kill()
    before = contents()
    (aside, spec_hash) = FOLDER / "aside", peek(next(FOLDER.glob("*.ckpt"))).spec_hash
    shutil.copytree(FOLDER, aside / spec_hash)
    kill(seed=5)
    assert set(before.values()) < set(contents().values())
    assert {path.name for path in aside.iterdir()} == {spec_hash, f"{spec_hash}-2"}


def test_a_finished_run_leaves_only_its_own_checkpoints_behind_to_delete(
    workspace, uninterrupted, monkeypatch
):
    kill(seed=5)
    assert same(train_run()[0], uninterrupted[0])
    (FOLDER / "00000099.unreadable").write_bytes(b"damaged")
    left = {name for name in contents() if name.startswith("aside/")} | {"00000099.unreadable"}
    assert len(left) == 3
    remove_finished("smoke", RUN, "another")
    assert (FOLDER / "00000020.ckpt").exists()
    spec_hash = read_checkpoint(FOLDER / "00000020.ckpt")[1].spec_hash
    monkeypatch.setenv("DVC_STAGE", f"evaluate@{RUN}")
    evaluate_stage.main(RUN)
    assert Path("results/smoke", RUN, "evaluation.json").exists()
    assert set(contents()) == left
    shutil.rmtree(FOLDER)
    train_run()
    remove_finished("smoke", RUN, spec_hash)
    assert not FOLDER.exists()
