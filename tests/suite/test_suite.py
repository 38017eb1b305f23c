"""Stage suite: every benchmark of every checkpoint once, its figures in files and in MLflow."""

import gzip
import json
import shutil
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import yaml

from pipelines import inputs
from pipelines.artifacts.checkpoint import load_model
from pipelines.artifacts.result_files import Unfinished
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.suite_results import TaskResult
from pipelines.config import derived
from pipelines.config.load import load_experiment
from pipelines.config.schema import SuiteTask
from pipelines.host.errors import UserError
from pipelines.host.files import ROOT, checkpoint_path
from pipelines.suite import benchmark_data, stage as suite, task_index
from pipelines.suite.stage import Progress, decisive, score_run
from pipelines.suite.tasks import Outcome
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.settings import each_changed, smoke
from tests.support.training import same, tracked_runs, train_run

RUN = "text_free_k1_2"
RESULTS = Path("results/smoke", RUN)
BATCH = 4 * 64  # tokens
SCORED = ("snippets", "snippets_char", "words", "idioms", "passages")  # without running code
WAYS = ["z", "tokens_0.5", "z_and_tokens_0.5"]


def read(file):
    return json.loads((RESULTS / file).read_text())


def logged(name):
    with gzip.open(RESULTS / f"suite_samples/{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def answering_several_times(*tasks):
    """The text run of smoke with three answers to each prompt of `idioms`."""
    experiment = load_experiment()
    settings = experiment.suite.pass_at_k
    settings.samples, settings.k, settings.temperatures = 3, [1, 3], [0.5]
    experiment.suite.tasks = {name: experiment.suite.tasks[name] for name in tasks}
    return experiment


@pytest.fixture
def calls(monkeypatch):
    """What is really run, benchmarks and ways of sampling, in order; `killed_at` is not."""

    class Calls(list):
        killed_at = None

        def note(self, name, run, *arguments):
            if name == self.killed_at:
                raise KeyboardInterrupt
            self.append(name)
            return run(*arguments)

    made, run_task, run_sampled = Calls(), suite.run_task, suite.run_sampled
    monkeypatch.setattr(suite, "run_task", lambda *a: made.note(a[1], run_task, *a))
    monkeypatch.setattr(suite, "run_sampled", lambda *a: made.note(a[-1].name, run_sampled, *a))
    return made


def test_a_killed_stage_goes_on_and_files_and_mlflow_hold_what_was_measured(
    workspace, calls, capsys
):
    train_run(RUN)
    experiment = answering_several_times(*SCORED, "functions")
    calls.killed_at = "tokens_0.5"
    with pytest.raises(KeyboardInterrupt):
        score_run(RunSpec(experiment, RUN))
    calls.killed_at = None
    score_run(RunSpec(experiment, RUN))
    assert calls == [*SCORED[:4], *WAYS, "passages", "functions"]
    assert not list(workspace.glob("resume/smoke/*.suite"))

    found, scores, metrics = (read(f"suite{part}.json") for part in ("", "_scores", "_metrics"))
    assert {k: found[k] for k in ("suite", "scoring", "samples", "limit", "seed")} == {
        "suite": "mini", "scoring": "marginal", "samples": 2, "limit": 3, "seed": 0
    }  # fmt: skip
    assert found["harness"].startswith("lm_eval 0.4.")
    assert tuple(found["tasks"]) == tuple(metrics) == SCORED
    assert "suite.run_code=true" in found["skipped"]["functions"]
    said = capsys.readouterr().out
    assert f"{RUN}: skipped functions: " in said
    assert all(f"{RUN}: idioms, {name}: pass_at_1 " in said for name in WAYS)
    assert "budgets" not in found
    for name, told in found["tasks"].items():
        assert told["value"] == metrics[name] and told["version"] == "1.0"
        assert (told["documents"], told["shots"], len(logged(name))) == (3, 0, 3)
        if name in scores:
            assert sum(scores[name]) / 3 == pytest.approx(told["value"])
    assert found["tasks"]["snippets"]["metric"] == "acc_completion"
    assert found["tasks"]["snippets"]["mc_error"] > 0
    assert found["tasks"]["passages"]["higher_is_better"] is False
    assert "passages" not in scores  # a ratio, no mean of documents
    ways = found["tasks"]["idioms"]["sampled"]
    assert [way["sampling"]["varied"] for way in ways] == ["z", "tokens", "z_and_tokens"]
    assert [way["sampling"]["temperature"] for way in ways] == [0, 0.5, 0.5]
    for name, way in zip(WAYS, ways, strict=True):
        assert way["samples"] == 3 and [*way["pass_at"]] == ["1", "3"]
        assert scores[f"idioms/{name}/pass_at_1"] and scores[f"idioms/{name}/pass_at_3"]
        values = scores[f"idioms/{name}/distinct"]
        assert sum(values) / 3 == pytest.approx(way["distinct"]["value"])
        assert [len(sample["resps"][0]) for sample in logged(f"idioms.{name}")] == [3, 3, 3]

    _, (tracked,) = tracked_runs()  # that of the training
    assert tracked.data.tags["suite"] == f"mini, {found['harness']}, seed 0"
    key = "suite/idioms/z_and_tokens_0.5/distinct"
    assert tracked.data.metrics[key] == ways[2]["distinct"]["value"]


@arrives("suite", "strict")
@rejects("Scored.apart: «→raise; »kind =", "one task's error, which costs the others their scores")
def test_a_task_that_fails_costs_the_others_nothing(workspace, monkeypatch, capsys):
    """Whatever the error; and the stage its exit code, if asked for. A full disk ends the stage."""
    train_run(RUN)
    errors = {"words": KeyError("a field"), "snippets": UserError("document 3: no label")}
    for error in errors.values():  # of one of the user's only the message is shown
        error.__cause__ = ValueError("line 2")
    run_task, spec = suite.run_task, RunSpec(load_experiment(), RUN)

    def failing(lm, name, *rest):
        if name in errors:
            raise errors[name]
        return run_task(lm, name, *rest)

    monkeypatch.setattr(suite, "run_task", failing)
    spec.experiment.suite.strict = True
    with pytest.raises(UserError, match=r"^suite\.strict: failed: snippets, words \(why: .*json"):
        score_run(spec)
    spec.experiment.suite.strict = False
    score_run(spec)
    found = read("suite.json")
    assert tuple(found["tasks"]) == ("snippets_char", "idioms", "passages")
    assert found["skipped"]["snippets"] == "failed: document 3: no label"
    assert found["skipped"]["words"] == "failed: KeyError: 'a field' (line 2)"
    assert (
        capsys.readouterr().out.count(f"{RUN}: words failed: KeyError: 'a field' (line 2)\n") == 2
    )
    trace = (RESULTS / "suite_samples/words.error.txt").read_text()
    assert "Traceback" in trace and "in failing" in trace
    errors["idioms"] = OSError(ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        score_run(spec)


def test_each_smaller_budget_is_scored_with_its_own_model(workspace, monkeypatch, calls):
    """Whatever the models have learned: each value is one of the weights of its checkpoint. Only
    the finished one answers several times.
    """
    run_task, weights = suite.run_task, {}

    def spy(lm, name, *rest):
        found = run_task(lm, name, *rest)
        if name == "passages":
            weights[found[0].value] = lm.model.state_dict()
        return found

    monkeypatch.setattr(suite, "run_task", spy)
    budgets = [5 * BATCH, 15 * BATCH]
    train_run(RUN, budgets=budgets)
    experiment = answering_several_times("passages", "idioms")
    experiment.runs[RUN].budgets = budgets
    score_run(RunSpec(experiment, RUN))
    assert [name for name in calls if name in WAYS] == WAYS
    found = read("suite.json")
    series = found["budgets"]
    assert all("sampled" not in each["tasks"]["idioms"] for each in series)
    assert f"idioms/{WAYS[0]}/distinct" in read("suite_scores.json")
    assert [one["tokens"] for one in series] == [*budgets, 20 * BATCH]
    assert [one["annealed"] for one in series] == [False, False, True]
    values = [one["tasks"]["passages"]["value"] for one in series]
    assert len(set(values)) == 3 and values[2] == found["tasks"]["passages"]["value"]
    for tokens, value in zip((*budgets, None), values, strict=True):
        model, _ = load_model(checkpoint_path("smoke", RUN, tokens))
        assert same(weights[value], model.state_dict())
    client, (tracked,) = tracked_runs()
    history = client.get_metric_history(tracked.info.run_id, "suite/passages")
    assert [(m.step, m.value) for m in history] == [
        (steps * BATCH, value) for steps, value in zip((5, 15, 20), values, strict=True)
    ]


SPEC = SuiteTask(task="ft_words", key="acc,none")
OUTCOME = Outcome(TaskResult(value=0.5, se=None, metric="acc"), [0.5], [], {})
UNDECISIVE = ("name", "tasks", "strict")  # of a suite


def is_kept(progress, spec, name="words"):
    """Whether the outcome need not be made; it is kept from now on."""
    make = Mock(return_value=OUTCOME)
    assert progress.outcome(name, spec, Outcome, make) == OUTCOME
    return not make.called


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Whether an outcome is kept under these inputs of the key in place of those of smoke."""
    experiment, manifest = smoke(), SimpleNamespace(spec_hash="abc", tracking_key="first")
    monkeypatch.chdir(tmp_path)  # where nothing has been fetched
    given = {"suite": experiment.suite, "manifest": manifest}
    given["budget"] = derived.budgets(experiment, experiment.runs[RUN])[0]

    def ask(name="words", spec=SPEC, **changes):
        progress = Progress(Unfinished(Path("kept/here")), decisive(**given | changes))
        return is_kept(progress, spec, name)

    assert [ask(), ask()] == [False, True]
    return ask, given


@rejects("Progress.outcome: spec«→.task»}", "kept scores of other shots or metrics")
@rejects("suite.stage.decisive: «, manifest.tracking_key→»,", "scores of an earlier training")
def test_each_setting_of_the_suite_the_task_the_model_and_the_budget_decides_what_is_kept(kept):
    """But for the suite's name, its other tasks, and what becomes of failures."""
    ask, given = kept
    for name, value in given.items():
        for key, other in each_changed(value):
            decides_nothing = name == "suite" and key.partition(".")[0] in UNDECISIVE
            assert ask(**{name: other}) == decides_nothing, (name, key)
    for key, other in each_changed(SPEC):
        assert not ask(spec=other), key
    assert not ask(name="words.z")
    assert ask()


@rejects("suite.stage.decisive: , «harness_version(),→»", "scores by another harness")
def test_what_was_kept_of_other_code_versions_or_data_is_not_taken(kept, monkeypatch, tmp_path):
    ask, _ = kept
    shutil.copytree(ROOT / "tasks", tmp_path / "edited")
    monkeypatch.setattr(task_index, "OURS", tmp_path / "edited")
    benchmark_data.FETCHED.parent.mkdir(parents=True)

    def fetched(**revisions):
        benchmark_data.FETCHED.write_text(json.dumps(revisions))

    fetched(piqa="1")  # which is none of its tasks
    assert ask()
    for change in (
        lambda: fetched(piqa="1", ft_words="1"),
        lambda: fetched(piqa="1", ft_words="2"),
        (tmp_path / "edited/mini/more.jsonl").touch,
        lambda: monkeypatch.setattr(suite, "code_version", {"suite": "another"}.__getitem__),
        lambda: monkeypatch.setattr(suite, "harness_version", lambda: "lm_eval 9"),
        lambda: monkeypatch.setattr("torch.__version__", "9.9"),
    ):
        change()
        assert [ask(), ask()] == [False, True]


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[1, 2, 3]", b'[{"value": "a"}, null, []]', b"[{}, null, []]", b"[" * 5000],
)
def test_a_damaged_outcome_is_scored_again(content, tmp_path, capsys):
    progress = Progress(Unfinished(tmp_path / "baseline.suite"), "decisive")
    assert [is_kept(progress, SPEC), is_kept(progress, SPEC)] == [False, True]
    (path,) = progress.waiting.used
    path.write_bytes(content)
    assert not is_kept(progress, SPEC)
    assert " words " in capsys.readouterr().out


def test_logs_are_text_as_it_was_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "write_json", Mock())
    final = Mock(tracebacks={}, documents=dict)
    final.logs = lambda: [("words", [{"text": "Größe"}, {"text": "\ud800"}])]
    suite.write_scores(tmp_path, Mock(tasks={}), final)
    with gzip.open(tmp_path / "suite_samples/words.jsonl.gz", "rt", encoding="utf-8") as file:
        first, second = file
    assert first == '{"text": "Größe"}\n'
    assert json.loads(second) == {"text": "\ud800"}, "no Unicode character, but in the text"


def test_compiled_code_beside_tasks_scores_nothing_again():
    assert "__pycache__/" in (ROOT / ".dvcignore").read_text().split()


def test_a_run_that_the_suite_is_not_for_is_refused(workspace):
    with pytest.raises(UserError, match="'baseline' is not under suite_runs"):
        suite.main("baseline")


@pytest.fixture
def look(workspace):
    """What stage inputs notes of the suite of smoke, changed."""
    (workspace / "data").unlink()  # the session's
    suite = yaml.safe_load(open("params.yaml"))["suite"]

    def run(words=None, **changes):
        tasks = suite["tasks"] | ({"words": words} if words else {})
        inputs.note_suite(suite | {"tasks": tasks} | changes)
        return workspace / "data/inputs/suite.json"

    return run


WORDS = {"task": "ft_words", "key": "acc,none"}
ONCE = {"samples": 3, "k": [1], "temperatures": [0.5], "tasks": ["passages"]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"words": WORDS | {"task": "ft_wrods"}}, r"tasks\.words\.task: 'ft_wrods'.*ft_words"),
        ({"words": WORDS | {"key": "acc_nrm,none"}}, r"tasks\.words\.key: .* is not one of "),
        ({"words": WORDS | {"task": "gsm8k"}}, r"tasks\.words\.key: .* is not one of "),
        ({"tasks": {"x": {"key": "acc,none"}}}, r"tasks: .*needs a `task`"),
        ({"pass_at_k": ONCE}, r"pass_at_k\.tasks: passages generates no answers"),
    ],
)
def test_mistakes_are_named_before_anything_is_trained(look, changes, message, monkeypatch):
    manager = task_index.manager
    # indexing the whole harness takes 15 seconds
    monkeypatch.setattr(task_index, "manager", lambda everything: manager(False))
    look()  # what is right is known from now on
    with pytest.raises(UserError, match=rf"suite\.{message}"):
        look(**changes)


def test_fetched_data_are_seen(look):
    path = look()
    before = path.read_bytes()
    assert look().read_bytes() == before
    benchmark_data.FETCHED.parent.mkdir(parents=True)
    benchmark_data.FETCHED.write_text('{"piqa": {"documents": 3}}')
    assert look().read_bytes() == before, "the suite has no such task"
    note = json.loads(look(words=WORDS | {"task": "piqa"}).read_bytes())
    assert note["fetched"] == {"piqa": {"documents": 3}}
