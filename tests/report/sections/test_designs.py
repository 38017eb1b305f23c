"""Designs of the latent side by side, read from results written by hand."""

from dataclasses import replace

import pytest

from ftmodel.costs.training import flops_per_token
from pipelines.compare.comparison import design_words
from pipelines.report.sections.designs import designs, draw_gains
from tests.support.corpora import write_shards
from tests.support.figures import check_figure
from tests.support.pages import by_name, tables
from tests.support.results import CONTROLLED, run, seeded

RESIDUAL = {"latent": {"inject": "residual"}}
ARMS = CONTROLLED | {
    "plus_2": run(extra_blocks=2),
    "linear": run(kappa=1.0, latent={"map": "linear"}, latent_bits=40),
    "residual": run(kappa=1.0, **RESIDUAL),
    "other_kappa": run(kappa=2.0, **RESIDUAL),
    "other_tokens": run(kappa=1.0, tokens=13_000, **RESIDUAL),
}
OWN, SAME = [0.551, 0.549], [0.5, 0.5]
BOUNDS = {"base": SAME, "plus": [0.48, 0.48], "free": OWN, "linear": [0.45, 0.45], "residual": OWN}
BOUNDS |= {"plus_2": [0.49, 0.49], "other_kappa": [0.6, 0.6], "other_tokens": [0.3, 0.3]}


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    return seeded(tmp_path_factory.mktemp("designs"), ARMS, BOUNDS)


def test_a_design_is_not_lower_than_one_whose_bound_is_loose(tmp_path):
    free = {f"free_s{i}": {"half_variance": 0.2} for i in (0, 1)}
    (table,) = tables(designs(seeded(tmp_path, ARMS, BOUNDS, others=free)))
    linear = by_name(table)["linear"]
    assert linear["− its model's design"] == "−0.1000; not decided: the bound is loose"


def test_a_setting_that_repeats_the_models_is_no_other_design(tmp_path):
    """The model of these tests has H = 3 and reads z in the second of two blocks."""
    repeated = run(kappa=1.0, latent={"inject": "kv"}, latent_bits=3, latent_block=2)
    arms = {"base": run(), "free": repeated, "residual": ARMS["residual"]}
    (group,) = seeded(tmp_path, arms, {name: BOUNDS[name] for name in arms}).designs
    assert [design_words(arm) for arm in group.arms] == ["its model's", "inject residual"]
    assert group.own.name == "free"


def test_the_table_has_a_row_for_each(analysis, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vocabulary = 4_000_000_000  # in whose FLOPs a millionth is seen
    write_shards(tmp_path / "data/tokens/target", [[0, 1]], vocab_size=vocabulary)
    for measured in (each.evaluation for each in analysis.runs if each.evaluation.pinned):
        measured.pinned = replace(measured.pinned, noise=0.25)
    (table,) = tables(designs(analysis))
    rows = list(by_name(table).values())
    assert [row["arm"] for row in rows] == ["free", "linear", "residual"]
    assert len(analysis.tested) == len(analysis.comparisons) + 2
    own, linear, residual = rows
    assert residual["− its model's design"] == "+0.0000: not decided (could be up to 0.0018)"
    assert own["− its model's design"] == "–"
    assert linear["− its model's design"] == "−0.1000; **lower ★**"
    assert linear["− baseline"] == "−0.0500; **lower ★**"
    assert linear["− larger baseline"] == "−0.0400; **lower ★**"
    assert (linear["valid"], linear["spread"]) == ("1.00", "2.5 → 2.5")
    assert (linear["recovery"], linear["noise"]) == ("1.75", "0.25")
    # 65 tokens a step at 32.5, 65 and 130 a second: 4 s, whichever arm; then twice as fast
    arm = analysis.arms[[arm.name for arm in analysis.arms].index("linear")]
    assert linear["tokens/s in training"] == f"{arm.trained_tokens / 4:,.0f}"
    curve = arm.runs[1].curve
    arm.runs[1].curve = [
        replace(each, tokens_per_second=2 * each.tokens_per_second) for each in curve
    ]
    (table,) = tables(designs(analysis))
    arm.runs[1].curve = curve
    speed = by_name(table)["linear"]["tokens/s in training"]
    assert speed == f"{arm.trained_tokens * (1 / 4 + 1 / 2) / 2:,.0f}"
    assert linear["design"] == "map linear, H 40"
    configs = {arm.name: arm.first.config for arm in analysis.arms}
    assert configs["linear"].latent_bits == 40
    for row in rows:  # of the design and the vocabulary of the data
        flops = flops_per_token(configs[row["arm"]], vocabulary).total
        assert row["FLOPs/token"] == f"{flops / 1e6:.2f} M"


def test_a_dot_is_the_gain_of_a_seed_over_the_mean_of_the_models_own(analysis, tmp_path):
    check_figure("designs", draw_gains(analysis.designs), tmp_path)
