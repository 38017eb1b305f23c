"""What a user of MLflow finds of a run: descriptions, datasets, models, one bound for every arm."""

import json
import os
from contextlib import chdir
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor

from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.result_files import read_json
from pipelines.artifacts.results import EvaluationResult, Figures
from pipelines.artifacts.suite_results import TaskResult
from pipelines.config.schema import Precision
from pipelines.tracking import journal as journal_module, live, store
from pipelines.tracking.journal import (
    Journal,
    Point,
    Tracked,
    experiment_note,
    journals,
    open_journal,
    read_journal,
    run_note,
    run_params,
    run_tags,
    statement_tags,
)
from pipelines.tracking.live import SAMPLE_SECONDS, SystemMetrics, Tracking
from pipelines.tracking.measured import benchmark, evaluation_tags, modified_ms
from pipelines.tracking.store import Store, reason, run_pages, store_uri
from pipelines.tracking.sync import FilesNotTaken, Known, Sync
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.training import RUN, tracked_runs
from tests.tracking.conftest import (
    BUDGET,
    TOKENS,
    everything,
    lost,
    manifest,
    on_disk,
    settings,
    sync,
)


@pytest.fixture
def run(project):
    return tracked_runs()[1][0]


def card(kappa=0.125, **changes):
    run = {"data": "target", "model": "m", "tokens": 100, "seed": 0, "budgets": []}
    run |= {"kappa_bits": kappa, "extra_blocks": 0} | changes
    architecture = {"latent_bits": 8, "latent_block": None, "latent": {"map": "table"}}
    return Manifest("e", "name", run, architecture, 11, "d", "s")


def test_one_bound_for_every_arm_and_budget_against_tokens(project, run):
    client = MlflowClient(store_uri())
    evaluation = read_json(
        Path("results/smoke") / RUN / "evaluation.json", EvaluationResult, "evaluate"
    )
    history = client.get_metric_history(run.info.run_id, "bound/bits_per_token")
    assert [(p.step, p.value) for p in history] == [
        (each.tokens, each.bits_per_token.bound.mean) for each in evaluation.budgets
    ]
    assert [p.step for p in history] == [BUDGET, TOKENS]
    assert run.data.metrics["bound/bits_per_token"] == evaluation.bits_per_token.bound.mean


def test_charts_are_of_what_runs_are_compared_by_bounds_and_curves_first(run):
    """MLflow draws a section for what stands before the last stroke of a name, in this order."""
    sections = sorted({key.rpartition("/")[0] for key in run.data.metrics if "system" not in key})
    assert sections == ["bound", "curve", "curve_by_tokens", "eval", "suite"]
    headline = json.loads((Path("results/smoke") / RUN / "metrics.json").read_text())
    drawn = {key.removeprefix("eval/") for key in run.data.metrics if key.startswith("eval/")}
    bound = {"bound_bits_per_token", "bound_bits_per_byte", "converged"}
    shown = {key for key, value in headline.items() if value is not None} - bound
    gap = {"own_text_gap_bits_per_token", "own_text_gap_error_bits_per_token"}
    assert drawn == shown | gap | {"bound_error_bits_per_token"}


@rejects("measured.evaluation_tags: «parts |= {→{»f", "errors of smaller budgets are lost")
def test_what_makes_no_chart_is_in_tags_and_parameters(run):
    written = json.loads((Path("results/smoke") / RUN / "evaluation.json").read_text())
    tags, known = run.data.tags, ("collapsed", "budgets", "parameters", "trained_tokens")
    parts = {f"eval.{key}": value for key, value in written.items() if key not in known}
    parts[f"eval.at_{BUDGET}"] = written["budgets"][0]
    assert {key: json.loads(tags.get(key, "null")) for key in parts} == parts
    assert json.loads(tags["suite.words_se"]) == {str(BUDGET): 0.1, str(TOKENS): 0.1}
    for collapsed, tag in ((None, None), (False, "no"), (True, "yes")):
        evaluation = EvaluationResult(1, 1, 1.0, Figures(), collapsed=collapsed)
        assert evaluation_tags(evaluation).get("collapsed") == tag
    wanted = {"kappa_bits": "0.125", "tokens": str(TOKENS), "seed": "0"}
    assert (wanted | {"trained_tokens": str(TOKENS)}).items() <= run.data.params.items()
    named = {"git_revision", "device", "data_hash", "config_hash", "optim.lr"}
    assert named <= run.data.params.keys()
    assert int(run.data.params["parameters"]) > 1000


