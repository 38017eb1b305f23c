"""The report of a sweep on results written by hand."""

import csv
import re
from collections import Counter
from itertools import product

import pytest

from pipelines.artifacts.curve import CurveRow
from pipelines.artifacts.results import Details, Estimate, Evaluation, Figures
from pipelines.compare.comparison import compare
from pipelines.report.style import scale
from pipelines.sweep.plots import draw
from pipelines.sweep.ranking import SweepAnalysis
from pipelines.sweep.report import pages, write
from pipelines.sweep.result import DONE, FAILED, STOPPED, Result
from tests.support.sweeps import plan_of

WIDE = (-2, -1, 1, 2)  # how held-out sequences differ, the same for all trials
CE = 0.1111  # of every Free Transformer: far below any bound
BOUNDS = {None: 0.50, 0.015625: 0.501, 0.125: 0.47, 1.0: 0.60, 8.0: 0.90}


@pytest.fixture
def kappa():
    """The shipped sweep over κ."""
    return plan_of(name="kappa")


@pytest.fixture
def written(kappa, tmp_path, monkeypatch):
    """Writes the report of results of the sweep over κ; gives its folder."""
    monkeypatch.chdir(tmp_path)
    return lambda results: write(SweepAnalysis(kappa, results))


def measured(plan, name, bound, own=0.0, collapsed=False):
    """A finished trial; ``own`` moves its sequences apart from those of other trials."""
    free = plan.trials[name].runs[name].kappa_bits is not None
    means = {"nll": bound} if not free else {"ce": CE, "kl": 0.2, "filtering": bound, "elbo": bound}
    units = {"bits_per_token": 1, "bits_per_byte": 3}
    figures = {
        unit: Figures(**{key: Estimate(mean / share, 0.9 / share) for key, mean in means.items()})
        for unit, share in units.items()
    }
    evaluation = Evaluation(
        documents=8,
        tokens=8,
        tokens_per_second=1.0,
        parameters=12_345,
        trained_tokens=999,
        collapsed=collapsed if free else None,
        **figures,
    )
    bounds = [bound + wide + sign * own for wide in WIDE for sign in (-1, 1)]
    ones = [1] * len(bounds)
    details = Details([], bounds, document_tokens=ones, document_bytes=ones)
    return Result(name, "h", DONE, "", "", evaluation, details, [row(1, 0.1)])


def row(step, kl_bits):
    return CurveRow(step, 65, 0.5, 0.0, 1e-3, 9.0, kl_bits=kl_bits, hinge_nats=0.0)


def report_of(plan, results):
    """report.md without figures."""
    return pages(SweepAnalysis(plan, results), {})["report.md"]


def findings(plan, results):
    """The sentences at the head of the report."""
    head = report_of(plan, results).partition("\n## ")[0]
    return [line.removeprefix("- ") for line in head.splitlines() if line.startswith("- ")]


def axes_of(plan, results):
    return draw(SweepAnalysis(plan, results))["run_kappa_bits"].axes[0]


def results_of(plan, bounds, seed_steps=0.001, **kinds):
    """Results with a bound for each κ, and a little more for each further seed."""
    found = {}
    for name, settings in plan.settings.items():
        bound = bounds[settings["run.kappa_bits"]] + seed_steps * settings["run.seed"]
        found[name] = measured(plan, name, bound, **kinds)
    return found


