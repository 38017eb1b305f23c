"""Data of benchmarks: from a hub that is made here, to a folder, to another place without a hub."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import datasets
import pytest
import yaml
from datasets.packaged_modules.cache.cache import Cache
from datasets.packaged_modules.json.json import Json
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

from pipelines.commands import fetch
from pipelines.host.errors import UserError
from pipelines.host.files import ROOT
from pipelines.suite import benchmark_data, tasks
from pipelines.suite.sandbox import run as sandbox
from pipelines.suite.tasks import Skipped, run_task
from tests.support import real_benchmarks
from tests.support.benchmark_models import Scripted, entries, entry, settings
from tests.support.mutants import rejects
from tests.support.pages import numbers

PIQA = [dict(goal=f"g{i}", sol1="first", sol2="second", label=i % 2) for i in range(6)]
FIRST, SECOND = "1" * 40, "2" * 40  # commits


class Hub:
    """A hub of some datasets. What it serves goes through the cache of the real library."""

    def __init__(self, monkeypatch, folder):
        self.folder, self.commit, self.error = folder, FIRST, None
        self.content = {"baber/piqa": lambda: PIQA}
        self.asked, self.served = [], []
        self.local = datasets.load_dataset
        monkeypatch.setattr(HfApi, "dataset_info", self.info)
        monkeypatch.setattr(datasets, "load_dataset", self.load)
        monkeypatch.setattr(benchmark_data, "NO_HUB", [])
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)

    def info(self, dataset, revision=None, timeout=None):
        self.asked.append(dataset)
        assert timeout == 10
        if self.error:
            raise self.error
        if dataset not in self.content:
            response = SimpleNamespace(headers={}, request=None, status_code=404)
            raise HfHubHTTPError(f"404: {dataset}\nis unknown", response=response)
        return SimpleNamespace(sha=revision or self.commit)

    def load(self, dataset, name=None, revision=None, cache_dir=None, **kwargs):
        if dataset == "json":
            return self.local(dataset, name, cache_dir=cache_dir, **kwargs)
        rows = self.content[dataset](**kwargs)
        self.served.append(revision)
        path = self.folder / f"{len(self.served)}.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        owner, _, short = dataset.partition("/")
        builder = Json(
            cache_dir=str(self.folder / "cache"),
            dataset_name=short,
            config_name=name or "default",
            hash=revision,
            data_files={split: [str(path)] for split in ("train", "validation")},
        )
        builder.download_and_prepare()
        *_, configuration, version, _ = made = Path(builder.cache_dir).parts
        target = Path(cache_dir, f"{owner}___{short}", *made[-3:])
        shutil.copytree(builder.cache_dir, target, dirs_exist_ok=True)
        where = dict(config_name=configuration, version=version, hash=revision)
        return Cache(cache_dir=cache_dir, repo_id=dataset, dataset_name=short, **where).as_dataset()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    return Hub(monkeypatch, tmp_path)


@pytest.fixture
def project(monkeypatch, tmp_path):
    """A project's folder whose suite has three tasks, of which the hub knows one."""
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("conf", "tasks"):
        (folder / name).symlink_to(ROOT / name)
    names = {"words": "ft_words", "piqa": "piqa", "swag": "hellaswag"}
    params = {"suite": {"tasks": {name: {"task": task} for name, task in names.items()}}}
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    monkeypatch.chdir(folder)
    return folder


def score_piqa():
    model = Scripted(lambda _, choice: -float(choice == " second"))
    return run_task(model, "piqa", entry("piqa", "acc_norm,none"), settings())


