"""The report of a sweep on results written by hand."""

import csv
import re
from pathlib import Path

import pytest

from pipelines.report.scale import scale
from pipelines.sweep import report as sweep_report
from pipelines.sweep.report import best_trial, caveat, draw, findings, rank, setting_of, value_words
from pipelines.sweep.schema import compose_plan
from pipelines.sweep.trial import DONE, FAILED, STOPPED, Result

ROOT = Path(__file__).parents[2]
WIDE = (-2, -1, 1, 2)  # how held-out sequences differ, the same for all trials
CE = 0.1111  # of every Free Transformer: far below any bound


@pytest.fixture
def kappa(monkeypatch, tmp_path):
    """The shipped sweep over κ, in a folder of its own."""
    return plan_of(monkeypatch, tmp_path, "kappa")


def plan_of(monkeypatch, tmp_path, name, *overrides):
    monkeypatch.chdir(ROOT)
    plan = compose_plan(name, list(overrides))[0]
    monkeypatch.chdir(tmp_path)
    return plan


def measured(plan, name, bound, own=0.0, collapsed=0):
    """A finished trial; ``own`` moves its sequences apart from those of other trials."""
    free = plan.trials[name].runs[name].kappa_bits is not None
    figures = {"nll": bound} if not free else {"ce": CE, "kl": 0.2, "iwae": bound, "elbo": bound}
    units = {"bits_per_token": 1, "bits_per_byte": 3}
    metrics = {
        unit: {key: {"mean": value / share, "se": 0.9 / share} for key, value in figures.items()}
        for unit, share in units.items()
    }
    metrics |= {"parameters": 12_345, "trained_tokens": 999, "documents": 8}
    signs = [sign * own for _ in WIDE for sign in (-1, 1)]
    bounds = [bound + w + s for (w, s) in zip([w for w in WIDE for _ in "12"], signs, strict=True)]
    rows = [{"step": 1, "tokens": 65, "ce_nats": 0.5, "kl_bits": 0.1}]
    collapse = {"collapsed": collapsed} if free else {}
    tokens = [1.0] * len(bounds)
    documents = {"bound_bits": bounds, "document_tokens": tokens, "document_bytes": tokens}
    return Result(name, "h", DONE, "", "", metrics | collapse, documents, rows)


def results_of(plan, bounds, seed_steps=0.001, **kinds):
    """Results with a bound for each κ, and a little more for each further seed."""
    found = {}
    for name, settings in plan.settings.items():
        bound = bounds[settings["run.kappa_bits"]] + seed_steps * settings["run.seed"]
        found[name] = measured(plan, name, bound, **kinds)
    return found


BOUNDS = {None: 0.50, 0.015625: 0.501, 0.125: 0.47, 1.0: 0.60, 8.0: 0.90}


