"""The record of spreads, and what `ftlab plan` says of an experiment's seeds by it."""

from dataclasses import replace
from math import sqrt
from statistics import stdev

import pytest
import torch

from ftmodel.analysis.power import detectable, power, seeds_to_detect, seeds_to_equate
from pipelines.artifacts.run_spec import RunSpec
from pipelines.evaluate.work import settled
from pipelines.host.errors import UserError
from pipelines.parallel import spreads
from pipelines.parallel.spreads import RECORD, Spread, in_words, on_record, power_rows, read_record
from tests.compare.made_up import baseline, free_transformer
from tests.support.mutants import rejects
from tests.support.settings import composed_by_hydra as composed

BASELINE = Spread(
    "old",
    "stdlib",
    "text_small",
    "baseline",
    None,
    1_024_000,
    "bits_per_byte",
    3,
    0.004,
    32_768,
    50,
)
FREE = replace(BASELINE, arm="free_k1_2", kappa_bits=0.5, spread=0.009)
FREE = replace(FREE, document_error=0.002, interaction=0.001)
DOCUMENTS = 30


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    RECORD.parent.mkdir()
    power.cache_clear()
    monkeypatch.setattr("ftmodel.analysis.power.SIMULATED", 60)
    yield
    power.cache_clear()


def with_documents(arm, spread, effect):
    """The arm with ``effect`` (n,) on each document, and a residual of its own for each seed."""
    for run in arm.runs:
        own = torch.Generator().manual_seed(len(arm.name) * 10 + run.run.seed)
        noise = torch.randn(DOCUMENTS, generator=own)
        bits = run.bound("bits_per_token").mean + effect + spread * (noise - noise.mean())
        run.details.bound_bits, run.details.document_tokens = bits.tolist(), [1] * DOCUMENTS
        run.evaluation.documents = run.evaluation.tokens = DOCUMENTS
    return arm


def kept(monkeypatch, experiment, arms):
    """Put made-up arms on record, as those of this experiment."""
    runs = [run for arm in arms for run in arm.runs]
    monkeypatch.setattr(spreads, "load_experiment", lambda: replace(composed(), name=experiment))
    monkeypatch.setattr(spreads, "read_runs", lambda experiment: runs)
    spreads.keep_spreads()


@rejects(
    "spread_of: «1 / len(arm.runs) + 1 / len(plain.runs)→1 / len(arm.runs)»", "error of one seed"
)
@rejects(
    "keep_spreads: «each.experiment != experiment.name→True»", "rows of the same experiment stay"
)
def test_a_finished_experiment_is_kept_in_place_of_its_earlier_rows(monkeypatch, capsys):
    effect = 2 * torch.linspace(-1, 1, DOCUMENTS)
    plain = with_documents(baseline("plain", 1.0, 1.2), 0.2, 0 * effect)
    free = with_documents(free_transformer("free", 1.1, 1.4, 1.2, kappa=1 / 64), 0.2, effect)
    alone = with_documents(free_transformer("alone", 1.3, kappa=2.0), 0.2, effect)
    kept(monkeypatch, "other", [plain])
    kept(monkeypatch, "mine", [plain, free])
    kept(monkeypatch, "mine", [plain, free, alone])
    assert "of mine plain, free\n" in capsys.readouterr().out
    rows = read_record()
    assert [(row.experiment, row.arm) for row in rows] == [
        ("other", "plain"), ("mine", "plain"), ("mine", "free")
    ]  # fmt: skip
    assert (rows[1].kappa_bits, rows[1].document_error, rows[1].interaction) == (None, None, None)
    row = rows[2]
    assert (row.data, row.model, row.kappa_bits, row.seeds) == ("text", "small", 1 / 64, 3)
    assert (row.documents, row.scored_tokens, row.trained_tokens) == (DOCUMENTS, DOCUMENTS, 5000)
    assert row.spread == pytest.approx(stdev([1.1, 1.4, 1.2]), rel=1e-2)
    # by the closed forms of residuals that were drawn for each seed and document
    assert row.interaction == pytest.approx(0.2 / sqrt(DOCUMENTS), rel=0.25)
    assert row.document_error == pytest.approx(float(effect.std()) / sqrt(DOCUMENTS), rel=0.25)


def test_without_a_second_seed_there_is_nothing_to_keep(monkeypatch):
    with pytest.raises(UserError, match="mine: no arm has several seeds"):
        kept(monkeypatch, "mine", [with_documents(baseline("plain", 1.0), 0.1, 0.0)])
    assert read_record() == [] and not RECORD.exists()


def test_a_damaged_record_is_named_with_its_line(monkeypatch):
    kept(monkeypatch, "mine", [with_documents(baseline("plain", 1.0, 2.0), 0.1, 0.0)])
    RECORD.write_text(RECORD.read_text().replace("5000", "many"))
    with pytest.raises(UserError, match=r"conf/spreads.csv, line 2, trained_tokens: .*integer"):
        read_record()


