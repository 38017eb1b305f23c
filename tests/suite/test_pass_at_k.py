"""Several answers to each prompt: what varies between them, how each is scored, which differ."""

import itertools
import json
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from lm_eval.api.task import ConfigurableTask

from pipelines.artifacts.suite_results import Sampling, TaskScore, Varied
from pipelines.config.checks import check_values
from pipelines.config.schema import PassAtK
from pipelines.host.errors import UserError
from pipelines.suite import benchmark_data, pass_at_k
from pipelines.suite.pass_at_k import (
    program_text,
    run_sampled,
    samplings,
)
from pipelines.suite.task_index import check_file
from pipelines.suite.tasks import over_documents, run_task
from tests.support.arrivals import arrives
from tests.support.benchmark_models import Scripted, documents, entry, settings
from tests.support.mutants import rejects

IDIOMS = entry("ft_idioms", "exact_match,remove_whitespace")
FUNCTIONS = entry("ft_functions", "pass@1,sandbox")
Z = Sampling(Varied.z, 0.0)
TOKENS = Sampling(Varied.tokens, 0.8)
BOTH = Sampling(Varied.z_and_tokens, 0.8)


def suite(samples=4, k=(1, 2), tasks=("x",), **changes):
    return settings(pass_at_k=PassAtK(samples, [*k], [0.8], [*tasks]), **changes)


class Reciting(Scripted):
    def __init__(self, answers):
        given = {prompt: itertools.cycle(each) for prompt, each in answers.items()}
        super().__init__(answer=lambda prompt: next(given[prompt]))


@arrives("pass_at_k", "samples k")
@rejects(
    "pass_at_k.by_figure: «sample→[a for s in samples for a in "
    's»["filtered_resps"][0]«→]», equal) for «sample→_»',
    "distinct answers counted over all prompts",
)
def test_each_answer_is_scored_as_the_only_one_would_be():
    """Right answers in different places among wrong ones: 0, 1, 2 … 4 of them, by document."""
    docs = documents("idioms")[:5]
    answers = {
        doc["prompt"]: [f" {doc['answer']}\t" if i in right else f"not {i}" for i in range(4)]
        for doc, right in zip(docs, [(), (3,), (1, 2), (0, 1, 3), (0, 1, 2, 3)], strict=True)
    }
    score, by_figure, log = run_sampled(
        Reciting(answers), "x", IDIOMS, suite(k=(1, 2, 4), limit=5), TOKENS
    )
    assert by_figure["pass_at_1"] == [0, 1 / 4, 2 / 4, 3 / 4, 1]
    assert by_figure["pass_at_2"] == pytest.approx([0, 3 / 6, 5 / 6, 1, 1])
    assert by_figure["pass_at_4"] == [0, 1, 1, 1, 1]
    assert by_figure["distinct"] == [4 / 4, 4 / 4, 3 / 4, 2 / 4, 1 / 4]
    assert (score.sampling, score.samples) == (TOKENS, 4)
    assert score.pass_at[1].value == pytest.approx(0.5)
    # values 0, 1/4 … 1: sample variance 5/32
    assert score.pass_at[1].se == pytest.approx((5 / 32 / 5) ** 0.5)
    assert score.distinct.value == pytest.approx(14 / 20)
    assert [sample["resps"][0] for sample in log] == [*answers.values()]
    assert log[1]["exact_match"] == [0, 0, 0, 1]
    assert json.loads(json.dumps(log)) == log


@rejects("pass_at_k.by_figure: «n→max(settings.k)»,", "the largest k for the number of answers")
@rejects(
    "pass_at_k.distinct: «equal(answer, other)→answer == other»", "equal numbers counted twice"
)
def test_answers_of_gsm8k_are_its_numbers_and_equal_where_its_metric_says_so(monkeypatch):
    from datasets import Dataset, DatasetDict

    doc = {"question": "How many?", "answer": "a sum\n#### 1200"}
    data = DatasetDict({name: Dataset.from_list([doc] * 2) for name in ("train", "test")})
    monkeypatch.setattr(benchmark_data, "load", lambda *_: data)
    texts = itertools.cycle(
        ["#### 1200", "so #### 1,200 it is", "#### 1200.", "none", "no number", "#### 7"]
    )
    gsm8k = entry("gsm8k", "exact_match,strict-match", shots=0)
    model = Scripted(answer=lambda prompt: next(texts))
    _, by_figure, _ = run_sampled(model, "x", gsm8k, suite(samples=6, k=(1, 4)), BOTH)
    assert by_figure["pass_at_1"] == [3 / 6] * 2
    assert by_figure["pass_at_4"] == [1] * 2
    assert by_figure["distinct"] == [3 / 6] * 2  # 1200; no number; 7
    assert model.settings[0]["temperature"] == 0.8 and model.settings[0]["do_sample"]


