"""Wrong versions of our code, each a mistake that is easy to make: one module a room.

tests/test_wrong_versions.py makes each of them on a copy and runs the test that must notice it;
tests/mutants.py (`make mutants`) does so with the slow ones, too.
"""

from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules


@dataclass
class Wrong:
    """A replacement in a file of a package, and the test (file::function) that must fail on it.

    A file outside the packages, such as dvc.yaml, has the package "".
    """

    name: str
    file: str
    old: str
    new: str
    noticed_by: str
    package: str = "ftmodel"
    slow: bool = False  # left to `make mutants`


def wrong_versions():
    """Those of all rooms."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    return [wrong for module in modules for wrong in module.WRONG]
