"""Data of benchmarks: from a hub that is made here, to a folder, to another place without a hub."""

import json
import shutil
from types import SimpleNamespace

import datasets
import pytest
import yaml
from datasets import Dataset, DatasetDict
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

from pipelines.common.atomic_files import ROOT
from pipelines.common.errors import UserError
from pipelines.fetch import build as fetch
from pipelines.suite import benchmark_data
from pipelines.suite.tasks import Skipped, run_task
from tests.support.benchmark_models import Scripted, entry, settings
from tests.support.mutants import rejects


def piqa():
    docs = [dict(goal=f"g{i}", sol1="first", sol2="second", label=i % 2) for i in range(6)]
    data = Dataset.from_list(docs)
    return DatasetDict(train=data, validation=data)


class Hub:
    """A hub of some datasets, each at a revision of its own."""

    def __init__(self, monkeypatch):
        self.content, self.asked = {("baber/piqa", None): piqa}, []
        self.error = None
        self.local = datasets.load_dataset
        monkeypatch.setattr(HfApi, "dataset_info", self.info)
        monkeypatch.setattr(datasets, "load_dataset", self.load)
        monkeypatch.setattr(benchmark_data, "NO_HUB", [])

    def info(self, dataset, revision=None, timeout=None):
        self.asked.append(dataset)
        assert timeout <= 10
        if self.error:
            raise self.error
        if dataset not in {known for known, _ in self.content}:
            response = SimpleNamespace(headers={}, request=None, status_code=404)
            raise HfHubHTTPError(f"404: {dataset}\nis unknown", response=response)
        return SimpleNamespace(sha=f"commit of {dataset}")

    def load(self, dataset, name=None, revision=None, cache_dir=None, **kwargs):
        if dataset == "json":
            return self.local(dataset, name, cache_dir=cache_dir, **kwargs)
        assert revision == f"commit of {dataset}"
        return self.content[dataset, name](**kwargs)


@pytest.fixture
def hub(monkeypatch):
    return Hub(monkeypatch)


@pytest.fixture
def project(monkeypatch, tmp_path):
    """A project's folder whose suite has three tasks, of which the hub knows one."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "conf").symlink_to(ROOT / "conf")
    names = {"words": "ft_words", "piqa": "piqa", "swag": "hellaswag"}
    params = {"suite": {"tasks": {name: {"task": task} for name, task in names.items()}}}
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    monkeypatch.chdir(folder)
    return folder


def test_what_can_be_had_is_fetched_and_the_rest_named(hub, project, capsys):
    with pytest.raises(SystemExit) as stop:
        fetch.main([])
    assert stop.value.code == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "words: brings its own data",
        "piqa: baber/piqa, 6 documents",
        "swag: not fetched",
    ]
    assert err.startswith("swag: ") and "404: Rowan/hellaswag is unknown" in err
    assert len(err.splitlines()) == 1
    listing = project / "data/benchmarks/fetched.json"
    origin = {"dataset": "baber/piqa", "name": None, "revision": "commit of baber/piqa"}
    assert json.loads(listing.read_text()) == {"piqa": {"documents": 6, "datasets": [origin]}}
    written = listing.stat().st_mtime_ns
    hub.asked.clear()
    with pytest.raises(SystemExit):
        fetch.main([])
    assert hub.asked == ["Rowan/hellaswag"] and listing.stat().st_mtime_ns == written


def test_the_folder_serves_elsewhere_without_a_hub(hub, project, tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        fetch.main([])
    there = tmp_path / "there"
    there.mkdir()
    shutil.move(project / "data", there / "data")
    monkeypatch.chdir(there)
    hub.asked.clear()
    hub.error = OSError("no network")
    spec = entry("piqa", "acc_norm,none")
    model = Scripted(lambda _, choice: -float(choice == " second"))
    _, scores, _ = run_task(model, "piqa", spec, settings())
    assert scores == [1.0, 0.0] * 3 and not hub.asked
    files = {path.name for path in (there / "data").rglob("*") if path.is_file()}
    run_task(model, "piqa", spec, settings())
    assert files == {path.name for path in (there / "data").rglob("*") if path.is_file()}


@rejects(
    "    if kwargs:\n", "    if False:\n", "all files of a dataset of benchmarks in one folder"
)
def test_two_parts_of_a_dataset_lie_apart(hub, project):
    hub.content["a/b", None] = lambda data_files: DatasetDict(
        test=Dataset.from_list([{"file": data_files}])
    )
    for _ in range(2):
        for name in ("x.csv", "y.csv"):
            found = benchmark_data.load("a/b", None, {"data_files": name})
            assert found["test"][0] == {"file": name}
    assert len(hub.asked) == 2


def test_a_hub_out_of_reach_is_asked_once(hub, project, capsys):
    hub.error = ConnectionError("no route\nto host")
    tasks = {name: {"task": name} for name in ("piqa", "gsm8k")}
    (project / "params.yaml").write_text(yaml.safe_dump({"suite": {"tasks": tasks}}))
    with pytest.raises(SystemExit):
        fetch.main([])
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 2 and all("no hub in reach: no route to host" in line for line in err)
    with pytest.raises(Skipped, match="no route to host"):
        run_task(Scripted(), "swag", entry("hellaswag", "acc,none"), settings())
    assert len(hub.asked) == 1


def test_a_run_fetches_what_it_needs_and_a_download_that_breaks_off_leaves_nothing(hub, project):
    def broken():
        raise OSError("connection reset")

    hub.content["baber/piqa", None] = broken
    with pytest.raises(Skipped, match="connection reset"):
        run_task(Scripted(), "piqa", entry("piqa", "acc,none"), settings())
    left = [path for path in (project / "data").rglob("*") if path.suffix != ".lock"]
    assert left == [project / "data/benchmarks"]
    hub.content["baber/piqa", None] = piqa
    run_task(Scripted(), "piqa", entry("piqa", "acc,none"), settings())
    assert (project / "data/benchmarks/baber--piqa/default/origin.json").exists()


def test_suites_by_name(hub, project, capsys):
    hub.error = AssertionError("nothing of it is on a hub")
    fetch.main(["suite=mini", "suite=none"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and all(line.endswith(": brings its own data") for line in lines)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["suite=papr"], "suite=papr: not one of mini, none, paper"),
        (["paper"], "'paper'; usage: python -m pipelines.fetch"),
        (["suite="], "usage"),
    ],
)
def test_mistakes_on_the_command_line(project, arguments, message):
    with pytest.raises(UserError, match=message):
        fetch.main(arguments)


@pytest.mark.parametrize("text", ["", "suite: 1", "suite: {tasks: [1]}", "a: [", "suite: {}"])
def test_a_params_yaml_without_a_suite(project, text):
    (project / "params.yaml").write_text(text)
    with pytest.raises(UserError, match=r"^params\.yaml: (no tasks of a suite|while parsing)"):
        fetch.main([])
