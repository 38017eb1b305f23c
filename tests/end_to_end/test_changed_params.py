"""params.yaml that changes while a stage runs: nothing wrong is recorded, and no work is lost."""

import json
import re
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from pipelines import sample
from pipelines.artifacts.checkpoint import Manifest, peek
from pipelines.artifacts.paths import checkpoint_path
from pipelines.common.errors import UserError
from pipelines.config.load import load_experiment
from pipelines.data import build as data
from pipelines.evaluate import stage as evaluate
from pipelines.report import page as report
from pipelines.suite import stage as suite
from pipelines.tokenize import build as tokenize
from pipelines.train import stage as train
from tests.support.mutants import rejects
from tests.support.results import in_folder, make_report, run, task, write_experiment, write_suite
from tests.support.training import RUN, train_run

TEXT_RUN = "text_free_k1_2"


def change(key, value):
    """Change a setting of params.yaml; returns what undoes it."""
    params = OmegaConf.load("params.yaml")
    before = OmegaConf.select(params, key)
    OmegaConf.update(params, key, value)
    OmegaConf.save(params, "params.yaml")
    return partial(change, key, before)


def meanwhile(monkeypatch, module, name, key, value):
    """Have the setting change once a function of a stage has done its work; returns what undoes
    the change, and lets the function be.
    """
    original, undo = getattr(module, name), []

    def work(*arguments, **keywords):
        outcome = original(*arguments, **keywords)
        undo.append(change(key, value))
        return outcome

    monkeypatch.setattr(module, name, work)

    def back():
        undo[0]()
        monkeypatch.setattr(module, name, original)

    return back


def must_not_run(monkeypatch, module, name):
    def refuse(*_, **__):
        raise AssertionError(f"{name} ran again")

    monkeypatch.setattr(module, name, refuse)


@rejects(
    "train/stage.py",
    "frozen.check(",
    "str(",
    "a training whose parameters have changed is handed on",
)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"runs.{RUN}.seed", 22),
        (f"runs.{RUN}.kappa_bits", 0.25),
        (f"runs.{RUN}.tokens", 5200),
        ("models.target_small.optim.lr", 0.5),
    ],
)
def test_a_training_is_not_handed_on_and_its_checkpoints_wait(workspace, monkeypatch, key, value):
    back = meanwhile(monkeypatch, train, "fit", key, value)
    with pytest.raises(UserError, match=rf"since train@{RUN} began: {re.escape(key)} was "):
        train.main(RUN)
    assert not Path("checkpoints").exists() and not Path("results").exists()
    (trained,) = Path("resume/smoke", RUN).glob("00000020.ckpt")
    back()
    train.main(RUN)
    assert checkpoint_path("smoke", RUN).samefile(trained)


def test_the_work_waits_through_a_training_with_the_other_value(workspace, monkeypatch):
    back = meanwhile(monkeypatch, train, "fit", f"runs.{RUN}.seed", 22)
    with pytest.raises(UserError):
        train.main(RUN)
    (first,) = Path("resume/smoke", RUN).glob("00000020.ckpt")
    inode = first.stat().st_ino
    monkeypatch.undo()
    monkeypatch.chdir(workspace)
    train.main(RUN)
    card = peek(checkpoint_path("smoke", RUN))
    assert card.run["seed"] == 22
    back()
    train.main(RUN)
    assert checkpoint_path("smoke", RUN).stat().st_ino == inode


def test_figures_wait_and_are_not_measured_again(workspace, monkeypatch):
    train_run()
    results = Path("results/smoke") / RUN
    back = meanwhile(monkeypatch, evaluate, "measure_all", "evaluation.seed", 22)
    with pytest.raises(UserError, match=f"since evaluate@{RUN} began: evaluation.seed was 0 and"):
        evaluate.main(RUN)
    assert {path.name for path in results.iterdir()} == {"curve.csv"}
    back()
    must_not_run(monkeypatch, evaluate, "measure_all")
    evaluate.main(RUN)
    assert (results / "evaluation.json").exists()
    assert not Path(f"resume/smoke/{RUN}.evaluate").exists()
    with pytest.raises(AssertionError, match="ran again"):
        evaluate.main(RUN)  # they are handed on once


@rejects(
    "evaluate/unrecorded.py",
    "(asdict(experiment.evaluation), manifest.spec_hash",
    "(manifest.spec_hash",
    "figures that wait are taken whatever the settings are",
)
def test_figures_of_other_settings_are_not_taken(workspace, monkeypatch):
    train_run()
    meanwhile(monkeypatch, evaluate, "measure_all", "evaluation.seed", 22)
    with pytest.raises(UserError):
        evaluate.main(RUN)
    must_not_run(monkeypatch, evaluate, "measure_all")
    with pytest.raises(AssertionError, match="ran again"):
        evaluate.main(RUN)


def test_scores_of_benchmarks_wait(workspace, monkeypatch):
    train_run(TEXT_RUN)
    results = Path("results/smoke") / TEXT_RUN
    params = OmegaConf.load("params.yaml")
    params.suite.tasks = {"words": params.suite.tasks.words}
    OmegaConf.save(params, "params.yaml")
    back = meanwhile(monkeypatch, suite, "run_task", "suite.seed", 22)
    with pytest.raises(
        UserError, match=f"since suite@{TEXT_RUN} began: suite.seed was 0 and is 22"
    ):
        suite.main(TEXT_RUN)
    assert {path.name for path in results.iterdir()} == {"curve.csv"}
    back()
    must_not_run(monkeypatch, suite, "run_task")
    suite.main(TEXT_RUN)
    assert (results / "suite.json").exists()


