"""Checkpoints of another specification are set aside and come back by themselves; none is lost."""

import shutil
from pathlib import Path

import pytest
import yaml

from pipelines.artifacts.checkpoint import peek, read_checkpoint, remove_finished
from pipelines.artifacts.paths import resume_folder
from pipelines.common import source_code
from pipelines.common.atomic_files import ROOT
from pipelines.config.load import load_experiment
from pipelines.evaluate import stage as evaluate_stage
from pipelines.train.core import trainer as fit_module
from pipelines.train.core.checkpoint_callback import Checkpoints
from pipelines.train.core.segments import find_start
from tests.support.training import RUN, losses, same, train_run

FOLDER = resume_folder("smoke", RUN)
KILLED_AT = 7


@pytest.fixture
def code(tmp_path_factory, monkeypatch):
    """A copy of the code, by which runs are told apart; returns a function that edits it."""
    copy = tmp_path_factory.mktemp("code")
    for name in ("pipelines", "ftmodel"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "dvc.yaml", copy)
    monkeypatch.setattr(source_code, "ROOT", copy)

    def edit(name, old, new):
        path = copy / name
        text = path.read_text()
        assert text.count(old) == 1, f"{name} no longer has once: {old}"
        path.write_text(text.replace(old, new))
        source_code.code_version.cache_clear()

    source_code.code_version.cache_clear()
    yield edit
    source_code.code_version.cache_clear()


def kill(name=RUN, **changes):
    """Train to a checkpoint of step KILLED_AT, and no further."""

    def die(self, trainer):
        inherited(self, trainer)
        if trainer.global_step == KILLED_AT:
            raise RuntimeError("killed")

    inherited = Checkpoints.on_step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_module, "CHECKPOINT_SECONDS", 0.0)
        patch.setattr(Checkpoints, "on_step", die)
        with pytest.raises(RuntimeError, match="killed"):
            train_run(name, **changes)


def start():
    """The step that the run goes on from, if it does."""
    checkpoint = find_start(load_experiment(), RUN).checkpoint
    return int(checkpoint.stem) if checkpoint else None


def contents():
    """What lies in the run's folder, with the inode by which a file is known wherever it is."""
    return {str(p.relative_to(FOLDER)): p.stat().st_ino for p in FOLDER.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("pipelines/train/core/module.py", "import lightning as L", "import lightning as L  # !"),
        ("pipelines/train/core/trainer.py", '"""All that one process needs', '"""Everything'),
        ("ftmodel/model/schedule.py", "def wsd(", "\n\n\n# a comment\ndef wsd("),
        ("pipelines/train/progress.py", '"loss": f"{row.loss_nats:.3f} nats"', '"loss": "?"'),
        ("pipelines/train/distributed.py", "socket", "socket|another word"),
        ("pipelines/tracking/lightning_logger.py", "ROWS = 20", "ROWS = 30"),
    ],
    ids=["comment", "docstring", "comment in the model", "progress", "launching", "tracking"],
)
def test_words_and_what_is_shown_are_no_other_specification(workspace, code, name, old, new):
    before = source_code.code_version("train")
    code(name, old, new)
    assert source_code.code_version("train") == before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("pipelines/train/core/module.py", "> 1 else 0.0", "> 1 else 0.1"),
        ("pipelines/train/core/shuffle.py", "ROUNDS = 8", "ROUNDS = 9"),
        ("ftmodel/model/mapper.py", "weights = 1 << ", "weights = 2 << "),
    ],
    ids=["optimizer", "batch order", "mapper"],
)
def test_what_decides_weights_is_another_specification(workspace, code, name, old, new):
    before = source_code.code_version("train")
    code(name, old, new)
    assert source_code.code_version("train") != before


def test_training_goes_on_from_its_checkpoint_after_a_comment_is_edited(workspace, code, capsys):
    kill()
    code("pipelines/train/core/module.py", "import lightning as L", "import lightning as L  # !")
    assert start() == KILLED_AT
    assert capsys.readouterr().out == ""
    assert not (FOLDER / "aside").exists()


def test_checkpoints_of_other_code_are_set_aside_and_come_back_with_the_code(
    workspace, code, capsys
):
    uninterrupted = train_run()
    shutil.rmtree("resume")
    kill()
    before = contents()
    change = ("pipelines/train/core/shuffle.py", "ROUNDS = 8", "ROUNDS = 9")
    code(*change)
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

    code(*change[:1], *change[:0:-1])
    assert start() == KILLED_AT
    assert "2 checkpoints are of this specification again: brought back" in capsys.readouterr().out
    assert before.items() <= contents().items()
    again = train_run()
    assert same(again[0], uninterrupted[0])
    assert losses(again[1]) == losses(uninterrupted[1])


