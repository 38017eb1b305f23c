"""What the result files of all stages share: dataclasses as JSON, results at a token budget, and
results that wait until their stage is done.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache, reduce
from hashlib import sha256
from math import nan
from operator import getitem
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.derived import Budget
from pipelines.config.load import REUSED, Frozen
from pipelines.host.errors import UserError
from pipelines.host.files import alone, dumps, replace_file

T = TypeVar("T")
adapter_of: Any = cache(TypeAdapter)  # making one takes longer than reading a file with it


def plain_data(value: Any) -> Any:
    """A value as plain data: dataclasses are mappings without fields that are None or []."""
    if is_dataclass(value):
        entries = {}
        for each in fields(value):
            entry = getattr(value, each.name)
            empty = each.default_factory is list and not entry
            if entry is not None and not empty:
                entries[each.name] = plain_data(entry)
        return entries
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain_data(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain_data(entry) for entry in value]
    return value


def write_json(path: Path, content: Any, indent: int | None = 2) -> None:
    """Write a dataclass, or plain data, as JSON with NaN as null; all of the file or nothing."""
    with replace_file(path) as file:
        file.write(dumps(plain_data(content), indent=indent).encode() + b"\n")


def parse_json(kind: type[T], content: bytes) -> T:
    """Read JSON as ``kind``, null as NaN where a number must be; raises ValidationError."""
    adapter: TypeAdapter[T] = adapter_of(kind)
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        # Null where a number must be is an error of its own: if there are no others, mend them all
        null = ("float_type", None)
        places = [e["loc"] for e in error.errors() if (e["type"], e["input"]) == null]
        if len(places) < error.error_count():
            raise
    value = json.loads(content)
    for *path, last in places:
        reduce(getitem, path, value)[last] = nan
    return adapter.validate_json(json.dumps(value))


def read_json(path: Path, kind: type[T], stage: str) -> T:
    """Read a file as ``kind``, null as NaN; raises UserError naming the ``stage`` that makes it."""
    again = f"`dvc repro {stage}@{path.parent.name}` makes it"
    try:
        return parse_json(kind, path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path} is missing: {again}") from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: {field}: {first['msg']}; {again}") from None


def flat_numbers(content: Any, separator: str = "/", prefix: str = "") -> dict[str, float]:
    """Every number of a dataclass by its path, {"a/b": 1.0}; lists and texts are left out."""
    figures: dict[str, float] = {}
    for key, value in plain_data(content).items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            figures |= flat_numbers(value, separator, f"{name}{separator}")
        elif isinstance(value, int | float):
            figures[name] = int(value) if isinstance(value, bool) else value
    return figures


@dataclass(frozen=True)
class BudgetResult:
    """Base of results of a run's model at one of its token budgets."""

    tokens: int  # trained on by then
    listed: int  # as configured
    annealed: bool

    @classmethod
    def of(cls, spec: RunSpec, budget: Budget, **results: Any) -> Self:
        tokens = budget.steps * spec.batch_tokens
        return cls(tokens=tokens, listed=budget.listed, annealed=budget.annealed, **results)


AnyBudget = TypeVar("AnyBudget", bound=BudgetResult)


def in_last_third(budgets: Sequence[AnyBudget]) -> list[AnyBudget]:
    """The budgets in the last third of training; ``budgets`` rise in tokens."""
    return [entry for entry in budgets if 3 * entry.tokens >= 2 * budgets[-1].tokens]


def late_tokens(of_seeds: Iterable[Sequence[BudgetResult]]) -> tuple[int, ...]:
    """Tokens at each budget in the last third; empty if the seeds differ in them. Only means over
    the same budgets are compared.
    """
    found = {tuple(entry.tokens for entry in in_last_third(budgets)) for budgets in of_seeds}
    return found.pop() if len(found) == 1 else ()


@dataclass
class Unfinished:
    """A stage's results that wait in ``folder`` until all of them are there and may be published.

    They survive a kill, a full disk and a change of params.yaml that is then reverted.
    """

    folder: Path
    frozen: Frozen | None = None  # the stage's settings when it started
    used: set[Path] = field(default_factory=set)

    def path(self, name: str, decisive: str) -> Path:
        """The file of a result. ``decisive`` is all that the result depends on: whatever else it
        says leads to another file.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}-{sha256(decisive.encode()).hexdigest()}.json"
        self.used.add(path)
        return path

    def check_settings(self, results: str) -> None:
        """Raise UserError if params.yaml has changed; the message calls what waits ``results``."""
        if self.frozen:
            self.frozen.check(f"its {results} stay in {self.folder}{REUSED}")


@contextmanager
def unfinished(spec: RunSpec, stage: str, frozen: Frozen | None = None) -> Iterator[Unfinished]:
    """Where a stage's results for a run wait, for one process at a time. A block that ends without
    an error has published them: the files that it used are deleted, files of other settings
    and checkpoints stay.
    """
    # Beside the run's folder, which they outlive; no run's name has a dot
    waiting = Unfinished(spec.resume.with_name(f"{spec.name}.{stage}"), frozen)
    with alone(waiting.folder):
        yield waiting
        for path in waiting.used:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty, or nothing was kept
            waiting.folder.rmdir()
