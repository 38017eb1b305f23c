"""What was asked and expected when a training began, kept beside its checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from pipelines.artifacts import preregistration
from pipelines.artifacts.checkpoint import ENTRY, Manifest, load_model
from pipelines.artifacts.paths import checkpoint_path, results_folder, resume_folder
from pipelines.artifacts.preregistration import Preregistration
from pipelines.artifacts.results import Details, read
from pipelines.common.errors import UserError
from pipelines.config.load import load_experiment
from pipelines.config.schema import Bound, Expectation
from pipelines.evaluate import stage as evaluate_stage
from pipelines.tracking.describe import MAX_TAG
from pipelines.train import stage as train_stage
from pipelines.train.core import trainer
from pipelines.train.core.checkpoint_callback import Checkpoints
from tests.support.training import RUN, tracked_runs, train_run

EXPECTED = {"arm": RUN, "than": "baseline", "bound": "no_difference", "because": "so"}
STATED = Preregistration("Why?", [Expectation(RUN, "baseline", Bound.no_difference, "so")])
FOLDER = resume_folder("smoke", RUN)


def state(question: str | None, expectation: list[dict[str, Any]]) -> None:
    params = yaml.safe_load(Path("params.yaml").read_text())
    params |= {"question": question, "expectation": expectation}
    Path("params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


@pytest.fixture
def stages(workspace, monkeypatch):
    """The stages of RUN, as DVC runs them, in a workspace that asks and expects something."""
    monkeypatch.setenv("DVC_STAGE", "one of them")
    state("Why?", [EXPECTED])
    return workspace


def kept() -> Preregistration | None:
    return preregistration.read("smoke", RUN)


def test_it_lies_beside_the_checkpoint_in_details_and_in_mlflow(stages):
    train_stage.main(RUN)
    assert kept() == STATED
    state("What?", [])
    train_stage.main(RUN)  # once more, before it is evaluated: from its last checkpoint
    assert kept() == STATED
    evaluate_stage.main(RUN)
    details = read(results_folder("smoke", RUN) / "details.json", Details, "evaluate")
    assert details.training.preregistration == STATED
    assert details.training.git_revision
    assert not FOLDER.exists()
    _, (run,) = tracked_runs()
    assert run.data.tags["question"] == "Why?"
    words = f"no difference between the bounds of {RUN} and baseline, because so"
    assert run.data.tags["expectation"] == words


def test_a_resumed_run_keeps_what_was_stated_when_it_began(stages, monkeypatch):
    def die(self, trainer):
        inherited(self, trainer)
        if trainer.global_step == 7:
            raise RuntimeError("killed")

    inherited = Checkpoints.on_step
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_step", die)
        with pytest.raises(RuntimeError, match="killed"):
            train_stage.main(RUN)
    state("What?", [])
    train_stage.main(RUN)
    assert kept() == STATED


def test_long_texts_are_cut_to_what_mlflow_takes_and_nothing_stated_is_no_tag(stages):
    state("Why? " * 2000, [])
    train_run()
    _, (run,) = tracked_runs()
    assert run.data.tags["question"] == ("Why? " * 2000)[:MAX_TAG]
    assert "expectation" not in run.data.tags


def test_of_a_run_trained_by_code_that_kept_none_it_is_not_known(stages):
    train_run()  # without the stage, which writes it down
    train_stage.main(RUN)  # goes on from the last checkpoint
    assert kept() is None
    evaluate_stage.main(RUN)
    details = read(results_folder("smoke", RUN) / "details.json", Details, "evaluate")
    assert details.training.preregistration is None


def checkpoint(path: Path, spec_hash: str) -> None:
    """A file that is known by its manifest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    manifest = Manifest("smoke", RUN, {}, {}, 1, "", spec_hash)
    torch.save({ENTRY: vars(manifest)}, path)


@pytest.mark.parametrize(
    ("path", "spec_hash", "begun"),
    [
        ("00000007.ckpt", "mine", True),
        ("decay-5200/00000007.ckpt", "mine", True),
        ("aside/mine/00000007.ckpt", "mine", True),
        ("00000007.ckpt", "another", False),
        ("aside/another/00000007.ckpt", "another", False),
    ],
)
def test_a_training_has_begun_where_a_checkpoint_says_so(stages, path, spec_hash, begun):
    """Before that, what is stated may change."""
    experiment = load_experiment()
    preregistration.record(experiment, RUN, "mine")
    checkpoint(FOLDER / path, spec_hash)
    experiment.question = "What?"
    preregistration.record(experiment, RUN, "mine")
    checkpoint_path("smoke", RUN).parent.mkdir(parents=True)
    preregistration.publish("smoke", RUN, "mine")
    stated = kept()
    assert stated and stated.question == ("Why?" if begun else "What?")


def test_it_is_no_part_of_what_tells_trainings_apart(stages):
    train_stage.main(RUN)
    _, before = load_model(checkpoint_path("smoke", RUN))
    state(None, [])
    evaluate_stage.main(RUN)
    train_stage.main(RUN)
    _, after = load_model(checkpoint_path("smoke", RUN))
    assert after.spec_hash == before.spec_hash
    assert kept() == Preregistration()  # a training of its own: the one before has ended


def test_a_disk_that_does_not_take_it_is_named(stages):
    FOLDER.mkdir(parents=True)
    FOLDER.joinpath("preregistration-mine.json.partial").mkdir()  # where it is written first
    with pytest.raises(UserError, match=rf"^{FOLDER}: Is a directory$"):
        preregistration.record(load_experiment(), RUN, "mine")
