"""Benchmark tasks: ours on our data, the paper's on documents made here in their formats."""

import json
import math
from collections import Counter
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from lm_eval.api.task import ConfigurableTask

from pipelines.host.errors import UserError
from pipelines.report.benchmarks import paper_name, read_tables
from pipelines.suite import benchmark_data, task_index, tasks
from pipelines.suite.task_index import check_file, check_names
from pipelines.suite.tasks import Skipped, cluster_numbers, run_task
from tests.support.arrivals import arrives
from tests.support.benchmark_models import (
    Scripted,
    documents,
    entries,
    entry,
    hashed,
    settings,
)
from tests.support.mutants import rejects

MINI, PAPER = entries("mini"), entries("paper")
CHOICE, TEXT = entry("ft_snippets", "acc,none"), entry("ft_passages", "bits_per_byte,none")


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark_data, "NO_HUB", ["no hub in reach: tests ask none"])
    monkeypatch.setattr(benchmark_data, "FOLDER", tmp_path / "benchmarks")


def test_our_snippets_and_words_have_one_right_answer_anywhere():
    docs = documents("snippets")
    assert len({doc["prompt"] for doc in docs}) == len(docs) == 80
    assert Counter(doc["answer"] for doc in docs) == {place: 20 for place in range(4)}
    for doc in docs:
        right = doc["choices"][doc["answer"]]
        assert len(set(doc["choices"])) == 4
        for other in doc["choices"]:  # else the shorter one were likelier for certain
            assert other == right or not (right.startswith(other) or other.startswith(right))
    words = documents("words")
    assert len(words) == 40 and Counter(doc["answer"] for doc in words) == {0: 20, 1: 20}
    assert len({(doc["before"], doc["after"]) for doc in words}) == 40
    assert all(len(set(doc["words"])) == 2 and doc["after"] for doc in words)


def test_our_functions_pass_their_own_tests():
    docs = documents("functions")
    assert len({doc["entry_point"] for doc in docs}) == len(docs) >= 12
    for doc in docs:
        names = {}
        exec(doc["prompt"] + doc["canonical_solution"] + doc["test"], names)
        names["check"](names[doc["entry_point"]])
        with pytest.raises(AssertionError):
            names["check"](lambda *_: object())


def test_our_texts_differ_and_are_short():
    texts = [doc["text"] for doc in documents("passages")]
    idioms = documents("idioms")
    assert len(set(texts)) == len(texts) == 40
    assert len({doc["prompt"] for doc in idioms}) == len(idioms) >= 40
    assert all(doc["answer"] == doc["answer"].strip() != "" for doc in idioms)
    for name in ("snippets", "idioms", "functions"):
        texts += [doc["prompt"] for doc in documents(name)]
    assert max(map(len, texts)) < 250  # bytes; a token is a byte at least


@rejects("tasks.run: «lm.start_task()→»", "a task's figures with those of the task before")
def test_who_knows_the_answers_has_them_all(sandbox):
    likely = {(doc["prompt"], doc["choices"][doc["answer"]]) for doc in documents("snippets")}
    for doc in documents("words"):
        likely.add((doc["before"] + doc["words"][doc["answer"]], doc["after"]))
    answers = {doc["prompt"]: f" {doc['answer']}" for doc in documents("idioms")}
    answers |= {doc["prompt"]: "    return 'good'" for doc in documents("functions")}
    model = Scripted(lambda *pair: 0.0 if pair in likely else -50.0, answers.__getitem__)
    for name, spec in MINI.items():
        figures, scores, samples, _ = run_task(model, name, spec, settings(run_code=True))
        assert figures.documents == len(samples) == len(documents(spec.task.removeprefix("ft_")))
        if name != "passages":
            assert figures.value == 1 and figures.higher_is_better
            assert scores == [1.0] * figures.documents and figures.se == 0
        assert (figures.shots, figures.version, figures.subtasks) == (0, "1.0", {})
        assert figures.truncated == 0  # of this task, not what was there before
        assert figures.mc_error is None and figures.undecided is None
        assert json.loads(json.dumps(samples)) == samples


