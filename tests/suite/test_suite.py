"""Stage suite: every benchmark of every checkpoint once, its figures in files and in MLflow."""

import gzip
import json
import shutil

import pytest
import yaml

from pipelines import inputs
from pipelines.artifacts.checkpoint import load_model
from pipelines.artifacts.paths import checkpoint_path
from pipelines.artifacts.suite_results import SuiteBudget, SuiteLastThird, TaskResult, TaskScore
from pipelines.common.atomic_files import ROOT
from pipelines.common.errors import UserError
from pipelines.config.load import load_experiment
from pipelines.config.suite import SuiteTask
from pipelines.suite import benchmark_data, task_index
from pipelines.suite import stage as suite
from pipelines.suite.stage import last_third, score_run
from pipelines.suite.tasks import Outcome, Skipped
from tests.support.training import same, tracked_runs, train_run

RUN = "text_free_k1_2"
BATCH = 4 * 64  # tokens
SCORED = ("snippets", "snippets_char", "words", "idioms", "passages")  # without running code


@pytest.fixture
def trained(workspace):
    """The text run of smoke, in the current folder."""
    train_run(RUN)
    return workspace


def read(file, name=RUN):
    return json.loads(open(f"results/smoke/{name}/{file}").read())


@pytest.fixture
def calls(monkeypatch):
    """The benchmarks that are really run, in order; those in ``fail`` raise."""

    class Calls(list):
        def __init__(self):
            self.fail = {}

    made, run_task = Calls(), suite.run_task

    def spy(lm, name, spec, settings):
        if name in made.fail:
            raise made.fail[name]
        made.append(name)
        return run_task(lm, name, spec, settings)

    monkeypatch.setattr(suite, "run_task", spy)
    return made


def test_files_hold_what_was_measured_and_mlflow_has_it_in_the_run_of_the_training(trained):
    score_run(load_experiment(), RUN)
    found, scores, metrics = (read(f"suite{part}.json") for part in ("", "_scores", "_metrics"))
    assert {k: found[k] for k in ("suite", "scoring", "samples", "limit", "seed")} == {
        "suite": "mini", "scoring": "marginal", "samples": 2, "limit": 3, "seed": 0
    }  # fmt: skip
    assert found["harness"].startswith("lm_eval 0.4.")
    assert tuple(found["tasks"]) == tuple(metrics) == SCORED
    assert "suite.run_code=true" in found["skipped"]["functions"]
    assert "budgets" not in found and "last_third" not in found
    for name, told in found["tasks"].items():
        assert told["value"] == metrics[name]
        assert told["documents"] == 3
        assert told["shots"] == 0
        assert told["version"] == "1.0"
        with gzip.open(f"results/smoke/{RUN}/suite_samples/{name}.jsonl.gz", "rt") as file:
            log = [json.loads(line) for line in file]
        assert len(log) == 3
        if name in scores:
            assert sum(scores[name]) / 3 == pytest.approx(told["value"])
    assert found["tasks"]["snippets"]["metric"] == "acc_completion"
    assert found["tasks"]["snippets"]["mc_error"] > 0
    assert found["tasks"]["passages"]["higher_is_better"] is False
    assert "passages" not in scores  # a ratio, no mean of documents

    client, runs = tracked_runs()
    (tracked,) = runs  # that of the training
    history = client.get_metric_history(tracked.info.run_id, "suite/passages")
    assert [(m.step, m.value) for m in history] == [(20 * BATCH, metrics["passages"])]
    assert tracked.data.metrics["suite/passages_se"] == found["tasks"]["passages"]["se"]
    assert tracked.data.tags["suite"] == f"mini, {found['harness']}, seed 0"
    artifacts = {a.path for a in client.list_artifacts(tracked.info.run_id)}
    assert {"suite.json", "snippets.jsonl.gz", "passages.jsonl.gz"} <= artifacts


