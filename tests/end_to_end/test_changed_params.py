"""params.yaml that changes while a stage runs: nothing wrong is recorded, and no work is lost."""

import re
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from pipelines.data import build as data
from pipelines.evaluate import stage as evaluate
from pipelines.host.errors import UserError
from pipelines.report import page as report
from pipelines.suite import stage as suite
from pipelines.tokenize import build as tokenize
from tests.support.commands import call
from tests.support.mutants import rejects
from tests.support.results import run, write_experiment
from tests.support.settings import change
from tests.support.training import RUN, train_run
from tests.support.workspace import enter

TEXT_RUN = "text_free_k1_2"


def meanwhile(patch, module, name, key, value):
    """Have the setting change once a function of a stage has done its work, which it does not do
    again; returns what undoes the change.
    """
    original, undo = getattr(module, name), []

    def work(*arguments, **keywords):
        assert not undo, f"{name} ran again"
        outcome = original(*arguments, **keywords)
        undo.append(change(key, value))
        return outcome

    patch.setattr(module, name, work)
    return lambda: undo[0]()


@pytest.fixture(scope="module")
def trained(tokenized, tmp_path_factory):
    """A folder with a run on the target task and one on text, of which little is measured."""
    with pytest.MonkeyPatch.context() as patch:
        folder = enter(tokenized, tmp_path_factory.mktemp("trained"), patch)
        for key, value in (("tokens", 1040), ("groups", 2), ("iwae_samples", 2)):
            change(f"evaluation.{key}", value)
        params = OmegaConf.load("params.yaml")
        params.suite.tasks = {"words": params.suite.tasks.words}
        OmegaConf.save(params, "params.yaml")
        for name in (RUN, TEXT_RUN):
            train_run(name)
    return folder


@pytest.fixture
def project(trained, tmp_path, monkeypatch):
    """A copy of it, which is the current folder."""
    shutil.copytree(trained, tmp_path / "project", symlinks=True)
    monkeypatch.chdir(tmp_path / "project")


def test_figures_wait_for_their_settings_and_are_not_measured_again(project, monkeypatch):
    results = Path("results/smoke") / RUN
    back = meanwhile(monkeypatch, evaluate, "measure_all", "evaluation.seed", 22)
    with pytest.raises(
        UserError, match=rf"while evaluate@{RUN} was running \(evaluation.seed was 0 and"
    ):
        evaluate.main(RUN)
    assert {path.name for path in results.iterdir()} == {"curve.csv"}
    with pytest.raises(AssertionError, match="ran again"):
        evaluate.main(RUN)  # they are not of these settings
    back()
    evaluate.main(RUN)
    assert {path.name for path in results.iterdir()} > {*evaluate.FILES}
    assert not Path(f"resume/smoke/{RUN}.evaluate").exists()
    with pytest.raises(AssertionError, match="ran again"):
        evaluate.main(RUN)  # they are handed on once


def test_scores_of_benchmarks_wait(project, monkeypatch):
    results = Path("results/smoke") / TEXT_RUN
    back = meanwhile(monkeypatch, suite, "run_task", "suite.seed", 22)
    words = rf"while suite@{TEXT_RUN} was running \(suite.seed was 0 and is 22"
    with pytest.raises(UserError, match=words):
        suite.main(TEXT_RUN)
    assert {path.name for path in results.iterdir()} == {"curve.csv"}
    back()
    suite.main(TEXT_RUN)
    assert (results / "suite.json").exists()


@pytest.mark.parametrize(
    ("stage", "work", "name", "key"),
    [
        (data, "make_parts", "stdlib", "data.stdlib.seed"),
        (data, "process_texts", "target", "data.target.seed"),
        (tokenize, "write_overlap", "stdlib", "data.stdlib.vocab_size"),
    ],
)
def test_texts_and_tokens_are_not_handed_on(
    tokenized, tmp_path, monkeypatch, stage, work, name, key
):
    monkeypatch.chdir(tmp_path)
    shutil.copy(tokenized.folder / "params.yaml", "params.yaml")
    made = Path("data/corpus" if stage is data else "data/tokens", name)
    if stage is tokenize:
        shutil.copytree(tokenized.folder / "data/corpus", "data/corpus")
    with monkeypatch.context() as patch:
        back = meanwhile(patch, stage, work, key, 300)
        words = rf"while {stage.__name__.split('.')[1]}@{name} was running \({re.escape(key)} was"
        with pytest.raises(UserError, match=words):
            stage.main(name)
    assert not made.exists()
    back()
    stage.main(name)
    assert made.exists()


def test_a_report_is_not_handed_on(tmp_path, monkeypatch):
    write_experiment(tmp_path, {"base": run(), "free": run(kappa=1.0)}, {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "write_report", lambda *_: change("evaluation.seed", 22))
    with pytest.raises(
        UserError, match=r"while report was running \(evaluation\.seed was 0 and is 22"
    ):
        report.main()
    assert not Path("report/tiny").exists()


@rejects(
    "checkpoint.load_trained: «check_manifest→»(path", "an export unchecked", case="export --to hf"
)
@pytest.mark.parametrize("command", ["evaluate", "sample", "suite", "export --to hf"])
def test_commands_refuse_a_checkpoint_that_was_trained_otherwise(project, command):
    """As DVC may have recorded it, which compares no manifests."""
    change(f"runs.{TEXT_RUN}.seed", 22)
    words = rf"seed was 0 and is 22 now.*`dvc repro --force --single-item train@{TEXT_RUN}`"
    with pytest.raises(UserError, match=words):
        call(*command.split(), TEXT_RUN)
    assert not Path("exports").exists()