def test_a_command_by_hand_brings_them_back_too(workspace, code):
    kill()
    before = contents()
    code("pipelines/train/core/shuffle.py", "ROUNDS = 8", "ROUNDS = 9")
    assert start() is None
    (aside,) = (FOLDER / "aside").iterdir()
    for path in aside.iterdir():  # mv
        path.rename(FOLDER / path.name)
    code("pipelines/train/core/shuffle.py", "ROUNDS = 9", "ROUNDS = 8")
    assert start() == KILLED_AT
    assert contents() == before


def test_the_line_names_what_differs(workspace, monkeypatch, capsys):
    kill()

    def said():
        start()
        return capsys.readouterr().out

    capsys.readouterr()
    params = yaml.safe_load(Path("params.yaml").read_text())
    changed = yaml.safe_load(Path("params.yaml").read_text())
    changed["runs"][RUN] |= {"kappa_bits": 2.0, "seed": 3}
    Path("params.yaml").write_text(yaml.safe_dump(changed))
    assert "another specification: settings (kappa_bits, seed). Set aside" in said()
    changed["runs"], changed["models"]["target_small"]["optim"]["lr"] = params["runs"], 0.5
    Path("params.yaml").write_text(yaml.safe_dump(changed))
    said()
    Path("params.yaml").write_text(yaml.safe_dump(params))
    assert "brought back" in said()
    Path("params.yaml").write_text(yaml.safe_dump(changed))
    assert "settings (optim or compute.precision). Set" in said()
    Path("params.yaml").write_text(yaml.safe_dump(params))
    said()
    monkeypatch.setattr("torch.__version__", "9.9")
    assert "specification: torch (2." in said()


def test_budgets_and_decays_are_set_aside_with_the_rest(workspace, monkeypatch):
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["models"]["target_small"]["optim"]["schedule"] = "wsd"
    params["runs"][RUN]["budgets"] = [5 * 520, 8 * 520]
    Path("params.yaml").write_text(yaml.safe_dump(params))
    kill()
    before = contents()
    assert {Path(name).parent.name for name in before} == {"", "decay-4160", "budgets"}
    params["runs"][RUN]["seed"] = 5
    Path("params.yaml").write_text(yaml.safe_dump(params))
    assert start() is None
    assert set(contents().values()) == set(before.values())
    assert {path.name for path in FOLDER.iterdir()} == {"aside"}
    params["runs"][RUN]["seed"] = 0
    Path("params.yaml").write_text(yaml.safe_dump(params))
    assert start() == KILLED_AT
    assert contents() == before


def test_what_was_set_aside_twice_takes_the_place_of_nothing(workspace, monkeypatch):
    kill()
    before = contents()
    (aside, spec_hash) = FOLDER / "aside", peek(next(FOLDER.glob("*.ckpt"))).spec_hash
    shutil.copytree(FOLDER, aside / spec_hash)
    kill(seed=5)
    assert set(before.values()) < set(contents().values())
    assert {path.name for path in aside.iterdir()} == {spec_hash, f"{spec_hash}-2"}


def test_a_finished_run_leaves_only_its_own_checkpoints_behind_to_delete(workspace):
    kill(seed=5)
    train_run()
    (FOLDER / "00000099.unreadable").write_bytes(b"damaged")
    left = {name for name in contents() if name.startswith("aside/")}
    assert len(left) == 2
    remove_finished("smoke", RUN, "another")
    assert (FOLDER / "00000020.ckpt").exists()
    spec_hash = read_checkpoint(FOLDER / "00000020.ckpt")[1].spec_hash
    remove_finished("smoke", RUN, spec_hash)
    assert set(contents()) == left | {"00000099.unreadable"}
    shutil.rmtree(FOLDER)
    train_run()
    remove_finished("smoke", RUN, spec_hash)
    assert not FOLDER.exists()


def test_an_evaluation_deletes_nothing_that_was_set_aside(workspace, monkeypatch):
    kill(seed=5)
    train_run()
    left = {name for name in contents() if name.startswith("aside/")}
    monkeypatch.setenv("DVC_STAGE", f"evaluate@{RUN}")
    evaluate_stage.main(RUN)
    assert Path("results/smoke", RUN, "evaluation.json").exists()
    assert set(contents()) == left