def test_what_can_be_had_is_fetched_and_the_rest_named(hub, project, capsys):
    with pytest.raises(SystemExit) as stop:
        fetch.main.callback([])
    assert stop.value.code == 1
    out, err = capsys.readouterr()
    found = [(line.partition(":")[0], numbers(line)) for line in out.splitlines()]
    assert found == [("words", []), ("piqa", ["6"]), ("swag", [])]
    assert err.startswith("swag: ") and "404: Rowan/hellaswag" in err
    assert len(err.splitlines()) == 1
    listing = project / "data/benchmarks/fetched.json"
    origin = {"dataset": "baber/piqa", "name": None, "revision": FIRST}
    assert json.loads(listing.read_text()) == {"piqa": {"documents": 6, "datasets": [origin]}}
    written = listing.stat().st_mtime_ns
    hub.asked.clear()
    with pytest.raises(SystemExit):
        fetch.main.callback([])
    assert hub.asked == ["Rowan/hellaswag"] and listing.stat().st_mtime_ns == written


def test_the_folder_serves_elsewhere_without_a_hub(hub, project, tmp_path, monkeypatch):
    with pytest.raises(SystemExit):
        fetch.main.callback([])
    there = tmp_path / "there"
    there.mkdir()
    shutil.move(project / "data", there / "data")
    monkeypatch.chdir(there)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    hub.asked.clear()
    result, scores, *_ = score_piqa()
    assert scores == [1.0, 0.0] * 3 and not hub.asked
    assert result.sources == [f"baber/piqa at {FIRST}"]
    files = {path for path in (there / "data").rglob("*") if path.is_file()}
    score_piqa()
    assert files == {path for path in (there / "data").rglob("*") if path.is_file()}
    shutil.rmtree(there / "data/benchmarks/baber___piqa")
    with pytest.raises(Skipped, match=r"no hub in reach: HF_HUB_OFFLINE .* is set") as said:
        score_piqa()
    assert "\n" not in str(said.value)


@rejects("benchmark_data.fetch: if «pin→None» else", "a benchmark's data that change with the hub")
def test_the_commit_of_the_first_download_is_kept(hub, project):
    score_piqa()
    hub.commit = SECOND
    shutil.rmtree(project / "data/benchmarks/baber___piqa")
    assert score_piqa().result.sources == [f"baber/piqa at {FIRST}"]
    assert hub.served == [FIRST, FIRST]
    (project / "data/benchmarks/pins.json").unlink()
    assert score_piqa().result.sources == [f"baber/piqa at {SECOND}"]


def test_what_the_library_has_cached_is_not_taken_for_another_commit(hub, project, monkeypatch):
    score_piqa()
    (project / "data/benchmarks/pins.json").unlink()
    hub.commit = SECOND
    old = lambda *given, revision, **more: hub.load(*given, revision=FIRST, **more)  # noqa: E731
    monkeypatch.setattr(datasets, "load_dataset", old)
    with pytest.raises(Skipped, match=f"{SECOND} could not be downloaded"):
        score_piqa()


@rejects("benchmark_data.key_of: «, kwargs→»]", "all files of a benchmark in one folder")
def test_two_parts_of_a_dataset_lie_apart_and_so_do_configurations_and_datasets(hub, project):
    first = ("a/b", None, "x.csv")
    wanted = [first, ("a/b", None, "y.csv"), ("a/b", "small", "x.csv"), ("a/c", None, "x.csv")]
    for dataset in ("a/b", "a/c"):
        hub.content[dataset] = lambda data_files, of=dataset: [{"file": data_files, "of": of}]
    for _ in range(2):
        for dataset, name, file in wanted:
            found = benchmark_data.load(dataset, name, {"data_files": file})
            assert found["validation"][0] == {"file": file, "of": dataset}
    assert len(hub.asked) == len(wanted)
    one, other = ({"x": 1, "y": 2}, {"y": 2, "x": 1})
    assert benchmark_data.key_of("a/b", None, one) == benchmark_data.key_of("a/b", None, other)


def test_a_tasks_own_files_lie_in_memory(tmp_path):
    """The cache that they went through is gone."""
    file = tmp_path / "own.jsonl"
    file.write_text('{"x": 1}\n')
    found = benchmark_data.load("json", None, {"data_files": {"test": str(file)}})
    assert found["test"][:] == {"x": [1]} and not found["test"].cache_files