def test_the_two_scorings_weigh_length_differently_and_their_errors_are_a_proportions():
    docs, found = documents("snippets"), []
    model = Scripted(lambda _, choice: -math.sqrt(len(choice)))  # less unlikely per character
    for name, prefer in (("snippets", min), ("snippets_char", max)):
        result, scores, *_ = run_task(model, name, MINI[name], settings())
        right = [prefer(doc["choices"], key=len) == doc["choices"][doc["answer"]] for doc in docs]
        p, n = result.value, result.documents
        assert p == np.mean(right) and np.mean(scores) == pytest.approx(p)
        assert result.se == pytest.approx(math.sqrt(p * (1 - p) / (n - 1)))
        found.append(p)
    assert 0 < found[0] != found[1] < 1


def test_bits_per_byte():
    texts = [doc["text"] for doc in documents("passages")]
    figures, scores, *_ = run_task(Scripted(), "passages", MINI["passages"], settings())
    bits = np.array([-hashed("", text) / math.log(2) for text in texts])
    sizes = np.array([len(text.encode()) for text in texts])
    value = bits.sum() / sizes.sum()
    assert figures.value == pytest.approx(value)
    jackknife = [(bits.sum() - b) / (sizes.sum() - s) for b, s in zip(bits, sizes, strict=True)]
    n = len(texts)
    expected = math.sqrt((n - 1) / n * sum((each - np.mean(jackknife)) ** 2 for each in jackknife))
    assert figures.se == pytest.approx(expected, rel=0.1)
    assert not figures.higher_is_better and scores is None


@rejects("tasks.gold_bits_per_byte: append(asked[«right→0»])", "the first prompt as the right one")
@rejects("tasks.gold_bits_per_byte: / log(2) «/ len→+ 0 * len»(pair[1]", "bits per document")
def test_bits_per_byte_of_right_answers(sandbox):
    """Of several choices by what the harness has asked, of an answer to be written by asking."""
    right = {
        "snippets": lambda doc: (doc["prompt"], doc["choices"][doc["answer"]]),
        "words": lambda doc: (doc["before"] + doc["words"][doc["answer"]], doc["after"]),
        "idioms": lambda doc: (doc["prompt"], doc["answer"]),
        "functions": lambda doc: (doc["prompt"], doc["canonical_solution"]),
    }
    for name, pair_of in right.items():
        pairs = [*map(pair_of, documents(name))]
        expected = [-hashed(*pair) / math.log(2) / len(pair[1].encode()) for pair in pairs]
        result, *_, more = run_task(Scripted(), name, MINI[name], settings(run_code=True))
        assert more == {"gold_bpb": pytest.approx(expected)}
        assert result.gold_bpb.value == pytest.approx(np.mean(expected))
        assert result.gold_bpb.se == pytest.approx(np.std(expected, ddof=1) / math.sqrt(len(pairs)))
    result, *_, more = run_task(Scripted(), "passages", MINI["passages"], settings())
    assert result.gold_bpb is None and more == {}
    with pytest.raises(UserError, match="bits_per_byte is no mean of its documents"):
        run_task(Scripted(), "passages", replace(MINI["passages"], cluster="text"), settings())


@arrives("suite_task", "cluster")
@rejects("tasks.over_documents: «CLUSTER in more→False»", "errors over documents of few clusters")
def test_errors_are_over_clusters_of_documents(given):
    """Three copies of each of two prompts tell no more than the two."""
    given(**choice_docs(*[("a", "b"), ("c", "d")] * 3))
    model = Scripted(lambda prompt, choice: {"a": -1.0, "b": -2.0, "c": -4.0, "d": -3.0}[choice])
    spec = replace(entry("ft_snippets", "acc,none"), cluster="choices")
    result, scores, _, more = run_task(model, "x", spec, settings())
    assert scores == [1, 0] * 3 and more["cluster"] == [0, 1] * 3
    assert (result.value, result.clusters, result.documents) == (0.5, 2, 6)
    assert result.se == pytest.approx(0.5)  # of 1 and 0: the standard deviation ÷ √2
    gold = more["gold_bpb"][:2]
    assert result.gold_bpb.se == pytest.approx(abs(gold[0] - gold[1]) / 2)
    model.pairs = []
    with pytest.raises(UserError, match="cluster: 'passage' is not one of"):
        run_task(model, "x", replace(spec, cluster="passage"), settings())
    assert model.pairs == []  # before anything is asked