@pytest.mark.parametrize(
    ("figure", "distinct"), [("same", 2 / 4), ("length", 2 / 4), ("alike", 2 / 4)]
)
def test_answers_may_be_scored_by_a_function_of_the_task(own_tasks, given, figure, distinct):
    """Of one figure, or of several; two answers are one where the figure takes them for the same.
    Each answer is to the same prompt.
    """
    own_tasks(
        "def alike(references, predictions):\n"
        "    return float(references[0].lower() == predictions[0].lower())\n"
        "def two(references, predictions):\n    return {'same': alike(references, predictions),\n"
        "        'length': float(len(references[0]) == len(predictions[0]))}\n",
        t="task: t\ndataset_path: json\ntest_split: test\ntraining_split: train\nnum_fewshot: 1\n"
        "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: a\nmetric_list:\n"
        "- {metric: !function utils.alike, aggregation: mean, higher_is_better: true}\n"
        "- {metric: !function utils.two, aggregation: mean, higher_is_better: true}\n",
    )
    given(train=[{"q": f"{i}", "a": "b"} for i in range(9)], test=[{"q": "Why?", "a": "Yes"}])
    said = itertools.cycle(["yes", "YES", "no", "No"])
    model = Scripted(answer=lambda _: next(said))
    spec = entry("t", f"{figure},none")
    _, by_figure, log = run_sampled(model, "x", spec, suite(), TOKENS)
    assert by_figure == {"pass_at_1": [2 / 4], "pass_at_2": [pytest.approx(5 / 6)],
                         "distinct": [distinct]}  # fmt: skip
    assert log[0]["same"] == log[0]["length"] == [1, 1, 0, 0] and len({*model.prompts}) == 1


@rejects(
    "pass_at_k.by_figure: map(«program_text→str»", "programs that differ in comments or layout"
)
def test_programs_run_in_the_sandbox_each_by_itself(sandbox):
    docs = documents("functions")[:2]
    answers = {
        docs[0]["prompt"]: ["    good = 1", "    bad", "    good = 1  \n\n    # why", "    bad"],
        docs[1]["prompt"]: ["    bad", "    bad", "    bad", "    worse"],
    }
    code = suite(limit=2, run_code=True)
    _, by_figure, log = run_sampled(Reciting(answers), "x", FUNCTIONS, code, TOKENS)
    assert by_figure["pass_at_1"] == [2 / 4, 0]
    assert by_figure["pass_at_2"] == pytest.approx([5 / 6, 0])
    assert by_figure["distinct"] == [2 / 4, 2 / 4]
    assert log[0]["filtered_resps"] == [[["passed"], ["time"]] * 2]
    expected = [prompt + text for prompt, texts in answers.items() for text in texts]
    assert sorted(program for program, _ in sandbox.ran) == sorted(expected)


def test_what_makes_programs_distinct():
    same = ("return 1  \n\n\t\n", "return 1"), ("  # how\n  return 1", "  return 1")
    different = ("  return 1", "return 1"), ("return 1  # how", "return 1")
    assert all(program_text(one) == program_text(other) for one, other in same)
    assert not any(program_text(one) == program_text(other) for one, other in different)


@arrives("pass_at_k", "temperatures")
def test_a_baseline_has_its_temperature_alone():
    asked = PassAtK(2, [1], [0.2, 0.8])
    cold = Sampling(Varied.tokens, 0.2)
    assert samplings(asked, latent=False) == [cold, TOKENS]
    assert samplings(asked, latent=True) == [
        Z, cold, TOKENS, Sampling(Varied.z_and_tokens, 0.2), BOTH
    ]  # fmt: skip
    assert [s.name for s in samplings(asked, latent=True)] == [
        "z", "tokens_0.2", "tokens_0.8", "z_and_tokens_0.2", "z_and_tokens_0.8"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sampling", "decoding"),
    [(Z, (False, 0.0, True)), (TOKENS, (True, 0.8, False)), (BOTH, (True, 0.8, True))],
)
def test_the_way_of_drawing_decides_all_of_decoding_but_when_a_text_ends(sampling, decoding):
    model = Scripted()
    run_sampled(model, "x", IDIOMS, suite(limit=1), sampling)
    expected = dict(zip(("do_sample", "temperature", "fresh_z"), decoding, strict=True))
    assert model.settings == [expected | {"until": ["\n"], "max_gen_toks": 16}] * 4


def drawn(lm, sampling, samples=6):
    _, _, log = run_sampled(lm, "x", IDIOMS, suite(samples=samples, limit=4), sampling)
    return [sample["resps"][0] for sample in log]


def certain(lm):
    """A model whose tokens follow from text and z: sampled ones are the likeliest, too."""
    with torch.no_grad():
        if lm.model.latent is not None:
            lm.model.latent.post_sampler.mul_(20)
        lm.model.readout.weight.mul_(1e4)
    return lm


def test_where_tokens_follow_from_z_only_a_fresh_z_brings_other_answers(make_lm):
    lm = certain(make_lm(tied=False))
    greedy = drawn(lm, Z)
    assert drawn(lm, BOTH) == greedy
    assert all(len({*texts}) > 1 for texts in greedy)
    assert drawn(lm, TOKENS) == [[texts[0]] * 6 for texts in greedy]
    baseline = certain(make_lm(latent_bits=0, tied=False))
    assert all(len({*texts}) == 1 for texts in drawn(baseline, TOKENS))


