"""What was asked and expected when a training began, kept in its checkpoints."""

from pathlib import Path

import pytest
import yaml

from pipelines.artifacts.checkpoint import load_model, peek
from pipelines.artifacts.paths import checkpoint_path, results_folder, resume_folder
from pipelines.artifacts.preregistration import Preregistration
from pipelines.artifacts.results import Details, read
from pipelines.config.schema import Bound, Expectation
from pipelines.evaluate import stage as evaluate_stage
from pipelines.tracking.describe import MAX_TAG
from pipelines.train import stage as train_stage
from tests.support.kills import killed
from tests.support.mutants import rejects
from tests.support.training import RUN, tracked_runs, train_run

EXPECTED = {"arm": RUN, "than": "baseline", "bound": "no_difference", "because": "so"}
STATED = Preregistration("Why?", [Expectation(RUN, "baseline", Bound.no_difference, "so")])
FOLDER = resume_folder("smoke", RUN)


def state(question, expectation):
    params = yaml.safe_load(Path("params.yaml").read_text())
    params |= {"question": question, "expectation": expectation}
    Path("params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


@pytest.fixture
def stages(workspace, monkeypatch):
    """The stages of RUN, as DVC runs them, in a workspace that asks and expects something."""
    monkeypatch.setenv("DVC_STAGE", "one of them")
    state("Why?", [EXPECTED])


def kept():
    return peek(checkpoint_path("smoke", RUN)).preregistration


def test_it_is_in_the_checkpoint_in_details_and_in_mlflow(stages):
    """It is no part of what tells trainings apart, but a training of its own has its own."""
    train_stage.main(RUN)
    assert kept() == STATED
    _, before = load_model(checkpoint_path("smoke", RUN))
    state("What?", [])
    train_stage.main(RUN)  # once more, before it is evaluated: from its last checkpoint
    assert kept() == STATED
    evaluate_stage.main(RUN)
    details = read(results_folder("smoke", RUN) / "details.json", Details, "evaluate")
    assert details.manifest.preregistration == STATED
    assert not FOLDER.exists()
    _, (run,) = tracked_runs()
    assert run.data.tags["question"] == "Why?"
    words = f"no difference between the bounds of {RUN} and baseline, because so"
    assert run.data.tags["expectation"] == words
    state(None, [])
    train_stage.main(RUN)
    _, after = load_model(checkpoint_path("smoke", RUN))
    assert after.spec_hash == before.spec_hash
    assert kept() == Preregistration()


def test_long_texts_are_cut_to_what_mlflow_takes_and_nothing_stated_is_no_tag(workspace):
    state("Why? " * 2000, [])
    train_run(tokens=520)
    _, (run,) = tracked_runs()
    assert run.data.tags["question"] == ("Why? " * 2000)[:MAX_TAG]
    assert "expectation" not in run.data.tags


@rejects("segments.read_own: «theirs→manifest».preregistration", "what a resumed training restates")
@pytest.mark.parametrize("begun", [True, False])
def test_a_training_has_begun_where_a_checkpoint_says_so(stages, begun):
    """Before that, what is stated may change; after it, what was stated then is kept."""
    if begun:
        with killed(3):
            train_stage.main(RUN)
    state("What?", [])
    train_stage.main(RUN)
    assert kept().question == ("Why?" if begun else "What?")
