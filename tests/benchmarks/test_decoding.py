"""The benchmark of decoding runs and names what it measures; how fast, is its own matter."""

from math import isfinite

from benchmarks.decoding import measure


def test_figures_of_a_tiny_model():
    figures = measure(turns=1, quick=True)
    assert all(isfinite(f.median) and f.median > 0 for f in figures)
    names = [figure.name for figure in figures]
    assert len(names) == len(set(names))
    for rows in (1, 2):
        for how in ("greedy", "sampled"):
            for what in ("free ÷ ours: tokens/s", "ours ÷ Hugging Face: tokens/s"):
                assert f"tiny, batch {rows}, {how}, {what}" in names
        assert f"tiny, batch {rows}, free, 64 tokens, last eighth ÷ first: time per token" in names
    targets = {f.name.partition("÷")[2]: f.target for f in figures if f.target}
    assert targets[" ours: tokens/s"] == "≥ 0.97"
    assert targets[" Hugging Face: tokens/s"] == "≥ 2"
