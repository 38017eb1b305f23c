"""The report of a sweep, sweeps/<sweep>/report/: index.html, report.md, trials.csv, figures/ and
summary.txt.

Trials are ranked by their held-out bound alone. A setting is what is left of a trial without its
seed; settings that differ by less than seeds do are called no different.
"""

from collections import defaultdict
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from pipelines.artifacts.results import UNITS, Estimate, Measured, fraction, training_bits
from pipelines.common.atomic_files import replace_folder
from pipelines.report.arms import Arm
from pipelines.report.comparison import over_documents
from pipelines.report.page import run_row, save_figures, templates, write_table
from pipelines.report.verdicts import NOTES, collapses, count, signed
from pipelines.sweep import plots as sweep_plots
from pipelines.sweep.schema import LATENT, Plan, Settings
from pipelines.sweep.trial import DONE, FAILED, STOPPED, Result

KAPPA, SEED = "run.kappa_bits", "run.seed"
TEMPLATES = Path(__file__).with_name("templates")
LABELS = {
    KAPPA: "κ, bits per token",
    "architecture.latent_bits": "H, latent bits",
    "optim.lr": "learning rate",
    "run.tokens": "training tokens",
}
SHORT = {KAPPA: "κ", "architecture.latent_bits": "H"}  # others by their last word
LISTED = 8  # settings that a sentence names
KEPT_NOTES = (
    "Reconstruction cross-entropy",
    "ELBO and IWAE",
    "Standard errors and seeds",
    "Parameters",
)