@arrives("compute", "precision")
def test_kappa_is_a_number_that_a_baseline_has_not(workspace):
    smoke = settings()
    smoke.models["m"], smoke.runs["name"] = smoke.models["target_small"], smoke.runs[RUN]
    smoke.compute.precision = Precision.bf16
    baseline, zero, free = (run_params(card(kappa), smoke) for kappa in (None, 0.0, 0.5))
    assert free["kappa_bits"] == free["kappa_axis"] == "0.5"
    assert zero["kappa_bits"] == zero["kappa_axis"] == "0.0"
    assert (free["precision"], free["steps"]) == ("bf16", "20")
    assert free["architecture.latent.map"] == "table"
    assert "kappa_bits" not in baseline and baseline["kappa_axis"] == "-1"
    assert "None" not in {*baseline.values(), *free.values()}


def test_a_run_says_what_it_is_what_may_be_compared_and_what_made_it():
    for kappa, blocks, words in (
        (None, 0, "Baseline"),
        (None, 1, "Baseline, with 1 more block"),
        (None, 2, "Baseline, with 2 more blocks"),
        (1.0, 0, "Free Transformer with κ = 1 bit per token"),
        (2.0, 0, "Free Transformer with κ = 2 bits per token"),
    ):
        assert run_note(card(kappa, extra_blocks=blocks), "").startswith(f"**{words}** on")
    tags = run_tags(card(0.125))
    note = tags["mlflow.note.content"]
    assert note.startswith("**Free Transformer with κ = 1/8 bit per token** on `target`, model `m`")
    assert "`bound/bits_per_token`" in note and "docs/measurement/differences.md" in note
    assert "`dvc repro train@name`" in note
    assert tags["mlflow.source.type"] == "LOCAL"
    assert tags["mlflow.user"] and tags["mlflow.source.name"] == "dvc repro train@name"


@rejects('journal.open_journal: = «arm or→"" or» groups', "a sweep's seeds as arms", case="tags")
@pytest.mark.parametrize("place", ["params", "tags"])
def test_runs_are_grouped_by_the_arm_of_the_report_as_parameter_and_as_tag(workspace, place):
    smoke, words = settings(), {}
    free = replace(smoke.runs[RUN], budgets=[])
    plain = replace(free, kappa_bits=None)
    smoke.runs = {"a_s0": free, "a_s1": replace(free, seed=1), "b": plain}
    smoke.runs |= {"c": replace(plain, extra_blocks=2, random_prefix=3)}
    for name, run in smoke.runs.items():
        manifest = Manifest("smoke", name, asdict(run), {"latent_bits": 8}, 11, "d", name)
        words[name] = getattr(open_journal(manifest, smoke, go_on=False).run, place)
    keys = ("arm", "kind", "kappa_bits", "seed", "data", "model", "tokens")
    shared = ("target", "target_small", str(free.tokens))
    assert [tuple(words[name][key] for key in keys) for name in smoke.runs] == [
        ("a", "Free Transformer", "0.125", "0", *shared),
        ("a", "Free Transformer", "0.125", "1", *shared),
        ("b", "baseline", "none", "0", *shared),
        ("c", "baseline + 2 blocks + random prefix of 3", "none", "0", *shared),
    ]
    manifest = Manifest("smoke", "b", asdict(plain), {"latent_bits": 8}, 11, "d", "s")
    of_a_sweep = open_journal(manifest, smoke, go_on=False, arm="d").run
    assert getattr(of_a_sweep, place)["arm"] == "d"


@pytest.mark.parametrize("status", ["KILLED", "FAILED"])
def test_a_run_that_did_not_end_says_so_in_its_name_until_it_goes_on(project, run, status):
    client, described = MlflowClient(store_uri()), on_disk()

    def name_as(status):
        described.status = status
        Sync(Store())(described)
        return client.get_run(run.info.run_id).info.run_name

    assert [name_as(each) for each in (status, "RUNNING")] == [f"{RUN} {status}", RUN]
    client.update_run(run.info.run_id, name="mine")
    assert name_as(status) == "mine"


def test_what_is_asked_stands_in_the_description_and_in_tags(workspace):
    asked = replace(settings(), question="Why?")
    assert experiment_note(asked).startswith("Why?\n")
    assert statement_tags(asked) == {"question": "Why?"}