def test_the_closest_arm_on_record_stands_for_a_planned_one():
    spec = RunSpec(composed("experiment=ten_seeds_text"), "free_k1_2_s0")
    named, same_kappa, other_kappa = (
        FREE,
        replace(FREE, arm="x", experiment="b"),
        replace(FREE, arm="y", kappa_bits=1.0),
    )
    strangers = [BASELINE, replace(FREE, data="target"), replace(FREE, model="text_2m")]
    assert on_record(spec, "free_k1_2", strangers) is None
    for expected, rows in (
        (other_kappa, [other_kappa]),
        (same_kappa, [other_kappa, same_kappa]),
        (named, [other_kappa, same_kappa, named]),
        (same_kappa, [replace(FREE, kappa_bits=1.0), same_kappa]),
    ):
        assert on_record(spec, "free_k1_2", [*strangers, *rows]) == expected
    longer = replace(FREE, trained_tokens=4_000_000)
    assert on_record(spec, "free_k1_2", [longer, FREE]) == FREE


@rejects("Spread.over_seeds: «(fewer - 1)→fewer»", "the interaction twice")
def test_a_spread_contains_the_interaction_of_the_tokens_that_were_scored():
    """Four times as many tokens: a quarter of its square; the rest of the spread stays."""
    rest = FREE.spread**2 - 0.004**2
    assert FREE.over_seeds(4 * FREE.scored_tokens, 0.004) ** 2 == pytest.approx(rest + 0.002**2)
    assert FREE.over_seeds(FREE.scored_tokens, 0.004) == pytest.approx(FREE.spread)


@rejects(
    "Spread.over_documents: «self.document_error / sqrt(more)→self.document_error»",
    "errors of other tokens",
)
def test_errors_over_documents_shrink_as_more_tokens_are_scored():
    quarter = FREE.over_documents(FREE.scored_tokens // 4)
    assert (quarter.error, quarter.interaction) == pytest.approx((0.004, 0.002))
    assert quarter.n == round(FREE.documents / 4)
    assert BASELINE.over_documents(100) is None


def test_each_comparison_is_judged_by_the_spreads_of_its_family(monkeypatch):
    third = replace(FREE, arm="free_k1", kappa_bits=1.0, spread=0.02)
    monkeypatch.setattr(spreads, "read_record", lambda: [BASELINE, FREE, third])
    expected = "expectation=[{arm: free_k1, than: free_k1_2, bound: higher, smallest_effect: 0.05}]"
    experiment = composed("experiment=ten_seeds_text", "seeds=[0,1,2]", expected)
    rows = [*power_rows(experiment)]
    pairs = ["free_k1_2, baseline", "free_k1, baseline", "free_k1, free_k1_2"]
    assert [row["arm, compared with"] for row in rows] == pairs
    assert [row["effect"] for row in rows] == ["0.01", "0.01", "0.05"]
    assert {row["seeds"] for row in rows} == {"3"}
    scored = settled(RunSpec(experiment, "free_k1_2_s0")).tokens
    assert scored == FREE.scored_tokens
    given = (0.009, 0.004, 0.02), 3, FREE.over_documents(scored)
    assert rows[0]["finds"] == f"{detectable(*given, effect=0.01):.2g}"
    needed = [find(0.01, given[0], given[2]) for find in (seeds_to_detect, seeds_to_equate)]
    assert [rows[0]["seeds to find it"], rows[0]["seeds to rule it out"]] == [
        *map(in_words, needed)
    ]
    assert rows[1]["seeds to find it"] == "over 40"  # its spread is twice the effect


def test_all_held_out_tokens_are_as_many_as_were_recorded(monkeypatch):
    monkeypatch.setattr(spreads, "read_record", lambda: [BASELINE, FREE])
    found = [
        next(power_rows(composed("experiment=ten_seeds_text", f"evaluation.tokens={tokens}")))
        for tokens in ("null", FREE.scored_tokens)
    ]
    assert found[0] == found[1] and found[0]["finds"]


def test_a_baseline_expected_to_differ_has_the_errors_of_the_other_arm(monkeypatch):
    monkeypatch.setattr(spreads, "read_record", lambda: [BASELINE, FREE])
    expected = "expectation=[{arm: baseline, than: free_k1_2, bound: higher}]"
    first, *_, last = power_rows(composed("experiment=ten_seeds_text", expected))
    assert (first["arm, compared with"], last["arm, compared with"]) == (
        "free_k1_2, baseline",
        "baseline, free_k1_2",
    )
    assert float(last["finds"]) == pytest.approx(float(first["finds"]), rel=0.15)


def test_what_is_not_on_record_is_said(monkeypatch):
    monkeypatch.setattr(spreads, "read_record", lambda: [BASELINE])
    first, *_ = power_rows(composed("experiment=ten_seeds_text", "seeds=[0]"))
    assert (first["spreads"], first["finds"]) == ("not on record", "")
    monkeypatch.setattr(spreads, "read_record", lambda: [BASELINE, FREE])
    one, *_ = power_rows(composed("experiment=ten_seeds_text", "seeds=[0]"))
    assert one["finds"] == "–" and one["seeds to find it"] not in ("", "–")