@rejects('tasks.cluster_numbers: (None, ""«) else→, 0) else»', "no value as one cluster")
def test_documents_without_a_value_are_clusters_of_their_own():
    spec = replace(CHOICE, cluster="of")
    samples = [{"task": "t", "doc": {"of": value}} for value in ("a", None, "a", "", 0, None, 0)]
    assert cluster_numbers(spec, samples) == {"cluster": [0, 1, 0, 2, 3, 4, 3]}
    others = [{**samples[0], "task": "u"}]
    assert cluster_numbers(spec, samples[:1] + others) == {"cluster": [0, 1]}


def choice_docs(*choices):
    docs = ({"prompt": f"p{i}", "choices": [*each]} for i, each in enumerate(choices))
    return {"test": [doc | {"answer": 0} for doc in docs]}


@rejects("tasks.undecided: «len→lambda c: len(c.encode())»,", "bytes for characters")
@pytest.mark.parametrize("key, undecided", [("acc,none", 3 / 6), ("acc_norm,none", 2 / 6)])
def test_undecided_where_noise_may_swap_the_two_best(given, key, undecided):
    values = {
        "p0": {"a": -1.0, "b": -1.4, "c": -9.0},  # 0.4 apart; error of the difference 0.1414
        "p1": {"a": -1.0, "b": -8.0, "c": -1.27},  # 0.27 apart: less than 2 errors
        "p2": {"a": -1.0, "bbbb": -1.1, "c": -3.0},  # 0.725 a character apart
        "p3": {"aa": -2.0, "éé": -4.0},  # 1.0 a character, 0 a byte apart
        "p4": {"aaaa": -4.0, "bbbb": -4.4},  # a character: 0.1 apart, error 0.0354
        "p5": {"aaaa": -4.0, "bbbb": -4.2},  # both ways less than 2 errors
    }
    given(**choice_docs(*values.values()))
    model = Scripted(lambda prompt, choice: values[prompt][choice], error=lambda *_: 0.1)
    figures, _, samples, _ = run_task(model, "x", entry("ft_snippets", key), settings())
    assert figures.undecided == undecided
    assert figures.mc_error == pytest.approx(0.1)
    assert samples[3]["mc_error"] == [0.1, 0.1]


@arrives("suite", "run_code")
def test_programs_are_run_only_if_asked_for(sandbox):
    for name, suite in (("functions", MINI), ("mbpp", PAPER), ("human_eval_plus", PAPER)):
        with pytest.raises(Skipped, match=r"only if asked for: suite\.run_code=true"):
            run_task(Scripted(), name, suite[name], settings())
    sandbox.unavailable = lambda: "this kernel has no Landlock"
    with pytest.raises(Skipped, match="this kernel has no Landlock"):
        run_task(Scripted(), name, suite[name], settings(run_code=True))
    assert not sandbox.ran


SCORED_OUTSIDE = """
dataset_path: json
test_split: test
output_type: generate_until
doc_to_text: q
doc_to_target: a
process_results: !function utils.ran
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
FIRST = "  - {name: first, filter: [{function: take_first}]}\n"
SANDBOX = f"""
filter_list:
{FIRST}  - name: sandbox
    filter: [{{function: custom, filter_fn: !function pipelines.suite.tasks.mbpp}}]