def test_a_user_may_replace_the_description_of_the_experiment_and_of_a_run(project, run):
    client = MlflowClient(store_uri())
    wanted = experiment_note(settings())
    assert f"| {RUN} | 1/8 | target |" in wanted and "make repro EXPERIMENT=smoke" in wanted

    def note():
        return client.get_experiment(run.info.experiment_id).tags["mlflow.note.content"]

    assert note() == wanted
    syncing, described = Sync(Store()), on_disk()
    syncing(described, "changed")
    assert note() == "changed"
    client.set_experiment_tag(run.info.experiment_id, "mlflow.note.content", "my own words")
    syncing(described, wanted)
    assert note() == "my own words"

    client.set_tag(run.info.run_id, "mlflow.note.content", "my own words")
    described.tags["new"] = "tag"
    syncing(described)
    tags = client.get_run(run.info.run_id).data.tags
    assert (tags["mlflow.note.content"], tags["new"]) == ("my own words", "tag")


def test_the_report_finds_the_page_of_a_run_by_its_training(project, run, monkeypatch):
    """And makes no store where there is none."""
    page = f"http://127.0.0.1:5000/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"
    page += "?workflowType=machine_learning"
    assert run_pages("smoke") == {manifest().tracking_key: page}
    assert run_pages("another") == {}
    (project / "mlflow.db").unlink()
    assert run_pages("smoke") == {} and not (project / "mlflow.db").exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///elsewhere.db")
    assert run_pages("smoke") == {} and not (project / "elsewhere.db").exists()


def test_a_benchmark_has_another_digest_where_its_documents_may_be_others():
    task, suite = (
        TaskResult(0.5, task="a", documents=3, version="1"),
        {"harness": "1", "limit": None},
    )

    def digest(name="x", task=task, **changes):
        return benchmark(name, SimpleNamespace(tasks={"x": task}, **suite | changes))["digest"]

    others = [{"task": "b"}, {"version": "2"}, {"documents": 4}, {"sources": ["d at 1"]}]
    others = [replace(task, **change) for change in [*others, {"sources": ["d at 2"]}]]
    known = [digest(), *(digest(task=other) for other in others), digest(harness="2")]
    assert len({*known, digest(limit=5)}) == 8
    assert digest(task=replace(task, value=0.7, seconds=9.0)) == digest()
    assert len(digest()) == 16


def test_datasets_are_inputs_with_digest_source_and_context(run):
    inputs = {each.dataset.name: each for each in run.inputs.dataset_inputs}
    contexts = {name: each.tags[0].value for name, each in inputs.items()}
    assert contexts == {"target_train": "train", "target_validation": "eval", "words": "eval"}
    held_out = inputs["target_validation"].dataset
    assert held_out.digest == manifest().data_hash
    assert json.loads(held_out.source) == {"uri": "data/tokens/target"}
    known = Known.of(run, MlflowClient(store_uri()))
    assert known.inputs == {(name, each.dataset.digest) for name, each in inputs.items()}


def test_every_kept_checkpoint_is_a_logged_model_with_its_figures_by_dataset(project, run):
    client = MlflowClient(store_uri())
    models = {m.name: m for m in client.search_logged_models([run.info.experiment_id])}
    assert models.keys() == {RUN, f"{RUN}_at_{BUDGET}"}
    for name, tokens, words in ((RUN, TOKENS, 0.5), (f"{RUN}_at_{BUDGET}", BUDGET, 0.25)):
        model = models[name]
        assert str(model.status) == "READY" and model.source_run_id == run.info.run_id
        assert (model.params["tokens"], model.params["kappa_bits"]) == (str(tokens), "0.125")
        assert (project / model.tags["checkpoint"]).exists()
        figures = {(m.key, m.dataset_name): m for m in model.metrics}
        bound = figures["bound/bits_per_token", "target_validation"]
        assert (bound.step, bound.dataset_digest) == (tokens, manifest().data_hash)
        assert figures["suite/words", "words"].value == words
    assert sorted(each.step for each in run.outputs.model_outputs) == [BUDGET, TOKENS]


@rejects(
    "Sync.send_models: «known.models→{}».get(content", "a logged model made anew", case="third"
)
@pytest.mark.parametrize(
    "which",
    [
        pytest.param(lambda n: n in (1, 3), id="creation"),
        pytest.param(lambda n: n % 3 == 0, id="third"),
        pytest.param(lambda n: n % 5 == 0, id="fifth"),
        pytest.param(lambda n: n % 7 == 0, id="seventh"),
    ],
)
def test_calls_whose_answer_is_lost_double_and_lose_nothing(original, project, monkeypatch, which):
    """Everything is sent, from the start, to an empty store."""
    with chdir(original):  # the copy's database is not open yet
        before = everything()
    (project / "mlflow.db").unlink()
    syncing = Sync(Store())
    with lost(monkeypatch, which):
        for _ in range(60):
            try:
                syncing(on_disk(), experiment_note(settings()))
            except (MlflowException, FilesNotTaken):
                continue
            break
    sync()
    assert everything() == before


