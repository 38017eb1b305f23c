"""What was asked and expected when a training began, kept in its checkpoints."""

from pathlib import Path

import yaml

from pipelines.artifacts.checkpoint import Preregistration, peek_manifest
from pipelines.artifacts.result_files import read_json
from pipelines.artifacts.results import Details
from pipelines.config.schema import Bound, Expectation
from pipelines.evaluate import stage as evaluate_stage
from pipelines.host.files import checkpoint_path, results_folder, resume_folder
from pipelines.tracking.journal import MAX_TAG, statement_tags
from pipelines.train import stage as train_stage
from tests.support.settings import smoke
from tests.support.training import RUN, tracked_runs

EXPECTED = {
    "arm": RUN, "than": "baseline", "bound": "equivalent", "because": "so", "smallest_effect": 0.5
}  # fmt: skip
STATED = Preregistration("Why?", [Expectation(RUN, "baseline", Bound.equivalent, "so", 0.5)])


def state(question, expectation):
    params = yaml.safe_load(Path("params.yaml").read_text())
    params |= {"question": question, "expectation": expectation}
    Path("params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def kept():
    return peek_manifest(checkpoint_path("smoke", RUN)).preregistration


def test_it_is_in_the_checkpoint_in_details_and_in_mlflow(workspace, monkeypatch):
    """A training that goes on keeps what was stated as it began; one of its own has its own."""
    monkeypatch.setenv("DVC_STAGE", "as DVC runs them")
    state("Why?", [EXPECTED])
    train_stage.main(RUN)
    assert kept() == STATED
    state("What?", [])
    train_stage.main(RUN)  # once more, before it is evaluated: from its last checkpoint
    assert kept() == STATED
    evaluate_stage.main(RUN)
    details = read_json(results_folder("smoke", RUN) / "details.json", Details, "evaluate")
    assert details.manifest.preregistration == STATED
    assert not resume_folder("smoke", RUN).exists()
    _, (run,) = tracked_runs()
    assert run.data.tags["question"] == "Why?"
    words = f"the bounds of {RUN} and baseline equivalent (within 0.5), because so"
    assert run.data.tags["expectation"] == words
    state(None, [])
    train_stage.main(RUN)
    assert kept() == Preregistration()


def test_long_texts_are_cut_to_what_mlflow_takes_and_nothing_stated_is_no_tag():
    experiment = smoke()
    experiment.question = "Why? " * 2000
    assert statement_tags(experiment) == {"question": experiment.question[:MAX_TAG]}