@rejects("batching.token_generator: .«repeat→z»)", "the same tokens for all answers of one z")
def test_where_z_means_nothing_only_tokens_bring_other_answers(make_lm):
    lm = make_lm()
    with torch.no_grad():
        lm.model.latent.post_sampler.zero_()
    assert all(len({*texts}) == 1 for texts in drawn(lm, Z))
    assert drawn(lm, TOKENS) == drawn(lm, BOTH)
    assert all(len({*texts}) == 6 for texts in drawn(lm, TOKENS))


def test_the_first_answer_of_z_alone_is_the_benchmarks_own(make_lm):
    lm = make_lm()
    plain = run_task(lm, "x", IDIOMS, settings(limit=4))
    _, by_figure, log = run_sampled(lm, "x", IDIOMS, suite(samples=1, k=[1], limit=4), Z)
    assert [sample["resps"][0] for sample in log] == [s["resps"][0] for s in plain.log]
    assert [texts[:1] for texts in drawn(lm, Z)] == [s["resps"][0] for s in plain.log]
    assert by_figure == {"pass_at_1": plain.scores, "distinct": [1] * 4}


@pytest.mark.parametrize("sampling", [Z, TOKENS, BOTH], ids=lambda s: s.name)
def test_answers_depend_on_the_seed_alone(make_lm, sampling):
    lm = make_lm()
    texts = drawn(lm, sampling)
    assert drawn(make_lm(lm.model, batch_tokens=1), sampling) == texts
    assert [each[:3] for each in texts] == drawn(lm, sampling, samples=3)
    assert drawn(make_lm(lm.model, seed=1), sampling) != texts


def test_what_cannot_be_answered_several_times_is_refused_before_anything_is_scored():
    for task, key in (("ft_snippets", "acc,none"), ("ft_passages", "bits_per_byte,none")):
        model, words = Scripted(), r"^suite\.pass_at_k\.tasks: x "
        with pytest.raises(UserError, match=words):
            run_sampled(model, "x", entry(task, key), suite(), TOKENS)
        assert not model.pairs
        with pytest.raises(UserError, match=words):
            check_file("x", task, key, several=True)
    for task in ("ft_functions", "ft_mbpp", "ft_human_eval_plus"):
        check_file("x", task, "pass@1,sandbox", several=True)
    for task, chosen in (("gsm8k", "strict-match"), ("nq_open", "remove_whitespace")):
        check_file("x", task, f"exact_match,{chosen}", several=True)
    with pytest.raises(UserError, match="x is several tasks"):
        check_file("x", "ft_mmlu", "acc_norm,none", several=True)


@pytest.mark.parametrize("kinds", [[ConfigurableTask] * 2, [None]])
def test_several_tasks_or_one_that_is_a_program_are_refused(monkeypatch, kinds):
    tasks = {i: Mock(kind, OUTPUT_TYPE="generate_until") for i, kind in enumerate(kinds)}
    monkeypatch.setattr(pass_at_k, "prepare", lambda *_: {"tasks": tasks})
    with pytest.raises(UserError, match="x is not one task with stored data"):
        run_sampled(Scripted(), "x", IDIOMS, suite(), TOKENS)


def test_one_document_has_no_error():
    assert over_documents([0.25], {}) == TaskScore(0.25, None)
    assert over_documents([0.0, 1.0], {}) == TaskScore(0.5, pytest.approx(0.5))


def test_a_score_between_right_and_wrong_is_refused(monkeypatch):
    monkeypatch.setattr(ConfigurableTask, "process_results", lambda *_: {"exact_match": 0.5})
    with pytest.raises(UserError, match="exact_match is not 0 or 1"):
        run_sampled(Scripted(), "x", IDIOMS, suite(limit=2), TOKENS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"samples": -1}, "samples: -1 .* 0 and at most 10,000"),
        ({"k": [1, 5]}, r"k\.1: 5 .*1 … 4"),
        ({"k": [0, 4]}, r"k\.0: 0 "),
        ({"k": [1, 1]}, r"k: \[1, 1\] .*twice"),
        ({"k": []}, "k: empty"),
        ({"temperatures": [0.0]}, r"temperatures\.0: 0\.0 "),
        ({"temperatures": []}, "temperatures: empty"),
        ({"tasks": []}, "tasks: empty"),
        ({"tasks": ["idiom"]}, r"tasks\.0: 'idiom' is not one of idioms"),
    ],
)
def test_settings_that_cannot_be_are_named(changes, words):
    """Those at their limits are taken."""
    fits = PassAtK(4, [1, 4], [0.8], ["idioms"])
    asked = replace(fits, **changes)
    whole = settings(name="mini", tasks={"idioms": IDIOMS}, pass_at_k=asked)
    check_values("suite", replace(whole, pass_at_k=fits))
    with pytest.raises(ValueError, match=rf"^suite\.pass_at_k\.{words}"):
        check_values("suite", whole)
    if changes != {"samples": -1}:
        check_values("suite", replace(whole, pass_at_k=replace(asked, samples=0)))  # it is off
