"""Tasks of the harness's own collection: lm_eval with an exported folder, and we, give the same
numbers. Documents are made up, in the fields of each task's data.
"""

import random

import datasets
import pytest
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM

from pipelines.export import hugging_face
from pipelines.suite import benchmark_data, task_index, tasks
from tests.support.benchmark_models import adapter, entry, settings
from tests.support.gguf_files import shards_of

FOLDERS = [
    *("anli", "arc", "asdiv", "blimp", "commonsense_qa", "drop", "glue", "gsm8k", "headqa"),
    *("hellaswag", "lambada", "logiqa", "mathqa", "mc_taco", "medmcqa", "mmlu/default", "nq_open"),
    *("openbookqa", "piqa", "pubmedqa", "race", "sciq", "storycloze", "super_glue", "swag"),
    *("toxigen", "triviaqa", "truthfulqa", "unscramble", "webqs", "wikitext", "winogrande"),
    *("wsc273", "xcopa"),
]
SPLITS = ["train", "validation", "test", "dev", "train_r1", "dev_r1", "test_r1"]
SPLITS += ["validation_matched"]
ROLLING = ["wikitext"]
WITHOUT_SHOTS = ["webqs", "toxigen"]  # the harness cannot show a label of theirs in a prompt
N = 6  # documents of a task
LETTERS = "ABCDE"
WORDS = [
    *("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "Question", "answer"),
    *("seven", "larger", "number", "times", "worst"),
]
rng = random.Random(0)


def text(n=3):
    return " ".join(rng.sample(WORDS, n))


def texts(n):
    """No two the same."""
    return [f"{word} {text(1)}" for word in rng.sample(WORDS, n)]


def below(n):
    return rng.randrange(n)


def options(n, **answer):
    return {"choices": {"text": texts(n), "label": [*LETTERS[:n]]}} | answer


def pair(**label):
    """The fields of two sentences, by all their names."""
    names = ("premise", "hypothesis", "sentence1", "sentence2", "sentence", "question")
    return {name: text() for name in names} | label


def cause(**more):
    ends = dict(zip(("choice1", "choice2"), texts(2), strict=True))
    return {"premise": f"{text()}.", "question": rng.choice(["cause", "effect"])} | ends | more


def numbered(name, n, start=1, **more):
    """Fields name1, name2 …"""
    return {f"{name}{i}": one for i, one in enumerate(texts(n), start)} | more


def truthful():
    targets = {"choices": texts(4), "labels": [1, 0, 0, 1]}
    return {"question": text(), "mc1_targets": targets, "mc2_targets": targets}


def race():
    problems = [
        {"question": end, "options": texts(4), "answer": rng.choice("ABCD")}
        for end in ("Who?", "It is  _  .", "Why?")
    ]
    return {"article": text(6), "problems": repr(problems)}


def drop():
    number = {"number": str(below(9)), "date": dict(day="", month="", year=""), "spans": []}
    others = {key: [value] for key, value in number.items()}
    fields = {"query_id": text(1), "passage": text(6), "question": text()}
    return fields | {"answer": number, "validated_answers": others}


def wsc():
    words = text(8).split()
    place = len(" ".join(words[:4])) + 1
    fields = {"text": " ".join(words), "pronoun": words[4], "pronoun_loc": place}
    return fields | {"options": texts(2), "label": below(2), "quote": "", "quote_loc": 0}


TASKS = {
    "piqa": lambda: {"goal": text(), **numbered("sol", 2), "label": below(2)},
    "hellaswag": lambda: {"activity_label": text(1), "ctx_a": text(), "ctx_b": text(2),
                          "endings": texts(4), "label": str(below(4))},
    "openbookqa": lambda: {"question_stem": text(), **options(4, answerKey=rng.choice("ABCD"))},
    "arc_easy": lambda: {"question": text(), **options(4, answerKey=rng.choice("ABCD"))},
    "arc_challenge": lambda: {"question": text(), **options(3, answerKey=rng.choice("ABC"))},
    "winogrande": lambda: {"sentence": f"{text()} _ {text()}", **numbered("option", 2),
                           "answer": rng.choice("12")},
    "boolq": lambda: {"passage": text(6), "question": text(), "label": below(2)},
    "commonsense_qa": lambda: {"question": text(), **options(5, answerKey=rng.choice(LETTERS))},
    "race": race,
    "mmlu_anatomy": lambda: {"question": text(), "choices": texts(4), "answer": below(4)},
    "sciq": lambda: numbered("distractor", 3, support=text(), question=text(),
                             correct_answer="times"),
    "copa": lambda: cause(label=below(2)),
    "xcopa_et": lambda: cause(label=below(2)),
    "cb": lambda: pair(label=below(3)),
    "wic": lambda: pair(label=below(2), start1=0, end1=3),
    "sglue_rte": lambda: pair(label=below(2)),
    "cola": lambda: pair(label=below(2)),
    "mrpc": lambda: pair(label=below(2)),
    "sst2": lambda: pair(label=below(2)),
    "mnli": lambda: pair(label=below(3)),
    "qnli": lambda: pair(label=below(2)),
    "anli_r1": lambda: pair(label=below(3)),
    "mc_taco": lambda: pair(label=below(2), answer=text(1)),
    "logiqa": lambda: {"context": text(), "question": text(), "options": texts(4),
                       "label": rng.choice("abcd")},
    "swag": lambda: numbered("ending", 4, 0, startphrase=text(), label=below(4)),
    "truthfulqa_mc1": truthful,
    "truthfulqa_mc2": truthful,
    "mathqa": lambda: {"Problem": text(), "correct": rng.choice("abcde"), "options": " , ".join(
        f"{letter} ) {one}" for letter, one in zip("abcde", texts(5), strict=True))},
    "pubmedqa": lambda: {"CONTEXTS": texts(2), "QUESTION": text(),
                         "final_decision": rng.choice(["yes", "no", "maybe"])},
    "headqa_en": lambda: {"qtext": text(), "ra": 1 + below(4),
                          "answers": [{"aid": i, "atext": one} for i, one in enumerate(texts(4))]},
    "storycloze_2018": lambda: numbered("input_sentence_", 4, answer_right_ending=1 + below(2),
                                        **numbered("sentence_quiz", 2)),
    "medmcqa": lambda: {"question": text(), "cop": below(4),
                        **{f"op{x}": one for x, one in zip("abcd", texts(4), strict=True)}},
    "toxigen": lambda: {"text": text(), "toxicity_ai": 1.0 * below(6),
                        "toxicity_human": 1.0 * below(6)},
    "webqs": lambda: {"question": text(), "answers": texts(2)},
    "wsc273": wsc,
    "blimp_adjunct_island": lambda: {"sentence_good": text(3), "sentence_bad": text(4)},
    "lambada_openai": lambda: {"text": text(6)},
    "asdiv": lambda: {"body": text(), "question": text(), "answer": f"{below(99)} (dogs)"},
    "gsm8k": lambda: {"question": text(), "answer": f"{text()}\n#### {below(9)}"},
    "nq_open": lambda: {"question": text(), "answer": texts(1 + below(2))},
    "triviaqa": lambda: {"question": text(), "answer": {"aliases": texts(2)}},
    "anagrams1": lambda: {"context": text(), "completion": text(1)},
    "drop": drop,
    "wikitext": lambda: {"page": f" = {text()} = \n {text(8)} . \n"},
}  # fmt: skip


@pytest.fixture
def collection(monkeypatch):
    """The names of the harness's tasks, with documents for them in place of any hub."""
    monkeypatch.setattr(task_index, "FOLDERS", FOLDERS)
    task_index.manager.cache_clear()
    index = task_index.manager(False).task_index
    made = {}
    for name, make in TASKS.items():
        data = datasets.Dataset.from_list([make() for _ in range(N)])
        config = index[name].cfg
        key = config["dataset_path"], config.get("dataset_name")
        made.setdefault(key, datasets.DatasetDict(dict.fromkeys(SPLITS, data)))
    load = lambda path, name=None, *_, **__: made[path, name]  # noqa: E731
    monkeypatch.setattr(benchmark_data, "load", load)
    monkeypatch.setattr(datasets, "load_dataset", load)
    yield index
    task_index.manager.cache_clear()


@pytest.mark.slow
def test_numbers_of_thirty_tasks_are_those_of_lm_eval_alone(
    collection, make_model, tokenizer, tmp_path, monkeypatch
):
    shape = dict(d_model=32, ffn_width=48, context=512, vocab_size=tokenizer.vocab_size)
    ours = adapter(make_model(latent_bits=0, **shape).eval(), tokenizer)
    shards = shards_of(tokenizer)
    config = hugging_face.configuration(ours.model, shards)
    hugging_face.write(tmp_path, config, ours.model, shards, "# a model\n")
    monkeypatch.setenv("DISABLE_MULTIPROC", "1")
    theirs = {}
    for names, shots in (
        (WITHOUT_SHOTS, 0),
        (ROLLING, 0),
        ({*TASKS} - {*WITHOUT_SHOTS, *ROLLING}, 1),
    ):
        # it puts a token of its own before a text that it reads as a whole
        arguments = {"add_bos_token": False} if names is ROLLING else {}
        model = HFLM(str(tmp_path), batch_size=8, device="cpu", dtype="float32", **arguments)
        found = simple_evaluate(
            model, tasks=sorted(names), num_fewshot=shots, task_manager=task_index.manager(False),
            random_seed=0, numpy_random_seed=0, torch_random_seed=0, fewshot_random_seed=0,
            bootstrap_iters=20,
        )  # fmt: skip
        for name in names:
            theirs[name] = {key: found[key][name] for key in ("results", "samples", "n-shot")}
    assert len(theirs) == len(TASKS) >= 30

    run, runs = tasks.run, []

    def run_and_note(*arguments):
        runs.append(run(*arguments, bootstrap=20))
        return runs[-1]

    monkeypatch.setattr(tasks, "run", run_and_note)
    different, n_numbers = {}, 0
    for name, told in theirs.items():
        numbers = {key: value for key, value in told["results"].items() if "," in key}
        first = next(key for key in numbers if "_stderr" not in key)
        outcome = tasks.run_task(ours, name, entry(name, first, told["n-shot"]), settings())
        found = {key: runs[-1][0]["results"][name][key] for key in numbers}
        mine, other = ([told_number(each[key]) for key in numbers] for each in (found, numbers))
        samples = zip(runs[-1][0]["samples"][name], told["samples"], strict=True)
        if not (
            mine == pytest.approx(other, rel=1e-4, abs=1e-6)
            and outcome.result.value == found[first]
            and outcome.result.documents == told["results"]["sample_len"] == N
            and all(a["arguments"] == b["arguments"] for a, b in samples)
        ):
            different[name] = found, numbers
        n_numbers += len(numbers)
    assert different == {} and n_numbers > 100


def told_number(value):
    """A value of lm_eval, which has N/A for an error that it does not compute."""
    return -1.0 if value == "N/A" else value