def test_each_smaller_budget_is_scored_with_its_own_model(workspace, monkeypatch):
    """Whatever the models have learned: each value is one of the weights of its checkpoint."""
    run_task, weights = suite.run_task, {}

    def spy(lm, name, *rest):
        found = run_task(lm, name, *rest)
        if name == "passages":
            weights[found[0].value] = lm.model.state_dict()
        return found

    monkeypatch.setattr(suite, "run_task", spy)
    budgets = [5 * BATCH, 15 * BATCH]
    train_run(RUN, budgets=budgets)
    experiment = load_experiment()
    experiment.runs[RUN].budgets = budgets
    score_run(experiment, RUN)
    found = read("suite.json")
    series = found["budgets"]
    assert [one["tokens"] for one in series] == [*budgets, 20 * BATCH]
    assert [one["annealed"] for one in series] == [False, False, True]
    values = [one["tasks"]["passages"]["value"] for one in series]
    assert len(set(values)) == 3 and values[2] == found["tasks"]["passages"]["value"]
    for tokens, value in zip((*budgets, None), values, strict=True):
        model, _ = load_model(checkpoint_path("smoke", RUN, tokens))
        assert same(weights[value], model.state_dict())
    assert found["last_third"]["n"] == 2
    mean = found["last_third"]["tasks"]["passages"]
    assert mean == pytest.approx((values[1] + values[2]) / 2)
    client, (tracked,) = tracked_runs()
    history = client.get_metric_history(tracked.info.run_id, "suite/passages")
    assert [(m.step, m.value) for m in history] == [
        (steps * BATCH, value) for steps, value in zip((5, 15, 20), values, strict=True)
    ]


def test_the_last_third_takes_what_all_its_checkpoints_were_scored_on():
    def at(tokens, **values):
        return SuiteBudget(tokens, tokens, True, {k: TaskScore(v) for k, v in values.items()})

    series = [at(199, a=9, b=9), at(200, a=2.0), at(250, a=3.0, b=1.0), at(300, a=4.0, b=1.0)]
    assert last_third(series) == SuiteLastThird(n=3, tasks={"a": 3.0})


