"""Designs of the latent side by side, read from results written by hand."""

from pathlib import Path
from typing import Any

import pytest

from ftmodel.costs import flops_per_token
from pipelines.report.analysis import Analysis
from pipelines.report.designs import in_words
from pipelines.report.sections.designs import HEAD, drawn, section
from tests.support.corpora import write_shards
from tests.support.mutants import rejects
from tests.support.results import make_report, run, seeded, with_seeds, write_experiment

ARMS: dict[str, dict[str, Any]] = {
    "base": run(),
    "plus": run(extra_blocks=1),
    "free": run(kappa=0.5),
    "linear": run(kappa=0.5, latent={"map": "linear"}, latent_bits=40),
    "residual": run(kappa=0.5, latent={"inject": "residual"}),
    "other_kappa": run(kappa=1.0, latent={"inject": "residual"}),
    "other_tokens": run(kappa=0.5, tokens=13_000, latent={"inject": "residual"}),
}
BOUNDS = {
    "base": [0.50, 0.50],
    "plus": [0.49, 0.49],
    "free": [0.551, 0.549],
    "linear": [0.45, 0.45],
    "residual": [0.551, 0.549],
    "other_kappa": [0.6, 0.6],
    "other_tokens": [0.3, 0.3],
}
DESIGNS = ["its model's", "map linear, H 40", "inject residual"]
TITLE = "Designs of the latent, side by side"


@pytest.fixture
def analysis(tmp_path: Path) -> Analysis:
    return seeded(tmp_path, ARMS, BOUNDS)


@rejects(
    "report/designs.py", "kappa_bits, arm.run.", "", "designs of several thresholds side by side"
)
def test_only_arms_that_are_alike_otherwise_stand_side_by_side(analysis: Analysis) -> None:
    (group,) = analysis.designs
    assert [arm.name for arm in group.arms] == ["free", "linear", "residual"]
    assert [in_words(arm) for arm in group.arms] == DESIGNS
    assert [round(c.mean, 3) for c in group.others] == [-0.1, 0.0]
    assert [c.verdict for c in group.others] == ["lower", "no difference"]


def test_a_design_is_not_lower_than_one_whose_bound_is_loose(tmp_path: Path) -> None:
    free = {name: {"half_variance": 0.2} for name in ("free_s0", "free_s1")}
    made = section(seeded(tmp_path, ARMS, BOUNDS, others=free))
    (linear,) = [row for row in made.table if row[0] == "linear"]
    assert linear[HEAD.index("− its model's design")] == "−0.1000, lower, but a bound is not tight"
    assert linear[HEAD.index("− baseline")] == "−0.0500, lower"


def test_the_table_of_bounds_says_the_same_of_a_bound_that_is_loose(tmp_path: Path) -> None:
    free = {name: {"half_variance": 0.2} for name in ("free_s0", "free_s1")}
    seeded(tmp_path, ARMS, BOUNDS, others=free)
    lines = (make_report(tmp_path) / "report.md").read_text().splitlines()
    heading = next(i for i, line in enumerate(lines) if "differences from the baselines" in line)
    table = lines[heading : lines.index("", heading + 2)]
    free_row, linear = (
        next(line for line in table if line.startswith(f"| {name} ")) for name in ("free", "linear")
    )
    assert free_row.count("higher, but a bound is not tight (threshold") == 2
    assert "not tight" not in linear


def test_a_setting_that_repeats_the_models_is_no_other_design(tmp_path: Path) -> None:
    """The model of these tests has H = 3 and reads z in the second of two blocks."""
    repeated = run(kappa=0.5, latent={"inject": "kv"}, latent_bits=3, latent_block=2)
    arms = {"base": run(), "free": repeated, "residual": ARMS["residual"]}
    (group,) = seeded(tmp_path, arms, {name: BOUNDS[name] for name in arms}).designs
    assert group.own.name == "free" and [in_words(arm) for arm in group.arms] == DESIGNS[::2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"latent": {"encoder": "separate", "encoder_layers": 3}},
            "encoder separate, encoder blocks 3",
        ),
        ({"latent": {"per": "sequence"}}, "a z per sequence"),
        ({"latent": {"per": "every", "every": 8}}, "a z every 8"),
        ({"latent_block": 1}, "block 1"),
    ],
)
def test_designs_in_words(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    arms = {"free": run(kappa=0.03), "other": run(kappa=0.03, **changes)}
    (group,) = seeded(tmp_path, arms, {name: BOUNDS["free"] for name in arms}).designs
    assert in_words(group.others[0].arm) == words


def test_the_table_has_a_row_for_each(analysis: Analysis) -> None:
    made = section(analysis)
    assert made is not None
    rows = [dict(zip(HEAD, row, strict=True)) for row in made.table[1:]]
    assert [row["arm"] for row in rows] == ["free", "linear", "residual"]
    own, linear, _ = rows
    assert own["− its model's design"] == "–"
    assert linear["− its model's design"] == "−0.1000, lower"
    assert linear["− baseline"] == "−0.0500, lower"
    assert linear["− larger baseline"] == "−0.0400, lower"
    assert (linear["valid"], linear["spread"]) == ("1.00", "2.5 → 2.5")
    assert linear["tokens/s in training"].replace(",", "").isdigit()
    assert made.sentences == [
        "The table has 8 differences, each tested at 5 %: between equal models about 0.4 of them "
        "would count by chance."
    ]


def test_flops_are_those_of_the_design_and_the_datas_vocabulary(
    analysis: Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_shards(Path("data/tokens/target"), [[0, 1]], vocab_size=29)
    made = section(analysis)
    assert made is not None
    column = HEAD.index("FLOPs/token")
    arms = {arm.name: arm.first.config for arm in analysis.arms}
    for name, *cells in made.table[1:]:
        assert (config := arms[name]) is not None
        assert cells[column - 1] == f"{flops_per_token(config, 29).total / 1e6:.2f} M"
    linear = arms["linear"]
    assert linear is not None and linear.latent_bits == 40


@rejects(
    "report/sections/designs.py", "level - bound for", "bound - level for", "a loss drawn as a gain"
)
def test_a_dot_is_the_gain_of_a_seed_over_the_mean_of_the_models_own(analysis: Analysis) -> None:
    (axes,) = drawn(analysis.designs).axes
    dots = {
        round(line.get_ydata()[0]): list(line.get_xdata())
        for line in axes.lines
        if line.get_marker() == "o"
    }
    assert dots[0] == pytest.approx([-0.001, 0.001])
    assert dots[1] == pytest.approx([0.1, 0.1])
    assert [label.get_text() for label in axes.get_yticklabels()] == DESIGNS


def test_each_is_a_comparison_that_was_made(analysis: Analysis) -> None:
    assert analysis.comparisons_made == len(analysis.comparisons) + 2


def test_without_designs_there_is_no_such_section(tmp_path: Path) -> None:
    arms = {name: arm for name, arm in ARMS.items() if "latent" not in arm}
    report = make_report(write_experiment(tmp_path, with_seeds(arms), {}))
    assert TITLE not in (report / "index.html").read_text()


def test_it_is_on_both_pages(tmp_path: Path) -> None:
    bounds = {f"{arm}_s{i}": bound for arm, each in BOUNDS.items() for i, bound in enumerate(each)}
    report = make_report(write_experiment(tmp_path, with_seeds(ARMS), bounds, se=0.0001))
    for page in ("index.html", "report.md"):
        text = (report / page).read_text()
        assert TITLE in text and "map linear, H 40" in text
