"""A copied or moved project has its artifacts where it is now."""

from pathlib import Path

from mlflow import MlflowClient

from pipelines.tracking import registry, sync as tracking_sync
from pipelines.tracking.store import store_uri
from tests.support.mutants import rejects
from tests.support.training import RUN, tracked_runs
from tests.tracking.conftest import manifest, on_disk, sync


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@rejects("if «not is_local_uri(known.artifacts)→True»:", "a copy's artifacts written elsewhere")
def test_a_copy_writes_nothing_into_the_original_and_finds_its_own_artifacts(original, project):
    before = content(original)
    details = Path("results/smoke", RUN, "details.json")
    details.write_text(details.read_text() + "\n")  # what another evaluation does
    _, (earlier,) = tracked_runs()
    sync()
    _, (run,) = tracked_runs()
    tag = run.data.tags["file.details.json"]
    assert tag != earlier.data.tags["file.details.json"]
    assert tag.split()[0] == str(details) and not Path(tag).is_absolute()
    assert run.data.tags["file.suite_samples"].split()[0] == f"results/smoke/{RUN}/suite_samples"
    export = project / "exports/smoke/model"
    export.mkdir(parents=True)
    (export / "config.json").write_text("{}")
    entry = registry.ModelEntry(manifest())
    said = entry.hold(export.relative_to(project))
    assert said == f"models:/{entry.id}: in MLflow, the tag `exported` names it"
    model = MlflowClient(store_uri()).get_logged_model(entry.id)
    assert (project / model.tags["exported"] / "config.json").exists()
    assert content(original) == before
    assert on_disk().key == run.data.tags["record"]


def test_a_server_that_takes_files_gets_them_and_each_again_when_it_changes(project, monkeypatch):
    """Its place for them is not of this machine."""
    (project / "mlflow.db").unlink()
    for module in (tracking_sync, registry):
        monkeypatch.setattr(module, "is_local_uri", lambda place: False)
    details = Path("results/smoke", RUN, "details.json")
    for end in ("\n", "\n\n"):
        details.write_text(details.read_text() + end)
        sync()
        client, (run,) = tracked_runs()
        there = project / "mlartifacts/smoke" / run.info.run_id / "artifacts"
        assert {path.name for path in there.iterdir()} == {
            "details.json", "suite.json", "words.jsonl.gz"
        }  # fmt: skip
        assert (there / "details.json").read_bytes() == details.read_bytes()
    export = project / "exported"
    export.mkdir()
    (export / "config.json").write_text("{}")
    entry = registry.ModelEntry(manifest())
    assert entry.hold(export) == f"models:/{entry.id}: the same, in MLflow"
    assert [file.path for file in client.list_logged_model_artifacts(entry.id)] == ["config.json"]