def test_a_corpus_and_its_tokens_are_not_handed_on(tokenized, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text((tokenized.folder / "params.yaml").read_text())
    back = meanwhile(monkeypatch, data, "make_parts", "data.stdlib.seed", 22)
    with pytest.raises(UserError, match=r"since data@stdlib began: data\.stdlib\.seed was 0 and"):
        data.main("stdlib")
    assert not Path("data/corpus/stdlib").exists()
    back()
    data.main("stdlib")
    assert Path("data/corpus/stdlib").exists()
    back = meanwhile(monkeypatch, tokenize, "write_overlap", "data.stdlib.vocab_size", 300)
    with pytest.raises(UserError, match=r"since tokenize@stdlib began: data\.stdlib\.vocab_size"):
        tokenize.main("stdlib")
    assert not Path("data/tokens/stdlib").exists()
    back()
    tokenize.main("stdlib")
    assert Path("data/tokens/stdlib").exists()


def test_sequences_of_a_process_are_not_handed_on(tokenized, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text((tokenized.folder / "params.yaml").read_text())
    meanwhile(monkeypatch, data, "process_texts", "data.target.seed", 22)
    with pytest.raises(UserError, match=r"since data@target began: data\.target\.seed was"):
        data.main("target")
    assert not Path("data/corpus/target").exists()


def test_a_report_is_not_handed_on(tmp_path, monkeypatch):
    write_experiment(tmp_path, {"base": run(), "free": run(kappa=1.0)}, {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "write_report", lambda *_: change("evaluation.seed", 22))
    with pytest.raises(UserError, match=r"since report began: evaluation\.seed was 0 and is 22"):
        report.main()
    assert not Path("report/tiny").exists()


@rejects(
    "artifacts/card.py",
    "if not words and settings and settings",
    "if not words and not settings and settings",
    "a card without the optimizer's settings",
)
@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (f"runs.{RUN}.seed", 22, f"runs.{RUN}.seed was 0 and is 22 now"),
        (f"runs.{RUN}.kappa_bits", 0.25, f"runs.{RUN}.kappa_bits was 0.125 and is 0.25 now"),
        (f"runs.{RUN}.latent.map", "linear", f"runs.{RUN}.latent.map was null and is linear now"),
        (
            "models.target_small.architecture.latent.inject",
            "residual",
            "models.target_small.architecture.latent.inject was kv and is residual now",
        ),
        (f"runs.{RUN}.budgets", [5200], f"runs.{RUN}.budgets was [] and is [5200] now"),
        (
            "models.target_small.architecture.ffn_width",
            48,
            "models.target_small.architecture.ffn_width was 32 and is 48 now",
        ),
        ("models.target_small.optim.lr", 0.5, "models.target_small.optim or compute.precision"),
        ("compute.precision", "bf16", "models.target_small.optim or compute.precision"),
    ],
)
def test_a_checkpoint_that_was_trained_otherwise_is_refused(workspace, key, value, words):
    """As DVC may have recorded it, which compares no cards."""
    train_run()
    change(key, value)
    with pytest.raises(UserError, match=re.escape(words)) as refused:
        evaluate.main(RUN)
    assert f"`dvc repro --force --single-item train@{RUN}`" in str(refused.value)


def test_no_sample_is_drawn_from_a_checkpoint_that_was_trained_otherwise(workspace):
    train_run()
    change(f"runs.{RUN}.latent.map", "linear")
    with pytest.raises(UserError, match=rf"runs\.{RUN}\.latent\.map was null and is linear now"):
        sample.main(RUN, "fresh", None, groups=1, size=1, new=None, temperature=1.0, seed=0)


def test_the_suite_refuses_a_checkpoint_that_was_trained_otherwise(workspace):
    train_run(TEXT_RUN)
    change(f"runs.{TEXT_RUN}.seed", 22)
    with pytest.raises(UserError, match=rf"runs\.{TEXT_RUN}\.seed was 0 and is 22 now"):
        suite.main(TEXT_RUN)


@rejects(
    "artifacts/run_results.py",
    "    if made.manifest:",
    "    if made.manifest is None:",
    "a report that believes any card",
)
@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("runs.free.seed", 22, "train@free"),
        ("runs.free.kappa_bits", 0.5, "train@free"),
        ("evaluation.seed", 22, "evaluate@"),
        ("evaluation.particles", 22, "evaluate@"),
        ("suite.seed", 22, "suite@free"),
        ("suite.limit", 3, "suite@free"),
    ],
)
def test_the_report_refuses_results_of_other_settings(tmp_path, monkeypatch, key, value, named):
    write_experiment(tmp_path, {"base": run(), "free": run(kappa=1.0)}, {})
    write_suite(tmp_path, "free", {"facts": task(0.3)})
    monkeypatch.chdir(tmp_path)
    write_cards()
    make_report(tmp_path)
    change(key, value)
    with pytest.raises(UserError, match=rf"{re.escape(key)} was .* and is {value} now.*{named}"):
        make_report(tmp_path)


def write_cards():
    """Have all results of the current folder say what they were made with: params.yaml."""
    with in_folder(Path()):
        experiment = load_experiment()
    for name, arm in experiment.runs.items():
        architecture = asdict(experiment.model_config(arm))
        card = Manifest("tiny", name, asdict(arm), architecture, 11, "data", "hash")
        for file, settings in (
            ("details.json", experiment.evaluation),
            ("suite.json", experiment.suite),
        ):
            path = Path("results/tiny") / name / file
            if path.exists():
                content = json.loads(path.read_text())
                made = {"manifest": asdict(card), "settings": asdict(settings)}
                path.write_text(json.dumps(content | made))
