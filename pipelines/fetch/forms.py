"""The forms in which repositories publish documents of benchmarks, and the hub's fields from them.

Each function takes a document and raises ValueError if it does not have its form: a prefix left in
a prompt, or a gold index that is off by one, would give a score that looks like any other.
"""

import re
from itertools import takewhile
from string import ascii_uppercase
from typing import Any

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

Row = dict[str, Any]

EXACT = ConfigDict(strict=True, extra="forbid")


@dataclass(config=EXACT)
class Choice:
    query: str
    choices: list[str]
    gold: int


@dataclass(config=EXACT)
class Schema:
    context_options: list[str]
    continuation: str
    gold: int


@dataclass(config=EXACT)
class Trivia:
    context: str
    answer: str
    aliases: list[str]


@dataclass(config=EXACT)
class Options:
    question: str
    options: str
    answer: str


@dataclass(config=EXACT)
class Open:
    question: str
    answer: list[str]


@dataclass(config=EXACT)
class Sum:
    question: str
    answer: str


@dataclass(config=ConfigDict(strict=True))  # a sample of RACE that has labels of its own besides
class Reading:
    example_id: str
    question_id: int
    article: str
    question: str
    options: list[str]
    answer: str


@dataclass(config=EXACT)
class HumanEval:
    task_id: str
    prompt: str
    canonical_solution: str
    entry_point: str
    test: str


@dataclass(config=EXACT)
class Mbpp:
    task_id: int
    text: str
    code: str
    test_list: list[str]
    test_setup_code: str
    challenge_test_list: list[str]


def expect(condition: bool, otherwise: str) -> None:
    """Raises ValueError."""
    if not condition:
        raise ValueError(otherwise)


def between(text: str, prefix: str, suffix: str = "") -> str:
    """Raises ValueError unless ``text`` begins and ends with these."""
    expect(text.startswith(prefix), f"does not begin with {prefix!r}: {text[:30]!r}")
    expect(text.endswith(suffix), f"does not end with {suffix!r}: {text[-30:]!r}")
    inner = text[len(prefix) : len(text) - len(suffix)]
    expect(inner.strip() != "", f"nothing after {prefix!r}")
    return inner


def right(choices: list[str], gold: int, counts: tuple[int, ...]) -> str:
    """The choice at ``gold``; raises ValueError."""
    expect(len(choices) in counts, f"{len(choices)} choices")
    expect(all(choices), "an empty choice")
    expect(0 <= gold < len(choices), f"gold {gold}, but {len(choices)} choices")
    return choices[gold]


def lettered(choices: list[str], answer: str) -> Row:
    """As the hub has choices with labels, the right one by its letter."""
    letters = list(ascii_uppercase[: len(choices)])
    key = letters[choices.index(answer)]
    return {"choices": {"text": choices, "label": letters}, "answerKey": key}


def arc(doc: Choice) -> Row:
    """A question of three choices was filled to four by a copy of a wrong one."""
    answer = right(doc.choices, doc.gold, (4,))
    expect(doc.choices.count(answer) == 1, "the right choice is there twice")
    choices = list(dict.fromkeys(doc.choices))
    return {"question": between(doc.query, "Question: "), **lettered(choices, answer)}


def openbookqa(doc: Choice) -> Row:
    answer = right(doc.choices, doc.gold, (4,))
    expect(len(set(doc.choices)) == 4, "a choice is there twice")
    return {"question_stem": between(doc.query, ""), **lettered(doc.choices, answer)}


def piqa(doc: Choice) -> Row:
    right(doc.choices, doc.gold, (2,))
    first, second = doc.choices
    goal = between(doc.query, "Question: ", "\n")
    return {"goal": goal, "sol1": first, "sol2": second, "label": doc.gold}


def boolq(doc: Choice) -> Row:
    expect(doc.choices == ["no", "yes"], f"choices {doc.choices}, not no and yes")
    right(doc.choices, doc.gold, (2,))
    passage, found, question = doc.query.rpartition("\nQuestion: ")
    expect(bool(found), "no question behind the passage")
    return {
        "passage": between(passage, "Passage: "),
        "question": between(question, "", "?"),  # the harness's prompt has one of its own
        "label": doc.gold,
    }


