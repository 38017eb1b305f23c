"""Stage suite with several answers to each prompt: files, MLflow, a kill, and the report."""

import gzip
import json

import pytest

from pipelines.config.load import load_experiment
from pipelines.suite import stage as suite
from pipelines.suite.stage import score_run
from tests.support.mutants import rejects
from tests.support.training import tracked_runs, train_run

RUN = "text_free_k1_2"
WAYS = ["z", "tokens_0.5", "z_and_tokens_0.5"]
FIGURES = ["pass_at_1", "pass_at_3", "distinct"]


@pytest.fixture
def experiment(workspace):
    """The text run of smoke, trained, with three answers to each prompt of `idioms`."""
    train_run(RUN)
    loaded = load_experiment()
    settings = loaded.suite.pass_at_k
    settings.samples, settings.k, settings.temperatures = 3, [1, 3], [0.5]
    loaded.suite.tasks = {k: loaded.suite.tasks[k] for k in ("idioms", "functions")}
    return loaded


def read(file):
    return json.loads(open(f"results/smoke/{RUN}/{file}").read())


def test_files_and_mlflow_have_every_way(experiment, capsys):
    score_run(experiment, RUN)
    said = capsys.readouterr().out
    assert all(f"{RUN}: idioms, {name}: pass_at_1 " in said for name in WAYS)
    found, scores = read("suite.json"), read("suite_scores.json")
    assert [*found["tasks"]] == ["idioms"] and [*found["skipped"]] == ["functions"]
    ways = found["tasks"]["idioms"]["sampled"]
    assert [way["sampling"]["varied"] for way in ways] == ["z", "tokens", "z_and_tokens"]
    assert [way["sampling"]["temperature"] for way in ways] == [0, 0.5, 0.5]
    assert {*scores} == {"idioms", *(f"idioms/{way}/{fig}" for way in WAYS for fig in FIGURES)}
    for name, way in zip(WAYS, ways, strict=True):
        assert way["samples"] == 3 and [*way["pass_at"]] == ["1", "3"]
        values = scores[f"idioms/{name}/distinct"]
        assert sum(values) / 3 == pytest.approx(way["distinct"]["value"])
        with gzip.open(f"results/smoke/{RUN}/suite_samples/idioms.{name}.jsonl.gz", "rt") as file:
            log = [json.loads(line) for line in file]
        assert [len(sample["resps"][0]) for sample in log] == [3, 3, 3]
    _, (tracked,) = tracked_runs()
    key = "suite/idioms/z_and_tokens_0.5/distinct"
    assert tracked.data.metrics[key] == ways[2]["distinct"]["value"]


def test_a_stage_that_was_killed_goes_on_with_the_next_way(experiment, monkeypatch):
    run_sampled, drawn = suite.run_sampled, []

    def spy(lm, name, spec, settings, sampling):
        if len(drawn) == 1 and not spy.again:
            raise KeyboardInterrupt
        drawn.append(sampling.name)
        return run_sampled(lm, name, spec, settings, sampling)

    spy.again = False
    monkeypatch.setattr(suite, "run_sampled", spy)
    with pytest.raises(KeyboardInterrupt):
        score_run(experiment, RUN)
    spy.again = True
    score_run(experiment, RUN)
    assert drawn == WAYS
    assert len(read("suite.json")["tasks"]["idioms"]["sampled"]) == 3


@rejects(
    "suite/stage.py",
    "if whole and suite.pass_at_k.samples",
    "if suite.pass_at_k.samples",
    "models of smaller budgets that answer several times, too",
)
def test_only_the_finished_model_answers_several_times(experiment, monkeypatch):
    """With a smaller budget the suite scores two models."""
    run_sampled, drawn = suite.run_sampled, []
    monkeypatch.setattr(suite, "run_sampled", lambda *a: drawn.append(a) or run_sampled(*a))
    budget = 10 * 4 * 64
    train_run(RUN, budgets=[budget])
    experiment.runs[RUN].budgets = [budget]
    score_run(experiment, RUN)
    assert len(drawn) == 3
    assert all("sampled" not in each["tasks"]["idioms"] for each in read("suite.json")["budgets"])


@pytest.mark.slow
def test_from_settings_to_the_report(copied):
    """Only the suite and the report run again; the page has the table."""
    copied.compose("suite.pass_at_k.samples=3", "suite.pass_at_k.k=[1,3]")
    said = copied.ok("dvc", "repro")
    assert "Running stage 'suite@text_free_k1_2'" in said and "Running stage 'report'" in said
    assert "Running stage 'train" not in said and "Running stage 'evaluate" not in said
    page = (copied.folder / "report/smoke/report.md").read_text()
    part = page[page.index("3 answers to each prompt of idioms") :]
    rows = [line for line in part.splitlines() if line.startswith("| text_free_k1_2")][:3]
    assert [row.split("|")[2].strip() for row in rows] == ["z", "tokens", "z and tokens"]
    params = (copied.folder / "params.yaml").read_text()
    (copied.folder / "params.yaml").write_text(params.replace("- idioms", "- passages"))
    refused = copied.run("dvc", "repro")
    assert refused.returncode
    assert "suite.pass_at_k.tasks: passages generates no answers" in refused.stdout + refused.stderr