def stop(plan, results, name, bits=0.7):
    steps = plan.trials[name].steps(plan.trials[name].runs[name])
    row = {"step": steps // 2, "tokens": 9, "ce_nats": 0.0, "kl_bits": bits}
    results[name] = Result(name, "h", STOPPED, "rule", curve=[row])


def test_the_best_setting_is_the_lowest_mean_over_seeds(kappa):
    first, *others = findings(kappa, results_of(kappa, BOUNDS))
    assert first.startswith("Lowest bound: κ = 1/8: 0.4710 ± ")
    assert first.endswith("bits per token, mean of 3 seeds.")
    assert others[0].startswith("Above it: baseline (+0.0300 ± 0.0000); κ = 1/64 (+0.0310")
    assert others[1].startswith("Lowest single trial: kappa_bits_0p125_seed_0: 0.4700")


def test_a_difference_within_the_spread_of_seeds_is_none(kappa):
    results = results_of(kappa, BOUNDS, seed_steps=0.02)
    sentences = findings(kappa, results)
    assert sentences[1].startswith("No difference measured from it: baseline (+0.0300")
    assert "κ = 1/64" in sentences[1]
    assert sentences[2].startswith("Above it: κ = 1 (+0.1300")
    assert "differ only in their seed differ by up to 0.0400" in caveat(kappa, results)


def test_a_difference_within_two_standard_errors_is_none(kappa):
    noise = {"own": 0.0}
    results = results_of(kappa, BOUNDS, **noise)
    for name, result in results.items():
        if name.startswith("baseline"):
            results[name] = measured(kappa, name, result.documents["bound_bits"][0] + 2, own=0.05)
    (alike,) = [s for s in findings(kappa, results) if s.startswith("No difference")]
    assert "baseline (+0.0300 ± 0.0189)" in alike


def test_one_seed_claims_nothing_about_others(monkeypatch, tmp_path):
    plan = plan_of(monkeypatch, tmp_path, "kappa", "space.run.seed.grid=[0]")
    results = results_of(plan, BOUNDS)
    assert "One seed per setting" in caveat(plan, results)
    assert not any(s.startswith("Lowest single trial") for s in findings(plan, results))


def test_selection_is_said_to_be_optimistic_once(kappa):
    results = results_of(kappa, BOUNDS)
    report = sweep_report.write(kappa, results)
    for page in ("index.html", "report.md"):
        text = (report / page).read_text()
        assert text.count("The best of 15 trials looks better than it is") == 1


def test_stopped_trials_are_shown_apart_and_not_ranked(kappa):
    results = results_of(kappa, BOUNDS)
    stop(kappa, results, "kappa_bits_0p125_seed_1", bits=0.0123)
    results["kappa_bits_8_seed_0"] = Result("kappa_bits_8_seed_0", "h", FAILED, error="a <b> cause")
    ranking = rank(kappa, results)
    assert [s.seeds for s in ranking.settings] == ["2 of 3", "3", "3", "3", "2 of 3"]
    assert best_trial(kappa, results).name == "kappa_bits_0p125_seed_0"
    sentences = findings(kappa, results)
    assert {"1 trial stopped early, and not ranked.", "1 trial failed."} <= set(sentences)
    assert "leaves out the others" in caveat(kappa, results)
    report = sweep_report.write(kappa, results)
    page = (report / "index.html").read_text()
    ranked, apart = page.split("<h2>Stopped early</h2>")
    assert "kappa_bits_0p125_seed_1" not in ranked
    assert re.search(r"seed_1</th>.*?50 %</td>\s*<td class=\"grey\">0\.0123", apart, re.S)
    assert "a &lt;b&gt; cause" in apart
    summary = (report / "summary.txt").read_text()
    assert "stopped early: kappa_bits_0p125_seed_1\nfailed: kappa_bits_8_seed_0\n" in summary


def test_a_sweep_of_which_nothing_is_left_has_a_report(kappa):
    results = {name: Result(name, "h", FAILED, error="x") for name in kappa.trials}
    report = sweep_report.write(kappa, results)
    assert "nothing is ranked" in (report / "report.md").read_text()
    assert best_trial(kappa, results) is None


def test_reconstruction_ce_is_nowhere_but_in_the_csv(kappa):
    report = sweep_report.write(kappa, results_of(kappa, BOUNDS))
    for page in ("index.html", "report.md", "summary.txt"):
        assert f"{CE:.4f}" not in (report / page).read_text()


def test_the_csv_has_everything_of_each_trial(kappa):
    results = results_of(kappa, BOUNDS)
    stop(kappa, results, "baseline_seed_2")
    report = sweep_report.write(kappa, results)
    with open(report / "trials.csv", newline="") as file:
        rows = {row["trial"]: row for row in csv.DictReader(file)}
    assert len(rows) == 15
    assert next(iter(rows)) == "kappa_bits_0p125_seed_0"
    assert rows["kappa_bits_0p125_seed_0"]["iwae_bits_per_token"] == "0.47"
    assert rows["kappa_bits_0p125_seed_0"]["run.kappa_bits"] == "0.125"
    assert rows["baseline_seed_2"]["status"] == STOPPED
    assert rows["baseline_seed_2"]["nll_bits_per_token"] == ""
    assert rows["baseline_seed_2"]["training_bound_bits"] == "0.7"


def test_pages_stand_alone_and_link_what_is_there(kappa):
    report = sweep_report.write(kappa, results_of(kappa, BOUNDS))
    page = (report / "index.html").read_text()
    assert not re.search(r"https?:|url\(|@import|<script|<link", page)
    assert page.count('src="data:image/png;base64,iVBOR') == 1
    text = (report / "report.md").read_text()
    assert re.findall(r"!\[.*?\]\((.*?)\)", text) == ["figures/run_kappa_bits.png"]
    assert (report / "figures/run_kappa_bits.png").exists()
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({row.count("|") for row in table.splitlines()}) == 1


def test_collapsed_trials_are_told(kappa):
    results = results_of(kappa, BOUNDS)
    results["kappa_bits_8_seed_0"] = measured(kappa, "kappa_bits_8_seed_0", 0.9, collapsed=1)
    assert findings(kappa, results)[-1].endswith("of training): kappa_bits_8_seed_0.")
    axes = draw(kappa, results)["run_kappa_bits"].axes[0]
    assert [line.get_ydata()[0] for line in axes.lines if line.get_marker() == "x"] == [0.9]


def dots(axes):
    return sorted(
        (round(float(line.get_xdata()[0]), 6), round(float(line.get_ydata()[0]), 6))
        for line in axes.lines
        if line.get_marker() == "o"
    )


def test_kappa_figure_has_a_dot_a_trial_and_a_line_through_means(kappa):
    axes = draw(kappa, results_of(kappa, BOUNDS))["run_kappa_bits"].axes[0]
    labels = dict(
        zip(axes.get_xticks(), [t.get_text() for t in axes.get_xticklabels()], strict=True)
    )
    assert labels == {-7.125: "baseline", -6.0: "1/64", -3.0: "1/8", 0.0: "1", 3.0: "8"}
    places = {-7.125: None, -6.0: 0.015625, -3.0: 0.125, 0.0: 1.0, 3.0: 8.0}
    assert dots(axes) == sorted(
        (x, round(BOUNDS[value] + 0.001 * seed, 6))
        for x, value in places.items()
        for seed in range(3)
    )
    lines = {tuple(line.get_xdata()): line.get_ydata() for line in axes.lines}
    assert lines[-6.0, -3.0, 0.0, 3.0] == pytest.approx([0.502, 0.471, 0.601, 0.901])
    (level,) = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert list(level.get_ydata()) == pytest.approx([0.501, 0.501])


def test_kappa_zero_has_a_place_and_is_no_baseline(monkeypatch, tmp_path):
    plan = plan_of(monkeypatch, tmp_path, "kappa", "space.run.kappa_bits.grid=[0,0.5,null]")
    results = results_of(plan, {0: 0.6, 0.5: 0.5, None: 0.55})
    axes = draw(plan, results)["run_kappa_bits"].axes[0]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["baseline", "0", "1/2"]
    assert any(len(line.get_xdata()) == 2 and line.get_linestyle() == "-" for line in axes.lines)


def test_each_setting_that_was_varied_has_a_figure_and_a_line_for_each_of_the_others(
    monkeypatch, tmp_path
):
    plan = plan_of(monkeypatch, tmp_path, "smoke", "samples=3")
    results = results_of(plan, {None: 0.5, 0.5: 0.4})
    figures = draw(plan, results)
    assert list(figures) == ["run_kappa_bits", "optim_lr"]
    legend = [t.get_text() for t in figures["optim_lr"].axes[0].get_legend().get_texts()]
    assert legend == ["κ = 1/2", "baseline"]  # the lowest bound first


def test_a_baseline_has_no_h_among_its_settings(monkeypatch, tmp_path):
    plan = plan_of(monkeypatch, tmp_path, "smoke", "+space.architecture.latent_bits.grid=[4,8]")
    keys = ["run.kappa_bits", "architecture.latent_bits"]
    found = {tuple(setting_of(plan, name, keys)) for name in plan.trials if "baseline" in name}
    assert found == {("run.kappa_bits",)}


def test_bits_per_byte_across_tokenizers(monkeypatch, tmp_path):
    plan = plan_of(
        monkeypatch,
        tmp_path,
        "smoke",
        "run=text_free_k1_2",
        "+source@data.large=text",
        "data.large={parts: ${data.stdlib.parts}, validation_share: 0.25, vocab_size: 512}",
        "space.run.data.grid=[stdlib,large]",
    )
    results = results_of(plan, {None: 0.9, 0.5: 0.6})
    assert "0.2002 ± 0.3000 bits per byte, mean of 2 seeds" in findings(plan, results)[0]


@pytest.mark.parametrize(
    ("values", "log", "places"),
    [
        ([1, 2, 4], False, {1: 1, 2: 2, 4: 4}),
        ([1, 2, 8], False, {1: 0, 2: 1, 8: 3}),
        ([1, 2], True, {1: 0, 2: 1}),
        ([0, 1, 2], True, {0: -1, 1: 0, 2: 1}),
        (["a", "b"], False, {"a": -1, "b": -2}),
        ([None], True, {None: -1}),
        ([0.0], True, {0.0: 0.0}),
    ],
)
def test_places_on_the_axis(values, log, places):
    assert scale(values, log).places == places


def test_many_values_are_not_all_labelled():
    found = scale([1 + 0.01 * i for i in range(100)]).ticks()
    assert len(found) == 12
    assert found[0] == 1
    assert scale([1.0, 1.01, 2.0]).ticks() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("run.kappa_bits", None, "baseline"),
        ("run.kappa_bits", 0.125, "1/8"),
        ("optim.lr", 0.002, "0.002"),
        ("run.tokens", 2_600_000, "2,600,000"),
        ("architecture.latent_bits", 8, "8"),
        ("run.model", "text_small", "text_small"),
    ],
)
def test_values_in_words(key, value, words):
    assert value_words(key, value) == words
