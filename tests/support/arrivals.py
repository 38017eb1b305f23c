"""Which test sees a setting arrive where it takes effect: declared above the test."""

import ast
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from pipelines.config import data, schema
from pipelines.config.init_from import InitFrom
from pipelines.sweep.plan import Sweep
from tests import ROOT
from tests.docs.settings_page import groups_within

Test = TypeVar("Test", bound=Callable)
GROUPS: dict[str, Any] = {  # by the first part of a key
    "compute": schema.Compute,
    "evaluation": schema.EvaluationConfig,
    "optim": schema.Optim,
    "run": schema.Run,
    "init_from": InitFrom,
    "process": data.ProcessData,
    "text": data.TextData,
    **data.KINDS,
    "suite": schema.Suite,
    "suite_task": schema.SuiteTask,
    "pass_at_k": schema.PassAtK,
    "sweep": Sweep,
}


def arrives(group: str, names: str) -> Callable[[Test], Test]:
    """Declare that a test sees settings arrive: it gives each a value other than the default, and
    fails if the code that reads the setting gets the default instead. ``group`` is one of GROUPS,
    ``names`` are fields of it, apart by spaces. Both are read from the source of the tests.
    """
    return lambda test: test


def settings() -> set[str]:
    """The keys of all settings in GROUPS, as "evaluation.tokens"."""
    return {
        f"{group}.{field.name}"
        for group, kind in GROUPS.items()
        for field in fields(kind)
        if not [*groups_within(field.type)]
    }


def declared() -> dict[str, list[str]]:
    """The ids of the tests that declare a setting, by its key."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            for call in getattr(node, "decorator_list", []):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "arrives":
                    assert node.name.startswith("test_"), f"{file}: {node.name} is not a test"
                    group, names = map(ast.literal_eval, call.args)
                    test = f"{file.relative_to(ROOT).as_posix()}::{node.name}"
                    for name in names.split():
                        found.setdefault(f"{group}.{name}", []).append(test)
    return found