def test_every_experiment_has_a_table_of_arms_and_their_curves_as_named_views(project, run):
    key, client = run.info.experiment_id, MlflowClient(store_uri())

    def views():
        tags = client.get_experiment(key).tags
        return {
            tag.rpartition(".")[2]: json.loads(value)
            for tag, value in tags.items()
            if tag.startswith("mlflow.sharedViewState.")
        }

    saved = views()
    assert {key: view["name"] for key, view in saved.items()} == {
        "arms": "Arms",
        "curves": "Curves",
    }
    assert saved["arms"]["createdAt"] > saved["curves"]["createdAt"]  # the newest is listed first
    table = json.loads(saved["arms"]["state"])
    logged = {f"params.`{key}`" for key in run.data.params}
    logged |= {f"metrics.`{key}`" for key in run.data.metrics}
    of_text = {"metrics.`bound/bits_per_byte`"}
    assert {*table["columnOrder"]} - logged == of_text
    assert table["columnOrder"] == table["selectedColumns"] == [*table["columnWidths"]]
    assert (table["orderByKey"], table["orderByAsc"]) == ("metrics.`bound/bits_per_token`", True)
    assert table["groupBy"] == {
        "aggregateFunction": "average",
        "groupByKeys": [{"mode": "tag", "groupByData": "arm"}],
    }
    assert client.search_runs([key], table["searchFilter"])[0].info.run_id == run.info.run_id
    curves = json.loads(saved["curves"]["state"])
    assert table.items() <= curves.items() and curves["compareRunCharts"]
    client.set_experiment_tag(key, "mlflow.sharedViewState.arms", "{}")  # of an earlier version
    Store().experiment_id("smoke")
    assert views() == saved


def test_the_charts_have_the_form_that_mlflow_shares():
    view = store.charts()
    shown = {"display": True, "isReordered": False, "isGenerated": True}
    names = ["bound", "Model metrics", "System metrics"]
    sections = [{"uuid": name, "name": name, **shown} for name in names]
    assert view["compareRunSections"] == [{**sections[0], "columns": 2}, *sections[1:]]
    fixed = {"deleted": False, "isGenerated": False, "runsCountToCompare": 100}
    assert all(fixed.items() <= chart.items() for chart in view["compareRunCharts"])


def test_a_point_is_lacking_if_mlflow_has_none_or_another_value_where_that_may_change():
    known = Known(
        "id", "", "", ("RUNNING", None), points={("curve/ce", 1): 1.0, ("eval/kl", 1): 1.0}
    )
    values = (("curve/ce", 1.0), ("curve/ce", 2.0), ("eval/kl", 1.0), ("eval/kl", 2.0))
    lacking = [known.lacks(Point(key, value, 0, 1)) for key, value in values]
    assert lacking == [False, False, False, True]
    assert known.lacks(Point("eval/kl", 1.0, 0, 2))


def test_a_store_that_goes_away_and_comes_back_is_told_once_each(journal, monkeypatch, capsys):
    monkeypatch.setattr(live, "Thread", Mock())
    tracking = Tracking(journal)
    tracking.sync = Mock(side_effect=[None, MlflowException("a"), MlflowException("a"), None, None])
    assert [tracking.try_to_sync() for _ in range(5)] == [True, False, False, True, True]
    said = capsys.readouterr().err
    assert said.count("is not up to date") == said.count("answers again") == 1


def test_a_journal_goes_on_for_the_very_training_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(journal_module, "run_params", lambda *_: {})
    monkeypatch.setattr(journal_module, "group_words", lambda *_: {"arm": ""})
    monkeypatch.setattr(journal_module, "statement_tags", lambda *_: {})
    first = open_journal(card(), None, go_on=False)
    assert len(first.run.key) == 12
    for key, go_on, status, same in (
        ("", False, "RUNNING", True),  # it was cut short
        (first.run.key, True, "FINISHED", True),
        ("another", True, "FINISHED", False),
        ("", False, "RUNNING", True),  # the other one
        ("", False, "FINISHED", False),
    ):
        before = Journal(card().resume / "tracking.jsonl")
        before.set_status(status)
        manifest = replace(card(), tracking_key=key)
        found = open_journal(manifest, None, go_on)
        assert (found.run.key == before.run.key) == same
        assert manifest.tracking_key == found.run.key == (key or found.run.key)


