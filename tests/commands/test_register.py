"""The best arm by its bound is in MLflow's model registry under an alias."""

import json
import re
import shutil
from dataclasses import asdict

import mlflow
import pytest
from mlflow import MlflowClient

from pipelines.artifacts.checkpoint import Manifest, settings_hash
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.load import load_experiment
from pipelines.export import keep
from pipelines.host.files import published_journal
from pipelines.tracking.journal import Journal
from pipelines.tracking.store import store_uri
from tests.support.mutants import rejects
from tests.support.results import TOKENS, change, run, write_experiment

RUNS = {
    "base_s0": run(),
    "base_s1": run(seed=1),
    "free_s0": run(kappa=0.125),
    "free_s1": run(kappa=0.125, seed=1),
}


@pytest.fixture
def project(tmp_path, monkeypatch, tokenized):
    """Results of four runs, and checkpoints without weights."""
    shutil.copy(tokenized.folder / "mlflow.db", tmp_path)
    monkeypatch.chdir(tmp_path)
    measure(tmp_path)

    monkeypatch.setattr(keep, "peek_manifest", lambda path: manifest(path.parts[-2]))
    for name in RUNS:
        journal = Journal(
            published_journal("tiny", name),
            key=f"key of {name}",
            experiment="tiny",
            run_name=name,
            params={"data": "target", "data_hash": "data"},
        )
        journal.add_row({"step": 1, "tokens": 6500})
        journal.set_status("FINISHED")
    yield tmp_path
    mlflow.set_tracking_uri(None)  # as it was before register_model


def manifest(name):
    """That of a run's checkpoint."""
    spec = RunSpec(load_experiment(), name)
    return Manifest(
        "tiny", name, asdict(spec.run), asdict(spec.config), 11, TOKENS.hash, "hash",
        tracking_key=f"key of {name}", parts={"settings": settings_hash(spec, 11)},
    )  # fmt: skip


def measure(folder, runs=RUNS, **bounds):
    """Write results of the runs with these bounds."""
    shutil.rmtree(folder / "results", ignore_errors=True)
    write_experiment(folder, runs, bounds, se=0.0001)
    for name in runs:
        change(folder, name, "details.json", manifest=asdict(manifest(name)))


def aliases():
    """By alias the version and the run of the registered model."""
    client = MlflowClient(store_uri())
    (model,) = client.search_registered_models()
    assert model.name == "tiny"
    versions = {alias: client.get_model_version_by_alias("tiny", alias) for alias in model.aliases}
    return {
        alias: (str(version.version), client.get_run(version.run_id).info.run_name)
        for alias, version in versions.items()
    }


def test_the_arm_with_the_lowest_bound_gets_the_alias_until_another_is_lower(project, capsys):
    measure(project, base_s0=0.5, base_s1=0.5001, free_s0=0.3001, free_s1=0.3)
    for _ in range(2):
        keep.main(register=True)
        assert aliases() == {"best": ("1", "free_s1")}
    said = capsys.readouterr().out
    assert re.findall(r"^tiny@best, version (\d), is (\w+):.* (0\.30)", said, re.M) == (
        [("1", "free_s1", "0.30")] * 2
    )
    assert "not shown" not in said
    client = MlflowClient(store_uri())
    version = client.get_model_version("tiny", "1")
    assert version.description.startswith("free ")
    assert version.source.startswith("models:/m-")
    model = client.get_logged_model(version.source.removeprefix("models:/"))
    assert json.loads(model.tags["mlflow.modelVersions"]) == [{"name": "tiny", "version": 1}]

    measure(project, base_s0=0.1, base_s1=0.2, free_s0=0.3, free_s1=0.4)
    keep.main(register=True)
    assert aliases() == {"best": ("2", "base_s0")}

    measure(project, base_s0=0.5, base_s1=0.3, free_s0=0.31, free_s1=0.48)
    keep.main(register=True)
    said = capsys.readouterr().out.splitlines()[-1]
    assert ": free " in said and re.search("not shown to be higher.* base", said)


@rejects('arms.family_words: «if value != ""→[:3]»', "one name for families of different parents")
def test_arms_that_may_not_be_compared_have_an_alias_each(project):
    runs = {**RUNS, "base_s1": run("text"), "free_s1": run("text", kappa=0.125)}
    runs["free_s0"] = run(kappa=0.125, init_from={"hf": "models/llama-3.1"})
    measure(project, runs, base_s0=0.1, free_s1=0.2)
    keep.main(register=True)
    assert {alias: name for alias, (_, name) in aliases().items()} == {
        "best-target-small-6500": "base_s0",
        "best-target-small-6500-models_llama_3_1": "free_s0",
        "best-text-small-6500": "free_s1",
    }
