"""`python -m tests.docs.settings_page` writes the tables of docs/settings.md, from the schema."""

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from inspect import formatannotation, getsource
from json import dumps
from typing import Any, get_args

from ftmodel.config import LatentDesign, ModelConfig, in_words
from pipelines.config import data, schema
from pipelines.sweep.plan import Sweep
from tests import ROOT

PAGE = ROOT / "docs/settings.md"
GROUPS = {  # by key
    "params.yaml": schema.Experiment,
    "expectation": schema.Expectation,
    "arms.<arm>": schema.Arm,
    "arms.<arm>.init_from": schema.InitFrom,
    "runs.<run>": schema.Run,
    "models.<model>.architecture": ModelConfig,
    "models.<model>.architecture.latent": LatentDesign,
    "models.<model>.optim": schema.Optim,
    "data.<entry>, a process": data.ProcessData,
    "data.<entry>, text": data.TextData,
    **{f"data.<entry>.parts.<part>, {name}": kind for name, kind in data.KINDS.items()},
    "compute": schema.Compute,
    "evaluation": schema.EvaluationConfig,
    "suite": schema.Suite,
    "suite.tasks.<task>": schema.SuiteTask,
    "suite.pass_at_k": schema.PassAtK,
    "conf/sweep/<name>.yaml": Sweep,
}
HEAD = "| setting | type | default | limits | meaning |\n|---|---|---|---|---|\n"


def groups_within(kind: Any) -> Iterator[type]:
    """The dataclasses that a type, or a field of it, is made of."""
    if is_dataclass(kind):
        yield kind
    for each in [f.type for f in fields(kind)] if is_dataclass(kind) else get_args(kind):
        yield from groups_within(each)


def comments(kind: type) -> dict[str, str]:
    """By field or member: the comment behind it or, failing that, the lines above it."""
    found, above = {}, []
    for line in getsource(kind).splitlines():
        if comment := re.match(r" +# (.*)", line):
            above.append(comment[1])
            continue
        if name := re.match(r"    (\w+)(?:: | = )(?:.*?  # (.*))?", line):
            found[name[1]] = name[2] or " ".join(above)
        above = []
    return found


def row(setting: "Field[Any]", meaning: str) -> str:
    kind = formatannotation(setting.type).replace("dict[str, typing.Any]", "mapping")
    default: Any = setting.default
    if isinstance(setting.type, type) and issubclass(setting.type, Enum):
        kind, words = "one of these", comments(setting.type)
        meaning += ":" + "".join(f"<br>`{each.value}`: {words[each.name]}" for each in setting.type)
    if default is MISSING and setting.default_factory is not MISSING:
        default = setting.default_factory()
    default = default.value if isinstance(default, Enum) else default
    shown = "" if default in (MISSING, "???") else f"`{dumps(default)}`".replace('"', "")
    cells = [f"`{setting.name}`", kind.replace(" |", " or").replace("None", "null"), shown]
    text = " | ".join(each.replace("|", "\\|") for each in (*cells, in_words(setting), meaning))
    return f"| {text} |\n"


def section(key: str, kind: type) -> str:
    words = comments(kind)
    of_bases = {f.name for base in kind.__bases__ if is_dataclass(base) for f in fields(base)}
    shown = [f for f in fields(kind) if f.name not in of_bases and not [*groups_within(f.type)]]
    rows = [row(f, words[f.name]) for f in shown if "made by Hydra" not in words[f.name]]
    return f"\n## `{key}`\n\n{HEAD}{''.join(rows)}"


def page() -> str:
    top = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    return top + "".join(section(*group) for group in GROUPS.items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