def test_journals_of_sweeps_are_of_no_experiment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    live_one, published, of_sweep = (
        Path(folder, "tracking.jsonl") for folder in ("resume/e/a/1", "checkpoints/e/a", "sweeps/s")
    )
    for path in (live_one, published, of_sweep):
        path.parent.mkdir(parents=True)
        path.touch()
    assert [*journals()] == [live_one, published, of_sweep]
    assert [*journals("e")] == [live_one, published] and [*journals("f")] == []


def test_tries_become_rarer_while_the_store_is_away():
    waits, answers = [], iter([False] * 8 + [True, False])
    tracking = Mock(spec_set=["ending", "try_to_sync"])
    tracking.try_to_sync = lambda: next(answers)
    tracking.ending.wait = lambda seconds: waits.append(seconds) or len(waits) == 11
    Tracking.keep_up(tracking)
    assert waits == [0, 1, 3, 7, 15, 31, 60, 60, 60, 5, 11]


def test_the_reason_is_the_first_line_of_an_error_cut_short():
    assert reason(OSError("x" * 300 + "\nmore")) == "x" * 200


# The machine


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal.jsonl", experiment="e", run_name="name")


def test_the_machine_is_sampled_with_rows_and_not_more_often_than_every_few_seconds(
    journal, monkeypatch
):
    clock = [100.0]
    monkeypatch.setattr(live, "monotonic", lambda: clock[0])
    monkeypatch.setattr(live, "Thread", Mock())
    tracking = Tracking(journal)
    for step, seconds in ((1, 0.0), (2, SAMPLE_SECONDS - 1), (3, 1.0), (4, SAMPLE_SECONDS)):
        clock[0] += seconds
        tracking.log_row({"step": step, "tokens": 10 * step, "ce_nats": 1.0})
    points = [point for point in read_journal(journal.path).points if "system/" in point.key]
    cpu = [(point.key, point.step) for point in points if "cpu" in point.key]
    assert cpu == [("system/cpu_utilization_percentage", step) for step in (1, 3, 4)]
    assert {"system/system_memory_usage_megabytes", "system/network_receive_megabytes"} <= {
        point.key for point in points
    }


def test_the_machine_is_not_measured_twice_for_steps_that_a_resumed_run_repeats(journal):
    for step in (1, 2, 2, 1, 3):  # killed after 2, and resumed from a checkpoint at 0
        journal.add_row({"step": step, "tokens": step}, lambda at=step: {"cpu": float(at)})
    assert [(point.step, point.value) for point in journal.run.points] == [(1, 1), (2, 2), (3, 3)]
    assert journal.path.read_text().count('"row"') == 3
    assert len(journal.run.key) == 12


def test_times_are_milliseconds_since_1970(tmp_path, monkeypatch):
    clock = iter([1_700_000_000.25, 1_700_000_001.5, 1_700_000_002.75])
    monkeypatch.setattr(journal_module, "time", lambda: next(clock))
    journal = Journal(tmp_path / "journal.jsonl", experiment="e", run_name="name")
    journal.add_row({"step": 1, "tokens": 10, "ce_nats": 2.0})
    journal.set_status("FINISHED")
    for run in (journal.run, read_journal(journal.path)):
        times = (run.started, run.points[0].time, run.ended)
        assert times == (1_700_000_000_250, 1_700_000_001_500, 1_700_000_002_750)
    os.utime(journal.path, (0, 1_700_000_003.5))
    assert modified_ms(journal.path) == 1_700_000_003_500


def test_a_gpu_is_sampled_and_a_monitor_that_fails_is_left_out(monkeypatch):
    class Gpu(CPUMonitor):
        def collect_metrics(self):
            self._metrics["gpu_0_utilization_percentage"].append(50.0)

    def hidden():
        raise FileNotFoundError("/proc/diskstats")

    monkeypatch.setattr(live, "GPUMonitor", Gpu)
    monkeypatch.setattr(live, "DiskMonitor", hidden)
    figures = SystemMetrics().sample()
    assert figures["gpu_0_utilization_percentage"] == 50.0
    assert "system_memory_usage_percentage" in figures
    assert "disk_usage_percentage" not in figures


def test_a_figure_that_is_not_a_number_is_left_out():
    run = Tracked()
    run.add("eval", {"se": float("nan"), "mean": 1.0}, 5, 1)
    assert [point.key for point in run.points] == ["eval/mean"]