def test_a_stage_that_was_killed_goes_on_with_the_next_benchmark(trained, calls):
    calls.fail = {"words": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        score_run(load_experiment(), RUN)
    assert calls == ["snippets", "snippets_char"]
    calls.fail = {}
    score_run(load_experiment(), RUN)
    assert [name for name in calls if name.startswith("snippets")] == ["snippets", "snippets_char"]
    assert set(read("suite.json")["tasks"]) == set(SCORED)
    assert not list(trained.glob("resume/smoke/*.suite"))


def test_what_was_kept_of_other_settings_is_not_taken(trained, calls):
    calls.fail = {"words": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        score_run(load_experiment(), RUN)
    calls.fail, calls[:] = {}, []
    experiment = load_experiment()
    experiment.suite.seed = 1
    score_run(experiment, RUN)
    assert calls[:2] == ["snippets", "snippets_char"]


def test_what_was_kept_of_tasks_edited_since_is_not_taken(trained, calls, monkeypatch, tmp_path):
    calls.fail = {"words": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        score_run(load_experiment(), RUN)
    calls.fail, calls[:] = {}, []
    edited = tmp_path / "edited"
    shutil.copytree(ROOT / "tasks", edited)
    monkeypatch.setattr(task_index, "OURS", edited)
    with open(edited / "mini/snippets.jsonl", "a") as file:
        file.write("\n")
    score_run(load_experiment(), RUN)
    assert calls[:2] == ["snippets", "snippets_char"]


def test_compiled_code_beside_tasks_scores_nothing_again():
    assert "__pycache__/" in (ROOT / ".dvcignore").read_text().split()


def test_a_benchmark_whose_data_are_not_here_is_named_and_the_others_go_on(trained, calls, capsys):
    calls.fail = {"snippets": Skipped("its data are not here; `python -m pipelines.fetch`")}
    score_run(load_experiment(), RUN)
    assert "skipped snippets: its data are not here" in capsys.readouterr().out
    found = read("suite.json")
    assert found["skipped"]["snippets"].endswith("`python -m pipelines.fetch`")
    assert "snippets" not in found["tasks"]
    assert "words" in found["tasks"]


def test_the_same_again_is_the_same(trained):
    score_run(load_experiment(), RUN)
    first = {k: v["value"] for k, v in read("suite.json")["tasks"].items()}
    experiment = load_experiment()
    experiment.suite.batch_tokens = 64
    score_run(experiment, RUN)
    again = {k: v["value"] for k, v in read("suite.json")["tasks"].items()}
    assert again == pytest.approx(first, rel=1e-5, abs=1e-5)


def test_a_run_that_the_suite_is_not_for_is_refused(workspace):
    with pytest.raises(UserError, match="'baseline' is not under suite_runs"):
        suite.main("baseline")


@pytest.mark.slow  # the index of the whole harness
def test_an_unknown_benchmark_is_named_before_anything_is_trained(workspace):
    params = yaml.safe_load(open("params.yaml"))
    params["suite"]["tasks"]["words"]["task"] = "ft_wrods"
    (workspace / "data").unlink()  # the session's
    open("params.yaml", "w").write(yaml.safe_dump(params))
    with pytest.raises(UserError, match=r"suite\.tasks\.words\.task: 'ft_wrods'.*ft_words"):
        inputs.main()


def test_a_figure_that_a_benchmark_has_not_is_named_before_anything_is_trained(workspace):
    (workspace / "data").unlink()  # the session's
    for task, key in (("ft_words", "acc_nrm,none"), ("gsm8k", "exact_match,none")):
        params = yaml.safe_load(open(ROOT / "params.yaml"))
        params["suite"]["tasks"]["words"] = {"task": task, "key": key}
        open("params.yaml", "w").write(yaml.safe_dump(params))
        with pytest.raises(UserError, match=rf"suite\.tasks\.words\.key: '{key}' is not one of "):
            inputs.main()


def test_fetched_data_are_seen(workspace):
    (workspace / "data").unlink()
    inputs.main()
    path = workspace / "data/inputs/suite.json"
    before = path.read_bytes()
    inputs.main()
    assert path.read_bytes() == before
    benchmark_data.FETCHED.parent.mkdir(parents=True)
    benchmark_data.FETCHED.write_text('{"piqa": {"documents": 3}}')
    inputs.main()
    assert path.read_bytes() == before, "the suite has no such task"
    params = yaml.safe_load(open("params.yaml"))
    params["suite"]["tasks"]["words"]["task"] = "piqa"
    open("params.yaml", "w").write(yaml.safe_dump(params))
    inputs.main()
    assert json.loads(path.read_bytes())["fetched"] == {"piqa": {"documents": 3}}


@pytest.mark.parametrize("content", ["some", {"tasks": [1]}, {"tasks": {"x": {"key": "acc,none"}}}])
def test_a_malformed_suite_is_named(workspace, content):
    (workspace / "data").unlink()
    params = yaml.safe_load(open("params.yaml")) | {"suite": content}
    open("params.yaml", "w").write(yaml.safe_dump(params))
    with pytest.raises(UserError, match=r"params\.yaml: suite\.tasks: .*each with its `task`"):
        inputs.main()


@pytest.mark.parametrize(
    "content",
    [b"", b"notes", b"\xff", b"[]", b"[1, 2, 3]", b'[{"value": "a"}, null, []]',
     b'[{"value": 0.5}, null, 3]', b'[{}, null, []]', b"[" * 5000],
)  # fmt: skip
def test_a_damaged_outcome_is_scored_again(content, tmp_path, capsys):
    spec = SuiteTask(task="ft_words", key="acc,none")
    progress = suite.Progress(tmp_path / "baseline.suite", "decisive")
    outcome = Outcome(TaskResult(value=0.5, se=None, metric="acc"), [0.5], [])
    progress.write("words", spec, outcome)
    assert progress.read("words", spec, Outcome) == outcome
    progress.path("words", spec).write_bytes(content)
    assert progress.read("words", spec, Outcome) is None
    assert "is damaged: words is scored again" in capsys.readouterr().out
