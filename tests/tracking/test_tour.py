"""examples/tour.ipynb runs on what is trained here, and says what to type where nothing is."""

import json
from pathlib import Path

import pytest

from tests.support.training import RUN
from tests.tracking.conftest import on_disk

CELLS = json.loads((Path(__file__).parents[2] / "examples/tour.ipynb").read_text())["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]


def run(cells):
    names = {}
    for cell in cells:
        exec("".join(cell["source"]), names)
    return names


def test_the_tour_loads_pins_swaps_and_draws(project, monkeypatch, capsys):
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = run(CODE)
    shown = capsys.readouterr().out
    assert RUN in shown and shown.count("K>") == 15
    pinned, swapped, codes = (names[name] for name in ("pinned", "swapped", "codes"))
    assert pinned.shape == swapped.shape == (5, codes.shape[1] + 1)
    final = [p.value for p in on_disk().points if p.key == "bound/bits_per_token"][-1]
    assert names["points"] == {RUN: (0.125, final)}


def test_where_nothing_is_trained_it_says_what_to_type(workspace):
    with pytest.raises(SystemExit, match="Type `make repro`"):
        run(CODE)


def test_no_output_is_committed():
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in CODE)