"""
UNSAFE = "unsafe_code: true\n"
MEMBER = "group: t\ntask:\n  - {{task: member, unsafe_code: {}}}\n"
INLINE = "group: t\ntask:\n  - task: inline\n    unsafe_code: true"
WAYS_TO_SAY_IT = {
    "its file": {"t": f"task: t\n{UNSAFE}{SCORED_OUTSIDE}"},
    "a file that it includes": {
        "t": "include: base.yaml\ntask: t",
        "base": UNSAFE + SCORED_OUTSIDE,
    },
    "a task in a group": {"t": INLINE + SCORED_OUTSIDE.replace("\n", "\n    ")},
    "a group of a task": {"t": MEMBER.format("true"), "member": "task: member" + SCORED_OUTSIDE},
    "a group that denies it": {
        "t": MEMBER.format("false"),
        "member": f"task: member\n{UNSAFE}{SCORED_OUTSIDE}",
    },
    "one filter of two": {"t": f"task: t{SCORED_OUTSIDE}{SANDBOX}"},
}


@rejects(
    'tasks.check_programs: getattr(task, "«UNSAFE_CODE→x»", False)',
    "a group's word",
    case="a task in a group",
)
@rejects(
    "tasks.check_programs: «name in unsafe or→»",
    "a file that its group denies",
    case="a group that denies it",
)
@rejects(
    "tasks.check_programs: not «all→any»(in_sandbox)",
    "an answer that one filter lets through",
    case="one filter of two",
)
@pytest.mark.parametrize("way", WAYS_TO_SAY_IT)
def test_a_scorer_never_sees_a_program_outside_the_sandbox(own_tasks, given, sandbox, way):
    """SECURITY.md. Whatever says that a task runs programs: it is not scored, even with
    run_code=true, unless all its filters are the sandbox's.
    """
    folder = own_tasks(
        "from pathlib import Path\n\ndef ran(doc, results):\n"
        "    Path(__file__).with_name('ran').touch()\n    return {'acc': 0.0}\n",
        **WAYS_TO_SAY_IT[way],
    )
    given(test=[{"q": "1", "a": "2", "test_list": ["1"], "test_setup_code": ""}])
    spec = entry("t", "acc,first" if "filter" in way else "acc,none")
    for run_code, reason in ((False, "only if asked for"), (True, "with no sandbox")):
        with pytest.raises(
            (Skipped, ValueError), match=reason
        ):  # the harness refuses by ValueError
            run_task(Scripted(), "x", spec, settings(run_code=run_code))
    assert not (folder / "ran").exists() and not sandbox.ran


def test_a_task_of_ones_own_runs_programs_in_the_sandbox(own_tasks, given, sandbox):
    """Also if its file does not say that it runs any."""
    scored = SCORED_OUTSIDE.replace("utils.ran", "pipelines.suite.tasks.pass_at_1")
    own_tasks(t="task: t" + scored.replace("acc", "pass@1") + SANDBOX.replace(FIRST, ""))
    given(test=[{"q": "1", "a": "2", "test_list": ["1"], "test_setup_code": ""}])
    spec, model = entry("t", "pass@1,sandbox"), Scripted(answer=lambda _: "good")
    with pytest.raises(Skipped, match="only if asked for"):
        run_task(model, "x", spec, settings())
    assert not sandbox.ran
    assert run_task(model, "x", spec, settings(run_code=True)).scores == [1.0]
    assert sandbox.ran == [("good", "\n1\n")]


def test_without_its_data_a_task_is_skipped_with_the_command_to_fetch_them():
    for name in ("hellaswag", "mmlu"):
        with pytest.raises(Skipped, match=r"^its.*no hub in reach.*`ftlab fetch` .*$"):
            run_task(Scripted(), name, PAPER[name], settings())


@pytest.mark.parametrize("error", [ConnectionError("no\nroute"), ModuleNotFoundError("no nltk")])
def test_a_task_that_gets_its_own_data_and_cannot_is_skipped(monkeypatch, error):
    monkeypatch.setattr(task_index.TaskManager, "load", Mock(side_effect=error))
    with pytest.raises(Skipped, match=r"^the harness cannot load it here \(no (route|nltk)"):
        run_task(Scripted(), "x", entry("piqa", "acc,none"), settings())


TWO = choice_docs(["a", "b"], ["c", "d"])
ARC = {"id": "0", "question": "q", "answerKey": "A"}
ARC["choices"] = {"text": ["a", "b"], "label": ["A", "B"]}


@pytest.mark.parametrize(
    ("splits", "spec", "message"),
    [
        ({"test": []}, CHOICE, "task ft_snippets: .*split test "),
        ({"dev": [{}]}, CHOICE, r"task ft_snippets: .*split test .*\(dev\)"),
        (choice_docs(["a", "b"], ["a", ""]), CHOICE, "task ft_snippets: document 1: choice 1 "),
        (choice_docs(["", "b"], ["a", "b"]), CHOICE, "task ft_snippets: document 0: choice 0 "),
        (choice_docs(["a", "b"], []), CHOICE, "task ft_snippets: document 1 .*no choices"),
        ({"test": [{"text": "a"}, {"text": ""}]}, TEXT, "task ft_passages: document 1: "),
        ({"test": [dict(before="", words=["a", "b"], after=x, answer=0) for x in (".", "")]},
         entry("ft_words", "acc,none"), "task ft_words: document 1: nothing to score"),
        (TWO, entry("ft_snippets", "acc_normal,none", 0),
         r"suite\.tasks\.x\.key: .* is not one of acc,none, acc_norm,none"),
        (TWO, entry("ft_snippets", "acc,none", 3),
         r"suite\.tasks\.x\.shots: 3, but ft_snippets has 2"),
        ({"train": [ARC], "validation": [ARC], "test": [ARC]}, entry("ai2_arc", "acc,none"),
         r"suite\.tasks\.x\.key: ai2_arc has no 'acc' for its 2 tasks"),
    ],
)  # fmt: skip
def test_what_cannot_be_scored_is_found_before_anything_is(given, splits, spec, message):
    given(**splits)
    model = Scripted()
    with pytest.raises(UserError, match=f"^{message}"):
        run_task(model, "x", spec, settings())
    assert not model.pairs


def test_a_score_that_is_no_number_is_named(given, monkeypatch):
    monkeypatch.setattr(ConfigurableTask, "process_results", lambda *_: {"acc": math.nan})
    given(**TWO)
    with pytest.raises(UserError, match=r"^task ft_snippets: its acc is nan$"):
        run_task(Scripted(), "x", CHOICE, settings())


@rejects("tasks.configure: if spec.shots «is not None→»", "0 shots taken for the task's own number")
@arrives("suite", "seed")
@arrives("suite_task", "shots")
@pytest.mark.parametrize(
    ("shots", "own", "expected"), [(None, 2, 2), (0, 2, 0), (3, 2, 3), (None, None, 0)]
)
def test_zero_shots_are_not_the_tasks_own_number(shots, own, expected):
    task = Mock(sampler=Mock(df=[1, 2, 3]), aggregation=lambda: ["acc"])
    task.config = Mock(num_fewshot=own, filter_list=None, metric_list=None)
    spec = entry("t", "acc,none", shots)
    tasks.configure("x", spec, {"tasks": {"t": task}, "groups": {}}, seed=4)
    task.set_config.assert_called_once_with("num_fewshot", expected)
    task.set_fewshot_seed.assert_called_once_with(4)


@arrives("suite_task", "task")
def test_a_task_that_nobody_knows_is_named(monkeypatch):
    manager = task_index.manager
    monkeypatch.setattr(task_index, "manager", lambda everything: manager(False))  # else 15 seconds
    with pytest.raises(UserError, match=r"^suite\.tasks\.x\.task: 'ft_wrods'"):
        run_task(Scripted(), "x", entry("ft_wrods", "acc,none"), settings())


@pytest.mark.slow
def test_any_task_of_the_harness_may_be_named():
    check_names({"a": "sciq", "b": "humaneval"})
    with pytest.raises(UserError, match="hellaswag"):
        check_names({"a": "hellasweg"})
    with pytest.raises(Skipped, match="with no sandbox"):
        run_task(Scripted(), "b", entry("humaneval", "pass@1,none"), settings(run_code=True))


def test_names_of_the_suites_need_no_index_of_the_harness(monkeypatch):
    manager = task_index.manager

    def small(everything):
        assert not everything
        return manager(everything)

    monkeypatch.setattr(task_index, "manager", small)
    for suite in (MINI, PAPER):
        check_names({key: spec.task for key, spec in suite.items()})
        for key, spec in suite.items():
            check_file(key, spec.task, spec.key)


def test_the_suite_is_that_of_the_papers_table_1_in_its_order():
    table, *_ = read_tables()
    ours = {paper_name(name): spec.metric for name, spec in PAPER.items()}
    assert list(ours.items()) == [(name, found.metric) for name, found in table.scores.items()]


OPTIONS = dict(text=["v", "w", "x", "y", "z"], label=["A", "B", "C", "D", "E"])
PROBLEMS = """[{'question': 'Who?', 'options': ['p', 'q', 'r', 's'], 'answer': 'B'},
 {'question': 'Why?', 'options': ['t', 'u', 'v', 'w'], 'answer': 'C'}]"""
DOCUMENTS = {  # name → dataset, configuration; documents; prompt, its end; continuations; right
    "csqa": (
        ("tau/commonsense_qa", None),
        [dict(question=f"Where {i}?", choices=OPTIONS, answerKey="D") for i in range(12)],
        "Question: Where 0?\nA. v\nB. w\nC. x\nD. y\nE. z\nAnswer:",
        [" A", " B", " C", " D", " E"],
        3,
    ),
    "race_high": (
        ("EleutherAI/race", "high"),
        [dict(article="A text.", problems=PROBLEMS)] * 2,
        "Article: A text.\n\nQuestion: Who?\nAnswer: q\nWhy?",
        [" t", " u", " v", " w"],
        2,
    ),
}


@arrives("suite_task", "task key metric")
@pytest.mark.parametrize("name", DOCUMENTS)
def test_choices_of_the_papers_tasks(given, name):
    source, docs, prompt, continuations, right = DOCUMENTS[name]
    asked = given(train=docs, validation=docs[:2], test=docs[:2])
    spec = PAPER[name]
    model = Scripted(lambda context, choice: 0.0 if choice == continuations[right] else -50.0)
    figures, *_ = run_task(model, name, spec, settings())
    assert {what[:2] for what in asked} == {source}
    (context, _), *_ = model.pairs[: len(continuations)]
    assert [choice for _, choice in model.pairs[: len(continuations)]] == continuations
    assert context.endswith(prompt)
    assert (figures.value, figures.documents, figures.shots) == (1, 2, spec.shots)
    assert (figures.task, figures.metric) == (spec.task, spec.metric)
    assert context.count(prompt[:8]) == 1 + spec.shots
    if not spec.shots:
        assert context == prompt


def test_winogrande_compares_ends_not_beginnings(given):
    """Two contexts, one continuation: the harness's acc_norm would divide by the lengths of the
    contexts, and so choose the longer one of these.
    """
    fields = dict(
        sentence="The cup fell off the table as _ was tilted.", option1="it", option2="the table"
    )
    docs = [{**fields, "answer": "1"}, {**fields, "answer": "2"}]
    asked = given(train=docs, validation=docs)
    log_p = {"it": -1.0, "the table": -1.1}
    model = Scripted(
        lambda context, _: log_p[context.removeprefix("The cup fell off the table as ")]
    )
    figures, scores, *_ = run_task(model, "winogrande", PAPER["winogrande"], settings())
    assert asked[0][:2] == ("allenai/winogrande", "winogrande_xl")
    assert model.pairs[:2] == [
        ("The cup fell off the table as it", " was tilted."),
        ("The cup fell off the table as the table", " was tilted."),
    ]
    assert scores == [1.0, 0.0] and figures.shots == 0


def test_mmlu_counts_every_subject_the_same(monkeypatch):
    """57 subjects of 2, 3 or 4 questions, of which the model knows the first of each."""
    sizes = {}

    def load(dataset, name, _):
        assert dataset == "cais/mmlu"
        sizes[name] = 2 + len(sizes) % 3
        fields = dict(subject=name, choices=["w", "x", "y", "z"])
        asked = [{"question": f"{name} {i}?", "answer": i, **fields} for i in range(sizes[name])]
        shown = [{"question": f"shown {i}?", "answer": 3, **fields} for i in range(5)]
        return DatasetDict(test=Dataset.from_list(asked), dev=Dataset.from_list(shown))

    monkeypatch.setattr(benchmark_data, "load", load)
    model = Scripted(lambda _, choice: -1.0 - (choice != " A"))
    figures, scores, samples, _ = run_task(model, "mmlu", PAPER["mmlu"], settings())
    assert len(sizes) == 57 == len(figures.subtasks)
    values = np.array([1 / size for size in sizes.values()])
    assert figures.value == pytest.approx(values.mean())
    assert figures.value != pytest.approx(57 / sum(sizes.values()))  # the harness's own
    errors = np.sqrt(values * (1 - values) / (np.array(list(sizes.values())) - 1))
    assert figures.se == pytest.approx(np.sqrt(np.sum(errors**2)) / 57)
    assert figures.subtasks["mmlu_anatomy"] == pytest.approx(1 / sizes["anatomy"])
    assert (figures.documents, figures.shots, scores) == (sum(sizes.values()), 5, None)
    context, choice = next(pair for pair in model.pairs if "anatomy 1?" in pair[0])
    assert context == (
        "The following are multiple choice questions (with answers) about anatomy.\n\n"
        + "".join(f"shown {i}?\nA. w\nB. x\nC. y\nD. z\nAnswer: D\n\n" for i in range(5))
        + "anatomy 1?\nA. w\nB. x\nC. y\nD. z\nAnswer:"
    )
    assert choice == " A" and {sample["task"] for sample in samples} == set(figures.subtasks)


def test_race_middle_is_asked_as_race_high(given):
    asked = given(
        test=[
            dict(
                example_id=f"middle{article}.txt",
                article=f"Text {article}.",
                question=question,
                options=["p", "q", "r", "s"],
                answer=answer,
            )
            for article, question, answer in (
                (1, "Who?", "B"), (1, "It is  _  .", "A"), (1, "Why?", "D"), (2, "How?", "C")
            )
        ]
    )  # fmt: skip
    right = {"1": " s", "2": " r"}
    model = Scripted(lambda context, choice: 9.0 * (choice == right[context[14]]))
    figures, *_ = run_task(model, "race_middle", PAPER["race_middle"], settings())
    assert asked[0][:2] == ("ehovy/race", "middle")
    assert (figures.value, figures.documents, figures.shots) == (1, 2, 0)
    assert model.pairs[0] == ("Article: Text 1.\n\nQuestion: Who?\nAnswer: q\nIt is p\nWhy?", " p")
    assert model.pairs[4] == ("Article: Text 2.\n\nHow?", " p")


def test_gsm8k_wants_the_answer_where_it_belongs(given):
    docs = [{"question": f"{i} + {i}?", "answer": f"Sum.\n#### {2 * i:,}"} for i in range(500, 520)]
    asked = given(train=docs, test=docs[:3])
    answers = {500: " Sum.\n#### 1000", 501: " It is 1,002.", 502: " Sum.\n#### 1004 apples"}
    answer = lambda prompt: answers[int(prompt.rpartition("Question: ")[2].split()[0])]  # noqa: E731
    model = Scripted(answer=answer)
    figures, scores, samples, _ = run_task(model, "gsm8k", PAPER["gsm8k"], settings())
    assert asked[0][:2] == ("openai/gsm8k", "main")
    assert scores == [1.0, 0.0, 1.0] and figures.shots == 5
    assert len(samples) == 3  # of the strict filter alone
    assert model.prompts[0].count("Question:") == 6 and model.prompts[0].endswith("?\nAnswer:")
    assert "Question:" in model.settings[0]["until"]


@arrives("suite", "seed")
def test_one_of_several_answers_to_the_letter_after_shots_by_the_seed(given):
    docs = [dict(question=f"what {i}", answer=["Paris", "paris city"]) for i in range(12)]
    asked = given(train=docs, validation=docs[:3])
    prompts = []
    for seed in (0, 0, 1):
        replies = iter([" paris", " Paris City ", " near Paris"])
        model = Scripted(answer=lambda _, replies=replies: next(replies))
        figures, scores, *_ = run_task(model, "nq", PAPER["nq"], settings(seed=seed))
        assert scores == [1.0, 1.0, 0.0] and figures.shots == 5
        prompts.append(model.prompts)
    assert asked[0][:2] == ("google-research-datasets/nq_open", None)
    assert model.prompts[1].endswith("Q: what 1?\nA:") and model.prompts[1].count("Q: ") == 6
    assert model.settings[0]["until"] == ["\n", ".", ","]
    assert prompts[0] == prompts[1] != prompts[2]


def test_human_eval_plus_runs_programs_whose_failures_the_log_names(given, sandbox):
    doc = dict(
        task_id="HumanEval/0",
        prompt='def one():\n    """One."""\n',
        canonical_solution="    return 1\n",
        entry_point="one",
        test="def check(candidate):\n    assert candidate() == 1\n",
    )
    asked = given(test=[doc, {**doc, "task_id": "HumanEval/1"}])
    replies = iter(["    return 'good'", "    return 2"])
    model = Scripted(answer=lambda _: next(replies))
    figures, scores, log, _ = run_task(
        model, "human_eval_plus", PAPER["human_eval_plus"], settings(run_code=True)
    )
    assert [sample["filtered_resps"] for sample in log] == [[["passed"]], [["time"]]]
    assert asked[0][:2] == ("evalplus/humanevalplus", None)
    assert model.prompts[0] == doc["prompt"] and "\ndef" in model.settings[0]["until"]
    assert sandbox.ran[0] == (
        doc["prompt"] + "    return 'good'",
        "def check(candidate):\n    assert candidate() == 1\n\ncheck(one)\n",
    )
    assert scores == [1.0, 0.0] and figures.shots == 0


@rejects('tasks.mbpp: "]«→[:1]»]', "a program of MBPP passes by its first test")
def test_mbpp(given, sandbox):
    def doc(number):
        return dict(
            task_id=number,
            text=f"Write f{number}.",
            code=f"def f{number}():\r\n  return {number}",
            test_list=[f"assert f{number}() == {number}", "assert True"],
            test_setup_code="import math" if number == 11 else "",
            challenge_test_list=[],
        )

    asked = given(
        prompt=[doc(i) for i in range(1, 11)],
        test=[doc(11), doc(12)],
        train=[doc(600)],
        validation=[doc(500)],
    )
    replies = iter(["good = 1", "bad = 1"])
    model = Scripted(answer=lambda _: next(replies))
    figures, scores, *_ = run_task(model, "mbpp", PAPER["mbpp"], settings(run_code=True))
    assert asked[0][:2] == ("google-research-datasets/mbpp", "full")

    def asking(i):
        return (
            f"You are an expert Python programmer, and here is your task: Write f{i}. Your code "
            f"should pass these tests:\n\nassert f{i}() == {i}\nassert True\n[BEGIN]\n"
        )

    shown = "".join(f"{asking(i)}def f{i}():\n  return {i}\n[DONE]\n\n" for i in (2, 3, 4))
    assert model.prompts[0] == shown + asking(11)
    assert model.settings[0]["until"] == ["[DONE]"]
    assert sandbox.ran == [
        ("good = 1", "import math\nassert f11() == 11\nassert True\n"),
        ("bad = 1", "\nassert f12() == 12\nassert True\n"),
    ]
    assert scores == [1.0, 0.0] and figures.shots == 3