def winogrande(doc: Schema) -> Row:
    """Two beginnings that differ in their last words, the options."""
    right(doc.context_options, doc.gold, (2,))
    beginnings = [text.split(" ") for text in doc.context_options]
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(*beginnings, strict=False))))
    first, second = (" ".join(words[shared:]) for words in beginnings)
    expect(bool(first and second), "the two beginnings are the same, or one is within the other")
    sentence = " ".join([*beginnings[0][:shared], "_", between(doc.continuation, "")])
    expect(sentence.count("_") == 1, "an underscore in the text")
    return {"sentence": sentence, "option1": first, "option2": second, "answer": str(doc.gold + 1)}


def triviaqa(doc: Trivia) -> Row:
    expect(doc.answer in doc.aliases, f"{doc.answer!r} is not among its aliases")
    question = between(doc.context, "Question: ", "\nAnswer:")
    return {"question": question, "answer": {"value": doc.answer, "aliases": doc.aliases}}


def commonsense_qa(doc: Options) -> Row:
    """The publisher split question and choices at the last question mark, or added one."""
    text = doc.question + doc.options
    match = re.fullmatch(
        r"(.+)" + "".join(rf"\n{letter}\. ([^\n]+)" for letter in "ABCDE"), text, re.DOTALL
    )
    expect(match is not None, "not a question and five choices, A. to E., a line each")
    assert match is not None
    question, *choices = match.groups()
    if doc.options.endswith("?"):
        choices[-1] = choices[-1].removesuffix("?")
    letter, _, answer = doc.answer.partition(". ")
    known = dict(zip("ABCDE", choices, strict=True))
    expect(known.get(letter) == answer, f"the answer {doc.answer!r} is none of the choices")
    labelled = {"choices": {"text": choices, "label": list("ABCDE")}, "answerKey": letter}
    return {"question": between(question, ""), **labelled}


def nq_open(doc: Open) -> Row:
    expect(bool(doc.answer) and all(doc.answer), "no answer")
    return {"question": between(doc.question, ""), "answer": doc.answer}


def gsm8k(doc: Sum) -> Row:
    expect("\n#### " in doc.answer, "no line of the answer begins with '#### '")
    return {"question": between(doc.question, ""), "answer": doc.answer}


def human_eval(doc: HumanEval) -> Row:
    expect(f"def {doc.entry_point}(" in doc.prompt, f"the prompt does not define {doc.entry_point}")
    expect("def check(" in doc.test, "the tests define no check")
    return vars(doc)


def race(doc: Reading) -> Row:
    expect(doc.answer in tuple("ABCD"), f"answer {doc.answer!r}, not A, B, C or D")
    right(doc.options, "ABCD".index(doc.answer), (4,))
    expect(doc.article != "", "no article")
    return vars(doc)


def mbpp(doc: Mbpp) -> Row:
    expect(bool(doc.test_list), "no tests")
    return vars(doc)


# the beginning of a sentence that the endings go on with
FRAGMENT = re.compile(r"(?P<ctx_a>.*[.!?]\S?) (?P<ctx_b>[a-z][^.!?]*)")


def hellaswag(lines: list[str]) -> Row:
    """Activity and context, the index of the right ending, four endings.

    The harness begins ctx_b, the beginning of an unfinished sentence, with a capital; in the file
    it stands behind ctx_a with a small letter.
    """
    expect(len(lines) == 6, f"{len(lines)} lines, not 6")
    head, label, *endings = lines
    expect(label in ("0", "1", "2", "3"), f"{label[:30]!r} is no index of an ending")
    activity, _, context = head.partition(": ")
    expect(bool(activity and context), "no activity and context with a colon between them")
    expect(all(endings), "an empty ending")
    match = FRAGMENT.fullmatch(context)
    parts = match.groupdict() if match else {"ctx_a": context, "ctx_b": ""}
    return {
        "activity_label": activity,
        **parts,
        "ctx": context,
        "endings": endings,
        "label": label,
    }


def mmlu(cells: list[str], subject: str) -> Row:
    expect(len(cells) == 6, f"{len(cells)} cells, not 6")
    question, *choices, answer = cells
    expect(answer in ("0", "1", "2", "3"), f"{answer[:30]!r} is no index of a choice")
    right(choices, int(answer), (4,))
    return {
        "question": between(question, ""),
        "subject": subject,
        "choices": choices,
        "answer": int(answer),
    }
