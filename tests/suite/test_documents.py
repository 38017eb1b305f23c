"""Documents of benchmarks: labels of every kind count as they are meant, or are named."""

import json

import pytest
from lm_eval.api.task import ConfigurableTask

from pipelines.host.errors import UserError
from pipelines.suite.tasks import run_task
from tests.support.benchmark_models import Scripted, entry, hashed, settings
from tests.support.mutants import rejects

UTILS = """
import json, random
def loaded(doc): return json.loads(doc["a"])
def none(docs): return docs.filter(lambda doc: False)
def half(references, predictions): return 0.5 * (references[0] == predictions[0])
def near(references, predictions): return {"near": 1.0, "far": float(references == predictions)}
def easy(doc, results): return {doc["level"]: float(results[0] == doc["a"])}
def shuffled(docs):
    def one(doc):
        choices = random.sample(doc["c"], len(doc["c"]))
        return {"c": choices, "a": choices.index(doc["right"])}
    return docs.map(one)
"""
EXACT = "[{metric: exact_match, aggregation: mean, higher_is_better: true}]"
ACC = EXACT.replace("exact_match", "acc")


def written(kind="generate_until", metrics=EXACT, **lines):
    """The file of task t."""
    lines = {"task": "t", "dataset_path": "json", "test_split": "test", "doc_to_text": "q"} | lines
    lines |= {"output_type": kind, "metric_list": metrics, "num_fewshot": lines.get("shots", 0)}
    lines.pop("shots", None)
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


@pytest.fixture
def score(own_tasks, given):
    """Factory: the outcome of task t, which is ``written`` so, on documents with these fields."""

    def run(kind, docs, key="exact_match,none", model=None, **lines):
        own_tasks(UTILS, t=written(kind, **lines))
        docs = [{"q": f"q{i}"} | doc for i, doc in enumerate(docs)]
        given(test=docs)
        said = {doc["q"]: doc.get("said", "") for doc in docs}
        model = model or Scripted(answer=lambda prompt: said[prompt])
        return run_task(model, "x", entry("t", key), settings())

    return run


def answers(*pairs):
    return [{"a": label, "said": said} for label, said in pairs]


def in_json(*pairs):
    return answers(*((json.dumps(label), said) for label, said in pairs))


ANY = "!function utils.loaded"


@rejects(
    "documents.meant_target: (is_field «or→and» not",
    "text in brackets taken for a list",
    case="brackets",
)
@rejects(
    "documents.checked_target: return [«label→*label»] if",
    "the letters of a single answer",
    case="one here, several there",
)
@rejects(
    "documents.checked_answer: [*map(«str→float», label)]",
    "numbers in a list",
    case="numbers in lists",
)
@pytest.mark.parametrize(
    ("target", "docs", "scores"),
    [
        ("'{{a}}'", answers(("'ab'", "'ab'"), ("[0,1]", "[0,1]"), ("[1, 3]", "[1, 3]")), [1, 1, 1]),
        ("'{{a}}'", answers(("['b']", "b"), ("x", "x"), ("[[[[", "[[[[")), [0, 1, 1]),
        (ANY, in_json(("7", "7"), (["eight", "8"], "8"), ("nine", "e")), [1, 1, 0]),
        (ANY, in_json((["7", "seven"], "seven"), ("eight", "eight"), ("nine", "e")), [1, 1, 0]),
        ("'{{a}}'", answers((["7", "seven"], "seven"), (["8"], "['8']")), [1, 0]),
        ("a", answers(([4, 5], "5"), ([6], "7")), [1, 0]),
        ("a", answers((4, "4"), (5, "6")), [1, 0]),
    ],
    ids=["brackets", "brackets first", "one here, several there", "several first", "lists",
         "numbers in lists", "numbers"],
)  # fmt: skip
def test_an_answer_is_right_if_it_is_the_text_that_the_document_has(score, target, docs, scores):
    assert score("generate_until", docs, doc_to_target=target).scores == scores


CHOICES = {"c": ["x", "y"]}
GENERATED = {"kind": "generate_until", "metrics": EXACT}
FREE = GENERATED | {"doc_to_choice": "null"}


def labels(*given, **fields):
    return [CHOICES | fields | {"a": label} for label in given]


