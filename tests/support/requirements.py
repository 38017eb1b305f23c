"""What pyproject.toml asks for, and what that asks for in turn."""

import re
import tomllib
from importlib.metadata import distribution

from packaging.requirements import Requirement

from pipelines.common.file_listing import canonical
from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def of_make_repro() -> list[str]:
    """The requirements of what `make repro` installs."""
    (names,) = re.findall(r"\(INSTALL\) '\.\[(lab[\w,]*)\]'", (ROOT / "Makefile").read_text())
    return [*PROJECT["dependencies"], *(each for name in names.split(",") for each in EXTRAS[name])]


def closure(requirements: list[str]) -> set[str]:
    """The distributions that installing these requirements installs."""
    names, waiting = set(), [(Requirement(each), "") for each in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        for wanted in ("", *requirement.extras):
            key = canonical(requirement.name), wanted
            if key not in names:
                names.add(key)
                requires = distribution(key[0]).requires or []
                waiting += [(Requirement(each), wanted) for each in requires]
    return {name for name, _ in names}
