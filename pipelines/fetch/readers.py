"""Files of benchmarks as repositories publish them, read into documents with the hub's fields.

What is wrong with a document is a UserError that names the file and the document's number.
"""

import csv
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO, StringIO
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pipelines.common.errors import UserError
from pipelines.common.file_listing import one_line
from pipelines.fetch import forms
from pipelines.fetch.forms import Row

Splits = dict[str, list[Row]]


@contextmanager
def refusing(which: str) -> Iterator[None]:
    """What is wrong with a document as a UserError that says ``which`` it is."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UserError(f"{which}: {field + ': ' if field else ''}{first['msg']}") from None
    except (ValueError, csv.Error) as error:
        raise UserError(f"{which}: {one_line(error)}") from None


def json_lines(text: str, file: str, form: type[Any], row: Callable[[Any], Row]) -> list[Row]:
    """Raises UserError for the first line that is not a document of this form."""
    adapter = TypeAdapter(form)
    rows = []
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        with refusing(f"{file}: line {number}"):
            rows.append(row(adapter.validate_json(line)))
    return rows


MBPP_PARTS = {"prompt": (1, 10), "test": (11, 510), "validation": (511, 600), "train": (601, 974)}


def mbpp_splits(text: str, file: str) -> Splits:
    rows = json_lines(text, file, forms.Mbpp, forms.mbpp)
    return {
        split: [row for row in rows if first <= row["task_id"] <= last]
        for split, (first, last) in MBPP_PARTS.items()
    }


def race_part(text: str, file: str, part: str) -> list[Row]:
    """The questions of ``part``, middle or high, those of an article side by side."""
    rows = [
        row
        for row in json_lines(text, file, forms.Reading, forms.race)
        if row["example_id"].startswith(part)
    ]
    places: dict[str, int] = {}
    for row in rows:
        places.setdefault(row["example_id"], len(places))
    return sorted(rows, key=lambda row: (places[row["example_id"]], row["question_id"]))


def articles(rows: list[Row]) -> list[Row]:
    """A document an article, its questions as the text of a list, from a row a question."""
    problems: dict[str, list[Row]] = {}
    texts = {}
    for row in rows:
        texts[row["example_id"]] = row["article"]
        problem = {key: row[key] for key in ("question", "answer", "options")}
        problems.setdefault(row["example_id"], []).append(problem)
    return [{"article": texts[name], "problems": repr(each)} for name, each in problems.items()]


def six_lines(text: str, file: str) -> list[Row]:
    """HellaSwag, six lines a document."""
    lines = text.removesuffix("\n").split("\n")
    rows = []
    for start in range(0, len(lines), 6):
        number = f"document {start // 6 + 1} (lines {start + 1} to {start + 6})"
        with refusing(f"{file}: {number}"):
            rows.append(forms.hellaswag(lines[start : start + 6]))
    return rows


MMLU_HEAD = ["question", "choice0", "choice1", "choice2", "choice3", "answer"]


def mmlu(tables: Mapping[str, str], file: str) -> dict[str, Splits]:
    """By subject, from CSV files by their path: <part>/<subject>_<part>.csv."""
    subjects: dict[str, Splits] = {}
    for path, text in sorted(tables.items()):
        match = re.fullmatch(r"(?:.*/)?(\w+)/(\w+)_\1\.csv", path)
        if not match:
            raise UserError(f"{file}: {path} is not <part>/<subject>_<part>.csv")
        part, subject = match.groups()
        subjects.setdefault(subject, {})[part] = csv_rows(text, f"{file}: {path}", subject)
    return subjects


def csv_rows(text: str, file: str, subject: str) -> list[Row]:
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    rows: list[Row] = []
    while True:
        number = reader.line_num + 1
        with refusing(f"{file}: line {number}"):
            cells = next(reader, None)
            if number == 1:
                forms.expect(cells == MMLU_HEAD, f"the columns are not {', '.join(MMLU_HEAD)}")
            elif cells is None:
                return rows
            else:
                rows.append(forms.mmlu(cells, subject))


def tables(content: bytes, file: str) -> dict[str, str]:
    """The text of every file of a tar archive by its path; raises UserError."""
    try:
        with tarfile.open(fileobj=BytesIO(content), mode="r:") as archive:
            members = [member for member in archive if member.isfile()]
            opened = {member.name: archive.extractfile(member) for member in members}
            return {name: each.read().decode() for name, each in opened.items() if each}
    except (tarfile.TarError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: no archive of texts ({one_line(error)})") from None
