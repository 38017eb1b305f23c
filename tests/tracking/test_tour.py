"""examples/tour.ipynb runs on what is trained here, and says what to type where nothing is."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from matplotlib.text import Text

from ftmodel.config import Per
from ftmodel.model.free_transformer import FreeTransformer
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
    figure = names["figure"]
    figure.canvas.draw()  # which lays it out
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    boxes = [text.get_window_extent() for text in texts]
    assert {RUN, f"{final:+.4f}"} <= {text.get_text() for text in texts}
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1 for box in boxes)


def test_the_tour_pins_and_swaps_a_code_that_all_tokens_share(project, capsys):
    """As in quickstart, whose latent with the largest κ of at most 1 has one code a sequence."""
    names = run(CODE[:2])
    config = names["model"].config
    latent = replace(config.latent, per=Per.sequence)
    torch.manual_seed(0)
    names["model"] = FreeTransformer(replace(config, latent=latent), 29).eval()
    for cell in CODE[2:4]:
        exec("".join(cell["source"]), names)
    assert len(names["codes"].unique()) == 1
    assert names["swapped"].shape == names["pinned"].shape


def test_where_nothing_is_trained_it_says_what_to_type(workspace):
    with pytest.raises(SystemExit, match="Type `make repro`"):
        run(CODE)


def test_the_stored_outputs_are_of_one_run_from_top_to_bottom():
    assert [cell["execution_count"] for cell in CODE] == [*range(1, len(CODE) + 1)]
    outputs = [output for cell in CODE for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}
    assert {output.get("name", "stdout") for output in outputs} == {"stdout"}  # no warnings
    assert "image/png" in outputs[-1]["data"]
    assert "sequence_k1_16: κ = 0.0625" in "".join(outputs[0]["text"])
