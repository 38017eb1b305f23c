"""Documents of public files with the hub's fields, and those that do not have their form."""

import json
import tarfile
from io import BytesIO

import pytest
from datasets import Dataset
from lm_eval.tasks.hellaswag.utils import process_docs
from lm_eval.tasks.winogrande.preprocess_winogrande import doc_to_choice

from pipelines.common.errors import UserError
from pipelines.fetch import forms, published, readers
from tests.support.benchmark_files import (
    BY_LINE,
    MBPP,
    lines_of,
    race,
    race_file,
    race_high,
)
from tests.support.mutants import rejects


def split_of(name):
    """The rows of a file by its own reader."""
    content = "".join(f"{line}\n" for line in lines_of(name))
    _, _, dataset, split = BY_LINE[name]
    (read,) = (read for file, read in published.conversion(*dataset).sources if file.name == name)
    return read(content.encode(), "file")[split]


@rejects(
    "first, second = doc.choices",
    "second, first = doc.choices",
    "the two choices of PIQA the other way round",
)
@rejects("(doc.gold + 1)", "(doc.gold)", "the gold of WinoGrande counted from zero")
@rejects(
    'return {"question": between(doc.query, "Question: "), **lettered',
    'return {"question": doc.query, **lettered',
    "the prefix left in questions of ARC",
)
@rejects('question, "", "?"', 'question, ""', "the question mark of BoolQ there twice")
@rejects(
    "choices = list(dict.fromkeys(doc.choices))",
    "choices = doc.choices",
    "the copy that fills a question of ARC to four choices left in",
)
@pytest.mark.parametrize("name", [name for name in BY_LINE if "hellaswag" not in name])
def test_documents_have_the_hubs_fields(name):
    row, number, *_ = BY_LINE[name]
    rows = split_of(name)
    expected = [row(i)[1] for i in range(number)]
    assert rows == [{key: doc[key] for key in rows[0]} for doc in expected]
    lost = {"commonsense_qa": {"id", "question_concept"}}.get(row.__name__, set())
    assert expected[0].keys() - rows[0].keys() == lost


@rejects("<ctx_b>[a-z]", "<ctx_b>[A-Z]", "an unfinished sentence of HellaSwag without its capital")
def test_hellaswag_is_what_the_harness_makes_of_the_hubs():
    row, number, *_ = BY_LINE["hellaswag_val_full.txt.bz2"]
    converted = process_docs(Dataset.from_list(split_of("hellaswag_val_full.txt.bz2")))
    expected = process_docs(Dataset.from_list([row(i)[1] for i in range(number)]))
    for key in ("query", "choices", "gold"):
        assert converted[key] == expected[key]
    assert converted["query"][0].endswith("(He is out.) The man")


@rejects(
    '(places[row["example_id"]], row["question_id"])',
    'places[row["example_id"]]',
    "the questions of an article of RACE in the file's order",
)
def test_race_by_question_and_by_article():
    text = "\n".join(map(json.dumps, race_file()))
    middle = readers.race_part(text, "file", "middle")
    assert [row["question_id"] for row in middle] == [0, 1, 2, 3]
    expected = [race(i, "middle") for i in range(4)]
    assert [{key: row[key] for key in expected[0]} for row in middle] == expected
    assert readers.articles(readers.race_part(text, "file", "high")) == race_high()


@rejects(
    '"test": (11, 510)',
    '"test": (11, 601)',
    "MBPP's first document for training among those that are scored",
)
def test_mbpp_has_the_hubs_splits():
    splits = readers.mbpp_splits("\n".join(map(json.dumps, MBPP)), "file")
    ends = {"prompt": MBPP[:4], "test": MBPP[4:6], "validation": MBPP[6:7], "train": MBPP[7:]}
    assert splits == ends


def test_answers_sums_and_programs_have_the_hubs_fields():
    names = ["Me", "I"]
    expected = {"question": "Who?", "answer": {"value": "I", "aliases": names}}
    assert forms.triviaqa(forms.Trivia("Question: Who?\nAnswer:", "I", names)) == expected
    same = {"question": "1 + 1?", "answer": "It is <<1+1=2>>.\n#### 2"}
    assert forms.gsm8k(forms.Sum(**same)) == same
    same = {"task_id": "HumanEval/0", "prompt": "def f(x):\n", "entry_point": "f"}
    same |= {"canonical_solution": "    return x\n", "test": "def check(candidate):\n    pass\n"}
    assert forms.human_eval(forms.HumanEval(**same)) == same


