"""Everything is written and read as UTF-8, whatever the locale is."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(p for room in ("pipelines", "ftmodel", "hydra_plugins", "benchmarks")
                  for p in (ROOT / room).rglob("*.py"))  # fmt: skip