@rejects(
    "documents.checked_answer: not in range(«→-1, »len",
    "a hidden label of generated answers",
    case="hidden, generated",
)
@pytest.mark.parametrize(
    ("docs", "message", "lines"),
    [
        pytest.param(labels(0, -1), r"document 1: label -1 \(a hidden one\?\) is not the number of "
                     "one of its 2 choices", GENERATED, id="hidden, generated"),
        (labels("x", "y"), "document 0: label 'x' is not the number", GENERATED),
        (labels({"text": "x"}), "document 0: its answer {'text': 'x'} is not text", FREE),
        (labels(["x"], ["y", None]), "document 1: its answer None is not text", FREE),
        (labels("x", ""), "document 1 has no label", FREE),
        (labels(1, 2), "document 0: doc_to_target gives 1, not text", {"kind": "loglikelihood"}),
        (labels(0, -1), r"document 1: label -1 \(a hidden one\?\) is none of its 2 choices", {}),
        (labels("y", "-1"), "document 1: label '-1' .* is none of its 2", {}),
        (labels(0, 1.5), "document 1: label 1.5 is none of its 2", {}),
        (labels("y", "z"), "document 1: label 'z' is none of its 2", {}),
        (labels(2, 0), "document 0: label 2 is none", {}),
        (labels([0], [0, 2]), "document 1: label 2 is none", {}),
        (labels([1], []), "document 1 has no label", {}),
        (labels("0", c=["1", "0"]), "document 0: label '0' is one of its choices and, .* number",
         {"doc_to_target": "'{{a}}'"}),
        (labels(0, 1, c=["x", "x"]), "document 1: choice 1, which is right, is choice 0 again", {}),
        (labels([0, 1]), "document 0: several right choices; the harness has no brier_score",
         {"metrics": f"[{ACC[1:-1]}, {EXACT[1:-1].replace('exact_match', 'brier_score')}]"}),
        (labels(0), "document 0: doc_to_choice gives a str, not a list", {"doc_to_choice": "q"}),
        (labels(0, c={"text": ["x"]}), "document 0: doc_to_choice gives a dict", {}),
        (labels(0), r"document 0: doc_to_choice: choice 0 is True, not text \(yes and no",
         {"doc_to_choice": "[yes, no]"}),
        (labels(1, c=[3, 4]), "document 0: doc_to_choice: choice 0 is 3, not text", {}),
        (labels(1), "document 0: doc_to_choice: ValueError: ", {"doc_to_choice": "nowhere"}),
        (labels(1), "document 0: doc_to_target: UndefinedError", {"doc_to_target": "'{{b}}'"}),
        (labels(1), "document 0: doc_to_target gives 1, not text", {"doc_to_text": "a"}),
        (labels(1), "its process_docs leaves no doc", {"process_docs": "!function utils.none"}),
    ],
)  # fmt: skip
def test_a_label_that_no_answer_can_match_is_named(score, docs, message, lines):
    """The harness would score it with 0, or another answer with 1."""
    model = Scripted()
    lines = {"kind": "multiple_choice", "doc_to_choice": "c", "metrics": ACC} | lines
    key = "exact_match,none" if lines["metrics"] == EXACT else "acc,none"
    with pytest.raises(UserError, match=f"^task t: {message}"):
        score(docs=docs, key=key, model=model, **{"doc_to_target": "a"} | lines)
    assert not model.pairs and not model.prompts


@pytest.mark.parametrize("shots", [0, 1])
def test_labels_in_the_prompt_are_checked_too(given, shots):
    docs = [{"prompt": f"p{i}", "choices": ["a", "b"], "answer": i - 1} for i in range(2)]
    given(test=docs)
    with pytest.raises(UserError, match=r"^task ft_snippets: document 0: label -1 .*hidden"):
        run_task(Scripted(), "x", entry("ft_snippets", "acc,none", shots), settings())


@pytest.mark.parametrize("label", [1, 1.0, True, "y", [1], ["y"]], ids=repr)
def test_every_way_to_say_which_choice_is_right(score, label):
    model = Scripted(lambda _, choice: -1.0 * (choice != " y"))
    lines = {"doc_to_choice": "c", "doc_to_target": "a", "metrics": ACC}
    found = score("multiple_choice", labels(label), key="acc,none", model=model, **lines)
    assert found.scores == [1]


def test_prompts_that_are_numbers_are_prompts(score):
    """Unless all are: then they are the numbers of prompts."""
    docs = [{"q": "a"} | CHOICES | {"a": 1}, {"q": "12"} | CHOICES | {"a": 1}]
    model = Scripted(lambda _, choice: -1.0 * (choice != " y"))
    lines = {"doc_to_choice": "c", "doc_to_target": "a", "metrics": ACC, "doc_to_text": "'{{q}}'"}
    assert score("multiple_choice", docs, key="acc,none", model=model, **lines).scores == [1, 1]
    assert [context for context, _ in model.pairs] == ["a", "a", "12", "12"]


@rejects(
    'documents.check_documents: «task.set_config(→(»"process_docs", None)',
    "other choices scored than asked",
)
@rejects("tasks.prepare: «documents.seed_everything(suite.seed)→»", "choices by chance")
def test_choices_that_a_task_shuffles_are_scored_as_they_were_asked(score):
    docs = [{"c": [f"{i}{j}" for j in range(8)], "right": f"{i}5", "a": 0} for i in range(8)]
    lines = {"doc_to_choice": "c", "doc_to_target": "a", "process_docs": "!function utils.shuffled"}
    orders = []
    for _ in range(2):
        model = Scripted(lambda _, choice: -1.0 * (choice[-1] != "5"))
        found = score("multiple_choice", docs, "acc,none", model, metrics=ACC, **lines)
        assert found.scores == [1] * 8
        orders.append(model.pairs)
    assert orders[0] == orders[1]
    assert orders[0] != sorted(orders[0])