def stop(plan, results, name, bits=0.7):
    steps = plan.trials[name].steps(plan.trials[name].runs[name])
    results[name] = Result(name, "h", STOPPED, "rule", curve=[row(steps // 2, bits)])


def test_the_best_setting_is_the_lowest_mean_over_seeds(kappa):
    first, *others = findings(kappa, results_of(kappa, BOUNDS))
    assert first.startswith("Lowest bound: κ = 1/8: 0.4710 ± ")
    assert first.endswith("bits per token, mean of 3 seeds.")
    assert others[0].startswith(
        "Above it: baseline (+0.0300 ± 0.0000, seeds ± 0.0008); κ = 1/64 (+0.0310"
    )
    assert others[1].startswith("Lowest single trial: kappa_bits_0p125_seed_0: 0.4700")


def test_a_difference_that_seeds_may_make_is_none(kappa):
    """0.0364 is t of 10 degrees of freedom, those of all settings, times 0.02 √(1/3 + 1/3)."""
    results = results_of(kappa, BOUNDS | {1.0: 0.507, 8.0: 0.506}, seed_steps=0.02)
    sentences = findings(kappa, results)
    assert sentences[1].startswith(
        "No difference measured from it: baseline (+0.0300 ± 0.0000, seeds ± 0.0163)"
    )
    assert "κ = 1/64" in sentences[1] and "κ = 8 (+0.0360" in sentences[1]
    assert sentences[2].startswith("Above it: κ = 1 (+0.0370")
    text = report_of(kappa, results)
    assert "s is the spread within all settings that are compared with each other" in text
    assert re.search(r"κ = 8 \| 3 \|.*\| \+0\.0360 .*\(no difference\) \|", text)
    assert re.search(r"κ = 1 \| 3 \|.*\| \+0\.0370 [^(]* \|", text)


def test_one_seed_claims_nothing_about_others_and_unknown_errors_claim_nothing():
    plan = plan_of("space.run.seed.grid=[0]", name="kappa")
    results = results_of(plan, BOUNDS)
    assert "One seed per setting" in report_of(plan, results)
    assert not any(s.startswith("Lowest single trial") for s in findings(plan, results))
    for result in results.values():  # a single document has no standard error
        document = result.details
        document.bound_bits, document.document_tokens = [document.bound_bits[0] + 2], [1]
    sentences = findings(plan, results)
    (unknown,) = [s for s in sentences if "errors are not known" in s]
    assert unknown.count("(+0.") == 4
    assert not any(s.startswith(("Above it", "No difference measured")) for s in sentences)


def test_across_tokenizers_bounds_are_in_bits_per_byte():
    plan = plan_of(
        "run=text_free_k1_2",
        "+source@data.large=text",
        "data.large={parts: ${data.stdlib.parts}, validation_share: 0.25, vocab_size: 512}",
        "space.run.data.grid=[stdlib,large]",
    )
    results = results_of(plan, {None: 0.9, 0.5: 0.6})
    assert "0.2002 ± 0.3000 bits per byte, mean of 2 seeds" in findings(plan, results)[0]


def test_stopped_trials_are_shown_apart_and_not_ranked(kappa, written):
    results = results_of(kappa, BOUNDS)
    stop(kappa, results, "kappa_bits_0p125_seed_1", bits=0.0123)
    results["kappa_bits_8_seed_0"] = Result("kappa_bits_8_seed_0", "h", FAILED, error="a <b> cause")
    sweep = SweepAnalysis(kappa, results)
    assert [s.seeds for s in sweep.ranking.settings] == ["2 of 3", "3", "3", "3", "2 of 3"]
    assert sweep.best_trial.name == "kappa_bits_0p125_seed_0"
    sentences = findings(kappa, results)
    assert {"1 trial stopped early, and not ranked.", "1 trial failed."} <= set(sentences)
    assert "leaves out the others" in report_of(kappa, results)
    report = written(results)
    ranked, apart = (report / "index.html").read_text().split("<h2>Stopped early</h2>")
    assert "kappa_bits_0p125_seed_1" not in ranked
    assert re.search(r"seed_1</th>.*?50 %</td>\s*<td class=\"grey\">0\.0123", apart, re.S)
    assert "a &lt;b&gt; cause" in apart
    summary = (report / "summary.txt").read_text()
    assert "stopped early: kappa_bits_0p125_seed_1\nfailed: kappa_bits_8_seed_0\n" in summary


def test_a_sweep_of_which_nothing_is_left_has_a_report(kappa, written):
    results = {name: Result(name, "h", FAILED, error="x") for name in kappa.trials}
    assert "nothing is ranked" in (written(results) / "report.md").read_text()
    assert SweepAnalysis(kappa, results).best_trial is None


def test_pages_stand_alone_warn_of_selection_once_and_the_csv_has_all_of_each_trial(kappa, written):
    results = results_of(kappa, BOUNDS)
    stop(kappa, results, "baseline_seed_2")
    report = written(results)
    page, text = ((report / name).read_text() for name in ("index.html", "report.md"))
    assert not re.search(r"https?:|url\(|@import|<script|<link", page)
    assert page.count('src="data:image/png;base64,iVBOR') == 1
    assert re.findall(r"!\[.*?\]\((.*?)\)", text) == ["figures/run_kappa_bits.png"]
    assert (report / "figures/run_kappa_bits.png").exists()
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({row.count("|") for row in table.splitlines()}) == 1
    for content in (page, text):
        assert content.count("The best of 14 trials looks better than it is") == 1
    for content in (page, text, (report / "summary.txt").read_text()):
        assert f"{CE:.4f}" not in content, "reconstruction cross-entropy outside the CSV"

    with open(report / "trials.csv", newline="") as file:
        rows = {row["trial"]: row for row in csv.DictReader(file)}
    assert len(rows) == 15
    assert next(iter(rows)) == "kappa_bits_0p125_seed_0"
    assert rows["kappa_bits_0p125_seed_0"]["filtering_bits_per_token"] == "0.47"
    assert rows["kappa_bits_0p125_seed_0"]["run.kappa_bits"] == "0.125"
    assert rows["baseline_seed_2"]["status"] == STOPPED
    assert rows["baseline_seed_2"]["nll_bits_per_token"] == ""
    assert rows["baseline_seed_2"]["training_bound_bits"] == "0.7"


def test_collapsed_trials_are_told(kappa):
    results = results_of(kappa, BOUNDS)
    results["kappa_bits_8_seed_0"] = measured(kappa, "kappa_bits_8_seed_0", 0.9, collapsed=True)
    assert findings(kappa, results)[-1].endswith("of training): kappa_bits_8_seed_0.")
    lines = axes_of(kappa, results).lines
    assert [line.get_ydata()[0] for line in lines if line.get_marker() == "x"] == [0.9]


def test_kappa_figure_has_a_dot_a_trial_and_a_line_through_means(kappa):
    axes = axes_of(kappa, results_of(kappa, BOUNDS))
    labels = [t.get_text() for t in axes.get_xticklabels()]
    places = dict(zip(axes.get_xticks(), labels, strict=True))
    assert places == {-7.125: "baseline", -6.0: "1/64", -3.0: "1/8", 0.0: "1", 3.0: "8"}
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert sorted((line.get_xdata()[0], line.get_ydata()[0]) for line in dots) == [
        (x, pytest.approx(bound + 0.001 * seed, abs=1e-6))
        for x, bound in zip(places, BOUNDS.values(), strict=True)
        for seed in range(3)
    ]
    lines = {tuple(line.get_xdata()): line.get_ydata() for line in axes.lines}
    assert lines[-6.0, -3.0, 0.0, 3.0] == pytest.approx([0.502, 0.471, 0.601, 0.901])


@pytest.mark.parametrize("seeds", [1, 3])
def test_sweep_and_report_give_the_same_verdicts(seeds):
    """Where the best setting is the baseline, which the report compares with."""
    plan = plan_of(f"space.run.seed.grid={[*range(seeds)]}".replace(" ", ""), name="kappa")
    bounds = {None: 0.4, 0.015625: 0.405, 0.125: 0.43, 1.0: 0.46, 8.0: 0.9}
    verdicts = Counter()
    for seed_steps, own in product((0.0, 0.004, 0.02), (0.0, 0.01, 0.05)):
        results = results_of(plan, bounds, seed_steps, own=own)
        for name, result in results.items():
            result.evaluation.bits_per_byte = None
            if plan.settings[name]["run.kappa_bits"] is None:
                seed = plan.settings[name]["run.seed"]
                result.details = measured(plan, name, 0.4 + seed_steps * seed).details
        ranking = SweepAnalysis(plan, results).ranking
        assert ranking.best.words == "baseline"
        for c in compare([setting.arm for setting in ranking.settings]):
            mine = ranking.differences[c.arm.name]
            assert (c.mean, c.threshold, c.verdict) == (mine.mean, mine.threshold, mine.verdict)
            verdicts[c.verdict] += 1
    assert verdicts.total() == 9 * 4
    assert set(verdicts) == {"higher", "no difference"}


@pytest.mark.parametrize(
    ("values", "log", "places"),
    [
        ([1, 2, 4], False, {1: 1, 2: 2, 4: 4}),
        ([1, 2, 8], False, {1: 0, 2: 1, 8: 3}),
        ([0, 1, 2], True, {0: -1, 1: 0, 2: 1}),
        (["a", "b"], False, {"a": -1, "b": -2}),
        ([0.0, None], True, {0.0: 0.0, None: -1}),
    ],
)
def test_places_on_the_axis(values, log, places):
    assert scale(values, log).places == places


def test_many_values_are_not_all_labelled():
    assert len(scale([1 + 0.01 * i for i in range(100)]).ticks()) == 12
    assert scale([1.0, 1.01, 2.0]).ticks() == [1.0, 2.0]