def value_words(key: str, value: Any) -> str:
    if key == KAPPA:
        return "baseline" if value is None else fraction(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if value >= 10_000 else str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def short(key: str) -> str:
    return SHORT.get(key, key.rpartition(".")[2])


def settings_words(settings: Settings) -> str:
    """κ = 1/8, lr = 0.002."""
    words = []
    for key, value in settings.items():
        said = value_words(key, value)
        words.append(said if said == "baseline" else f"{short(key)} = {said}")
    return ", ".join(words) or "the only setting"


@dataclass(frozen=True)
class Setting:
    """Trials that differ in their seed alone; the arm's name says in words what they share."""

    arm: Arm
    unit: str
    unfinished: int  # trials of this setting that were stopped or failed

    @property
    def words(self) -> str:
        return self.arm.name

    @property
    def bounds(self) -> list[float]:
        return [one.bound(self.unit).mean for one in self.arm.runs]

    @property
    def bound(self) -> Estimate:
        return self.arm.bound(self.unit)

    @property
    def seeds(self) -> str:
        done = len(self.arm.runs)
        return f"{done} of {done + self.unfinished}" if self.unfinished else str(done)


@dataclass(frozen=True)
class Ranking:
    """Settings from the lowest bound on, and how much their seeds differ."""

    settings: list[Setting]
    same_documents: bool  # whether all trials are scored on the same held-out tokens

    @property
    def best(self) -> Setting:
        return self.settings[0]

    @property
    def spread(self) -> float | None:
        """Largest difference between trials that differ only in their seed; None if none do."""
        ranges = [max(s.bounds) - min(s.bounds) for s in self.settings if len(s.bounds) > 1]
        return max(ranges, default=None)

    def difference(self, setting: Setting) -> Estimate:
        """Bound minus the best one, with its standard error."""
        if self.same_documents:
            return over_documents(setting.arm, self.best.arm, setting.unit)
        errors = (setting.bound.se, self.best.bound.se)
        return Estimate(setting.bound.mean - self.best.bound.mean, sqrt(sum(e * e for e in errors)))

    def differs(self, setting: Setting) -> bool:
        found = self.difference(setting)
        return found.mean > max(2 * found.se, self.spread or 0.0)


def done_runs(plan: Plan, results: dict[str, Result]) -> dict[str, Measured]:
    """The trials that went to their end, from the lowest bound on."""
    runs = {
        name: results[name].measured(experiment)
        for name, experiment in plan.trials.items()
        if results[name].status == DONE
    }
    return dict(sorted(runs.items(), key=lambda item: item[1].bound(plan.unit).mean))


def best_trial(plan: Plan, results: dict[str, Result]) -> Measured | None:
    return next(iter(done_runs(plan, results).values()), None)


def varied(plan: Plan) -> list[str]:
    """The keys that tell settings apart."""
    return [key for key in plan.swept if key != SEED]


def setting_of(plan: Plan, name: str, keys: list[str]) -> Settings:
    """A trial's values of ``keys``, but for those of a latent that a baseline has none of."""
    run = plan.trials[name].runs[name]
    return {
        key: plan.settings[name][key]
        for key in keys
        if run.kappa_bits is not None or not key.startswith(LATENT)
    }


def rank(plan: Plan, results: dict[str, Result]) -> Ranking | None:
    """None if no trial went to its end."""
    runs = done_runs(plan, results)
    groups: dict[str, list[Measured]] = defaultdict(list)
    unfinished: dict[str, int] = defaultdict(int)
    for name in plan.trials:
        words = settings_words(setting_of(plan, name, varied(plan)))
        if name in runs:
            groups[words].append(runs[name])
        else:
            unfinished[words] += 1
    settings = [Setting(Arm(w, g), plan.unit, unfinished[w]) for w, g in groups.items()]
    if not settings:
        return None
    contexts = {e.model_config(e.runs[name]).context for name, e in plan.trials.items()}
    same_documents = len(contexts) == 1 and len(plan.data) == 1
    return Ranking(sorted(settings, key=lambda s: s.bound.mean), same_documents)


def introduction(plan: Plan, results: dict[str, Result]) -> str:
    base = plan.sweep
    evaluation = next(iter(plan.trials.values())).evaluation
    varied_words = ", ".join(map(short, plan.swept))
    return (
        f"{count(len(plan.trials), 'trial')} of run {base.run} of {base.experiment}, varied in "
        f"{varied_words or 'nothing'}. They are ranked by an upper bound on the negative "
        "log-likelihood of held-out documents: exact for a baseline, "
        f"IWAE-{evaluation.iwae_samples} for a Free Transformer. Lower is better."
    )


def findings(plan: Plan, results: dict[str, Result]) -> list[str]:
    """What the sweep found, one sentence an entry."""
    ranking, runs = rank(plan, results), done_runs(plan, results)
    sentences = []
    if ranking:
        best = ranking.best
        seeds = f", mean of {count(len(best.bounds), 'seed')}" if len(best.bounds) > 1 else ""
        sentences.append(f"Lowest bound: {best.words}: {best.bound} {UNITS[plan.unit]}{seeds}.")
        others = ranking.settings[1:]
        alike = [s for s in others if not ranking.differs(s)]
        above = [s for s in others if ranking.differs(s)]
        if alike:
            sentences.append(f"No difference measured from it: {listed(ranking, alike)}.")
        if above:
            sentences.append(f"Above it: {listed(ranking, above)}.")
        first = next(iter(runs.values()))
        if len(runs) > len(ranking.settings):
            sentences.append(
                f"Lowest single trial: {first.name}: {first.bound(plan.unit)} {UNITS[plan.unit]}."
            )
    else:
        sentences.append("No trial went to its end, so nothing is ranked.")
    for status, words in ((STOPPED, "stopped early, and not ranked"), (FAILED, "failed")):
        number = sum(result.status == status for result in results.values())
        if number:
            sentences.append(f"{count(number, 'trial')} {words}.")
    return sentences + collapses([Arm(name, [one]) for name, one in runs.items()])


def listed(ranking: Ranking, settings: list[Setting]) -> str:
    words = []
    for setting in settings[:LISTED]:
        found = ranking.difference(setting)
        words.append(f"{setting.words} ({signed(found.mean)} ± {found.se:.4f})")
    more = len(settings) - LISTED
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def caveat(plan: Plan, results: dict[str, Result]) -> str:
    """How far the findings go."""
    ranking = rank(plan, results)
    if ranking is None:
        return ""
    sentences = [
        "± is one standard error over held-out documents; a difference within two of them is "
        "reported as none."
    ]
    if ranking.spread is None:
        sentences.append(
            "One seed per setting: how far another seed would move these figures is not known."
        )
    else:
        sentences.append(
            f"Trials that differ only in their seed differ by up to {ranking.spread:.4f} "
            f"{UNITS[plan.unit]}; a smaller difference counts as none."
        )
    number = sum(result.status == DONE for result in results.values())
    if number > 1:
        sentences.append(
            f"The best of {number} trials looks better than it is: it was chosen for its figure on "
            "these very documents, luck included. Train it with other seeds before quoting it."
        )
    if any(setting.unfinished for setting in ranking.settings):
        sentences.append(
            "Where only some seeds of a setting went to the end, its mean leaves out the others, "
            "which may have been the worse ones."
        )
    return " ".join(sentences)


def draw(plan: Plan, results: dict[str, Result]) -> dict[str, Figure]:
    """A figure for each setting that was varied, κ first."""
    runs = done_runs(plan, results)
    figures = {}
    keys = varied(plan)
    for key in sorted(keys, key=lambda k: k != KAPPA):
        dots = [
            sweep_plots.Dot(
                plan.settings[name][key],
                settings_words({
                    k: v for k, v in setting_of(plan, name, keys).items() if k != key
                }) if len(keys) > 1 else "",
                one.bound(plan.unit).mean,
                one.collapsed,
            )
            for name, one in runs.items()
        ]  # fmt: skip
        if dots:
            figures[key.replace(".", "_")] = sweep_plots.bound_against(
                LABELS.get(key, key),
                dots,
                UNITS[plan.unit],
                lambda value, key=key: value_words(key, value),  # type: ignore[misc]
                log=key == KAPPA,
            )
    return figures


def trial_rows(plan: Plan, results: dict[str, Result]) -> list[dict[str, Any]]:
    """Everything known of each trial, at full precision; ranked ones first, then in order."""
    runs = done_runs(plan, results)
    rows = []
    for name in [*runs, *(n for n in plan.trials if n not in runs)]:
        result = results[name]
        row = {"trial": name, "status": result.status, **plan.settings[name]}
        if name in runs:
            row |= {k: v for k, v in run_row(runs[name]).items() if k != "run"}
        elif result.curve:
            last = result.curve[-1]
            row |= {"trained_tokens": last["tokens"], "training_bound_bits": training_bits(last)}
        rows.append(row | ({"error": result.error} if result.error else {}))
    return rows


def table_cells(plan: Plan, name: str) -> list[str]:
    return [value_words(key, plan.settings[name][key]) for key in plan.swept]


def share_trained(plan: Plan, result: Result) -> float:
    """Fraction of its budget that a trial was trained for."""
    experiment = plan.trials[result.trial]
    steps = experiment.steps(experiment.runs[result.trial])
    return result.curve[-1]["step"] / steps if result.curve else 0.0


def summary(plan: Plan, results: dict[str, Result], page: Path) -> str:
    """What the command prints last: the settings, ranked, and where the report is."""
    lines = []
    if ranking := rank(plan, results):
        rows = [("setting", "seeds", UNITS[plan.unit], "from the best")]
        for setting in ranking.settings[:LISTED]:
            differs = setting is not ranking.best and ranking.differs(setting)
            gap = signed(ranking.difference(setting).mean) if differs else "no difference"
            said = "" if setting is ranking.best else gap
            rows.append((setting.words, setting.seeds, str(setting.bound), said))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        if len(ranking.settings) > LISTED:
            lines.append(f"… and {len(ranking.settings) - LISTED} more")
        lines.append("")
    for status in (STOPPED, FAILED):
        names = [name for name in plan.trials if results[name].status == status]
        if names:
            lines.append(f"{status}: {', '.join(names)}")
    return "\n".join([*lines, f"The report is in {page}", ""])


def write(plan: Plan, results: dict[str, Result]) -> Path:
    """Write the report; returns its folder."""
    target = Path("sweeps") / plan.name / "report"
    context = {
        "plan": plan,
        "results": results,
        "runs": done_runs(plan, results),
        "ranking": rank(plan, results),
        "introduction": introduction(plan, results),
        "findings": findings(plan, results),
        "caveat": caveat(plan, results),
        "notes": {term: NOTES[term] for term in KEPT_NOTES},
        "unit": UNITS[plan.unit],
        "heads": [short(key) for key in plan.swept],
        "cells": lambda name: table_cells(plan, name),
        "bound": lambda one: one.bound(plan.unit),
        "stopped": [r for r in results.values() if r.status == STOPPED],
        "failed": [r for r in results.values() if r.status == FAILED],
        "share": lambda result: share_trained(plan, result),
        "training_bits": training_bits,
        "signed": signed,
    }
    with replace_folder(target) as folder:
        images = save_figures(draw(plan, results), folder / "figures")
        for template, name in (("sweep.html.jinja", "index.html"), ("sweep.md.jinja", "report.md")):
            page = templates(TEMPLATES).get_template(template).render(**context, images=images)
            (folder / name).write_text(page)
        write_table(folder / "trials.csv", trial_rows(plan, results))
        (folder / "summary.txt").write_text(summary(plan, results, target / "index.html"))
    return target