def one(metric):
    return EXACT.replace("exact_match", metric)


TWICE = f"[{EXACT[1:-1]}, {one('!function utils.half')[1:-1]}]"


@pytest.mark.parametrize(
    ("metrics", "key", "message"),
    [
        (one("!function utils.half"), "half", "document 0: half is 0.5 for one of several answers"),
        (one("acc"), "acc", "metric_list: acc: the harness has none for several answers"),
        (TWICE, "half", "metric_list: exact_match must come last"),
    ],
)
def test_figures_that_the_harness_gets_wrong_for_several_answers(score, metrics, key, message):
    """It would count 0.5 as 1, anything as right, a right answer as wrong."""
    docs = answers((["7", "seven"], "seven"))
    with pytest.raises(UserError, match=f"^task t: {message}"):
        score("generate_until", docs, f"{key},none", metrics=metrics, doc_to_target="a")


def test_a_figure_of_some_documents_is_their_mean(score):
    """Scores of documents are not kept: they could stand beside those of others."""
    docs = [{"a": "1", "said": "1", "level": "easy"}, {"a": "2", "said": "1", "level": "easy"}]
    docs += [{"a": "3", "said": "3", "level": "hard"}]
    lines = {"doc_to_target": "a", "process_results": "!function utils.easy"}
    found = score("generate_until", docs, "easy,none", metrics=one("easy"), **lines)
    assert (found.result.value, found.result.documents, found.scores) == (0.5, 2, None)
    assert len(found.log) == 3


def test_a_function_may_give_figures_of_any_name(score):
    docs = answers(("1", "1"), ("2", "1"))
    lines = {"metrics": one("!function utils.near"), "doc_to_target": "a"}
    found = score("generate_until", docs, "far,none", **lines)
    assert found.scores == [1, 0] and found.result.higher_is_better
    with pytest.raises(UserError, match=r"^suite\.tasks\.x\.key: t gives no 'off,none' .*far,"):
        score("generate_until", docs, "off,none", **lines)


def test_mutual_information_stands_beside_what_noise_may_swap(score):
    metrics = f"[{ACC[1:-1]}, {one('acc_mutual_info')[1:-1]}]"
    model = Scripted(lambda context, choice: hashed(context, choice), error=lambda *_: 9.0)
    lines = {"doc_to_choice": "c", "doc_to_target": "a", "metrics": metrics}
    found = score("multiple_choice", labels(0, 1), "acc,none", model, **lines)
    assert found.result.undecided == 1 and len(found.log[0]["mc_error"]) == 4


def test_a_task_written_in_a_group_and_one_that_nobody_knows(own_tasks, given):
    body = written("multiple_choice", ACC, doc_to_choice="c", doc_to_target="a")
    body = body.replace("task: t\n", "").replace("\n", "\n    ")
    mean = "[{metric: acc, aggregation: mean, weight_by_size: true}]"
    own_tasks(
        g=f"group: g\naggregate_metric_list: {mean}\ntask:\n  - task: inside\n    {body}\n"
        f"  - task: other\n    {body}",
        lost="group: lost\ntask: [missing]\n",
    )
    given(test=[{"q": "q"} | doc for doc in labels(0, 1)])
    model = Scripted(lambda _, choice: -1.0 * (choice != " x"))
    found = run_task(model, "x", entry("g", "acc,none"), settings())
    assert found.result.value == 0.5 and [*found.result.subtasks] == ["g::inside", "g::other"]
    with pytest.raises(UserError, match=r"^task lost::missing: no task of this name, and no data"):
        run_task(Scripted(), "x", entry("lost", "acc,none"), settings())


@pytest.mark.parametrize("where", ["doc_to_text", "construct_requests", "process_results"])
def test_an_error_over_a_document_names_it(given, monkeypatch, where):
    def fails(self, doc, *_, **__):
        if doc["prompt"] == "p1":
            raise KeyError("a field")
        return method(self, doc, *_, **__)

    method = getattr(ConfigurableTask, where)
    monkeypatch.setattr(ConfigurableTask, where, fails)
    docs = [{"prompt": f"p{i}", "choices": ["a", "b"], "answer": 0} for i in range(2)]
    given(test=docs)
    with pytest.raises(
        UserError, match=r"^task ft_snippets: document 1: (doc_to_text: )?KeyError: 'a field'$"
    ):
        run_task(Scripted(), "x", entry("ft_snippets", "acc,none"), settings())