HEAD = "question,choice0,choice1,choice2,choice3,answer\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q,a,b,c,d,0\n", "line 1: the columns are not question, choice0"),
        (HEAD + "q,a,b,c,d,0\nq,a,b,c,1\n", "line 3: 5 cells, not 6"),
        (HEAD + '"q\nr",a,b,c,d,0\nq,a,b,c,d,A\n', "line 4: 'A' is no index"),
        (HEAD + "q,a,,c,d,0\n", "line 2: an empty choice"),
    ],
)
def test_a_broken_table_of_mmlu(text, message):
    row = {"question": "q", "subject": "law", "choices": list("abcd"), "answer": 2}
    whole = readers.mmlu({"x/dev/law_dev.csv": f"{HEAD}q,a,b,c,d,2\n"}, "file")
    assert whole == {"law": {"dev": [row]}}
    with pytest.raises(UserError, match=f"^file: dev/law_dev.csv: {message}"):
        readers.mmlu({"dev/law_dev.csv": text}, "file")


def test_mmlu_is_by_subject_and_counted_over_all(monkeypatch):
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for subject in ("law", "anatomy"):
            content = f"{HEAD}{subject}?,a,b,c,d,2\n".encode()
            info = tarfile.TarInfo(f"mmlu/test/{subject}_test.csv")
            info.size = len(content)
            archive.addfile(info, BytesIO(content))
    row = {"question": "law?", "subject": "law", "choices": list("abcd"), "answer": 2}
    monkeypatch.setattr(published, "MMLU", {"test": 2})
    assert published.of_mmlu("law", buffer.getvalue(), "file") == {"test": [row]}
    with pytest.raises(UserError, match="file: no subject alchemy"):
        published.of_mmlu("alchemy", buffer.getvalue(), "file")
    monkeypatch.setattr(published, "MMLU", {"test": 3})
    with pytest.raises(UserError, match="test: 2 documents, where the hub has 3"):
        published.of_mmlu("law", buffer.getvalue(), "another")


def test_a_broken_document_of_hellaswag():
    right = ["Running: A man ties. he", "1", "a", "b", "c", "d"]
    for broken, message in (
        (["no colon", *right[1:]], "no activity"),
        ([right[0], "4", *right[2:]], "'4' is no index"),
        (right[:-1], "5 lines, not 6"),
    ):
        text = "".join(f"{line}\n" for line in (*right, *broken))
        with pytest.raises(UserError, match=rf"^file: document 2 \(lines 7 to 12\): {message}"):
            readers.six_lines(text, "file")


def choice(**changes):
    plain = {"query": "Question: q?", "choices": ["a", "b", "c", "d"], "gold": 1}
    return forms.Choice(**(plain | changes))


def schema(first, second):
    return forms.Schema(context_options=[first, second], continuation="ran.", gold=0)


FIVE = "\nA. a\nB. b\nC. c\nD. d\nE. e"


@rejects("0 <= gold < len", "gold < len", "a gold index below zero let through")
@pytest.mark.parametrize(
    ("row", "doc", "message"),
    [
        (forms.arc, choice(query="q?"), "does not begin with 'Question: '"),
        (forms.arc, choice(gold=4), "gold 4, but 4 choices"),
        (forms.arc, choice(gold=-1), "gold -1, but 4 choices"),
        (forms.arc, choice(choices=["a", "b", "b", "c"]), "the right choice is there twice"),
        (forms.openbookqa, choice(choices=["a", "b", "c", "c"]), "a choice is there twice"),
        (forms.boolq, choice(choices=["yes", "no"]), "not no and yes"),
        (forms.winogrande, schema("so Ann", "so Ann"), "are the same"),
        (forms.winogrande, schema("so _ Ann", "so _ Eve"), "an underscore"),
        (forms.triviaqa, forms.Trivia("Question: q\nAnswer:", "a", ["b"]), "among its aliases"),
        (forms.commonsense_qa, forms.Options("What?", FIVE, "B. a"), "is none of the choices"),
        (forms.nq_open, forms.Open("q", []), "no answer"),
        (forms.gsm8k, forms.Sum("q", "5"), "'#### '"),
        (forms.human_eval, forms.HumanEval("0", "def f():", "", "g", ""), "does not define g"),
    ],
)
def test_a_document_without_its_form(row, doc, message):
    with pytest.raises(ValueError, match=message):
        row(doc)


def test_what_both_options_of_winogrande_begin_with_is_of_the_sentence():
    """The harness asks the same either way."""
    doc = forms.winogrande(schema("We saw that the cup", "We saw that the jug"))
    assert doc["sentence"] == "We saw that the _ ran."
    assert doc_to_choice(doc) == ["We saw that the cup", "We saw that the jug"]


@rejects(
    'choices[-1] = choices[-1].removesuffix("?")',
    "pass",
    "a question mark that the publisher moved left in a choice",
)
def test_choices_that_are_split_elsewhere_are_put_together():
    """As the publisher of CommonsenseQA does with a question that has no question mark."""
    whole = {"question": "Name it", "choices": {"text": list("abcde"), "label": list("ABCDE")}}
    for cut in (len("\nA. a"), 0):
        for answer in ("A. a", "E. e"):
            doc = forms.Options(f"Name it{FIVE[:cut]}", f"{FIVE[cut:]}?", answer)
            assert forms.commonsense_qa(doc) == {**whole, "answerKey": answer[0]}