def test_a_hub_out_of_reach_is_asked_once(hub, project, capsys):
    hub.error = ConnectionError("no route\nto host")
    wanted = {name: {"task": name} for name in ("piqa", "gsm8k")}
    (project / "params.yaml").write_text(yaml.safe_dump({"suite": {"tasks": wanted}}))
    with pytest.raises(SystemExit):
        fetch.main.callback([])
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 2 and all("no hub in reach: no route to host" in line for line in err)
    with pytest.raises(Skipped, match="no route to host"):
        run_task(Scripted(), "swag", entry("hellaswag", "acc,none"), settings())
    assert len(hub.asked) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("connection\nreset", "baber/piqa: connection reset"),
        ("Dataset 'baber/piqa' is a gated dataset on the Hub.", "HF_TOKEN may hold a token"),
    ],
)
def test_a_download_that_fails_is_one_line_and_leaves_nothing(hub, project, words, said):
    def broken():
        raise OSError(words)

    hub.content["baber/piqa"] = broken
    with pytest.raises(Skipped, match=said) as error:
        score_piqa()
    assert "\n" not in str(error.value)
    left = [path for path in (project / "data").rglob("*") if path.suffix != ".lock"]
    assert left == [project / "data/benchmarks"]
    hub.content["baber/piqa"] = lambda: PIQA
    assert score_piqa().result.documents == 6


NO_TASKS = r"^params\.yaml: (cannot read the tasks of a suite|while parsing)"


@pytest.mark.parametrize(
    ("arguments", "params", "message"),
    [
        (["suite=papr"], None, "suite: 'papr' is not one of mini, none, paper"),
        (["paper"], None, "'paper'; usage: ftlab fetch"),
        ([], "suite: {tasks: {a: {task: hellaswog}}}", "hellaswog"),
        *(([], text, NO_TASKS) for text in ("suite: {tasks: [1]}", "suite: {}", "a: [")),
    ],
)
def test_a_mistake_is_one_line(project, arguments, params, message):
    if params is not None:
        (project / "params.yaml").write_text(params)
    with pytest.raises(UserError, match=message):
        fetch.main.callback(arguments)


def test_suites_by_name(hub, project, capsys):
    hub.error = AssertionError("nothing of it is on a hub")
    fetch.main.callback(["suite=mini", "suite=none"])
    assert len(capsys.readouterr().out.splitlines()) == 6 and not hub.asked


SIZES = {  # on the hub, or of the samples
    "human_eval_plus": 164, "mbpp": 500, "gsm8k": 1319, "mmlu": 14_042, "csqa": 1171,
    "hellaswag": 10_042, "winogrande": 1267, "obqa": 500, "arc_challenge": 1172, "arc_easy": 2376,
    "piqa": 1838, "race_high": 500, "race_middle": 494, "boolq": 3270, "nq": 3560, "tqa": 2950,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(
    not real_benchmarks.FOLDER.is_dir(),
    reason=f"no documents in {real_benchmarks.FOLDER} (BENCHMARK_FILES names them)",
)
def test_the_papers_tasks_score_real_documents(monkeypatch):
    monkeypatch.setattr(benchmark_data, "load", real_benchmarks.load)
    monkeypatch.setattr(sandbox, "unavailable", lambda: None)  # no program is run; all fail
    verdict = SimpleNamespace(passed=False, failure="not run")
    monkeypatch.setattr(sandbox, "run_programs", lambda pairs: [verdict for _ in pairs])
    for name, spec in entries("paper").items():
        loaded = tasks.load(spec.task)["tasks"]
        assert sum(len(task.eval_docs) for task in loaded.values()) == SIZES[name], name
        result = run_task(Scripted(), name, spec, settings(run_code=True, limit=2)).result
        assert result.documents == (114 if name == "mmlu" else 2) and result.shots == spec.shots
