"""The report of a sweep, sweeps/<sweep>/report/: index.html, report.md, trials.csv, figures/ and
summary.txt.

Trials are ranked by their held-out bound alone. A setting is what is left of a trial without its
seed; settings that differ by less than seeds do are called no different.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from ftmodel.bounds import mean_and_error
from pipelines import sweep_plots
from pipelines.arms import Arm, Estimate, fraction, training_bits
from pipelines.findings import NOTES, collapses, count, signed
from pipelines.report import arm_row, save_figures, templates, write_table
from pipelines.stage import replace_folder
from pipelines.sweep_schema import LATENT, Plan, Settings
from pipelines.trial import DONE, FAILED, STOPPED, Result

KAPPA, SEED = "run.kappa_bits", "run.seed"
LABELS = {
    KAPPA: "κ, bits per token",
    "architecture.latent_bits": "H, latent bits",
    "optim.lr": "learning rate",
    "run.tokens": "training tokens",
}
SHORT = {KAPPA: "κ", "architecture.latent_bits": "H"}  # others by their last word
UNITS = {"bits_per_token": "bits per token", "bits_per_byte": "bits per byte"}
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


def bound_of(arm: Arm, unit: str) -> Estimate:
    found = arm.figure(arm.bound_key, unit)
    assert found is not None, f"{arm.name} has no bound in {unit}"
    return found


@dataclass(frozen=True)
class Setting:
    """Trials that differ in their seed alone."""

    words: str
    arms: list[Arm]
    unit: str
    unfinished: int  # trials of this setting that were stopped or failed

    @cached_property
    def bounds(self) -> list[float]:
        return [bound_of(arm, self.unit).mean for arm in self.arms]

    @cached_property
    def sequences(self) -> torch.Tensor | None:
        """Bound of each held-out sequence, mean over seeds, where all were scored on the same."""
        scored = [torch.tensor(arm.details["bound_bits"]).double() for arm in self.arms]
        if self.unit != "bits_per_token" or len({len(bounds) for bounds in scored}) > 1:
            return None
        return torch.stack(scored).mean(0)

    @cached_property
    def bound(self) -> Estimate:
        """Mean over seeds; the error is that of measuring on held-out sequences."""
        mean = sum(self.bounds) / len(self.bounds)
        if self.sequences is not None:
            return Estimate(mean, mean_and_error(self.sequences)["se"])
        errors = [bound_of(arm, self.unit).se for arm in self.arms]
        return Estimate(mean, sum(errors) / len(errors))  # the same data: seeds share the error

    @property
    def spread(self) -> float:
        return max(self.bounds) - min(self.bounds)

    @property
    def seeds(self) -> str:
        total = len(self.arms) + self.unfinished
        return str(total) if not self.unfinished else f"{len(self.arms)} of {total}"


@dataclass(frozen=True)
class Ranking:
    """Settings from the lowest bound on, and how much their seeds differ."""

    settings: list[Setting]
    same_windows: bool  # whether all trials are scored on the same held-out tokens

    @property
    def best(self) -> Setting:
        return self.settings[0]

    @property
    def spread(self) -> float | None:
        """Largest difference between trials that differ only in their seed; None if none do."""
        return max((s.spread for s in self.settings if len(s.arms) > 1), default=None)

    def difference(self, setting: Setting) -> Estimate:
        """Bound minus the best one, with its standard error."""
        mine, best = setting.sequences, self.best.sequences
        if self.same_windows and mine is not None and best is not None and len(mine) == len(best):
            return Estimate(**mean_and_error(mine - best))
        errors = (setting.bound.se, self.best.bound.se)
        return Estimate(setting.bound.mean - self.best.bound.mean, sqrt(sum(e * e for e in errors)))

    def differs(self, setting: Setting) -> bool:
        found = self.difference(setting)
        return found.mean > max(2 * found.se, self.spread or 0.0)


def done_arms(plan: Plan, results: dict[str, Result]) -> dict[str, Arm]:
    """The trials that went to their end, from the lowest bound on."""
    arms = {
        name: results[name].arm(experiment)
        for name, experiment in plan.trials.items()
        if results[name].status == DONE
    }
    return dict(sorted(arms.items(), key=lambda item: bound_of(item[1], plan.unit).mean))


def best_trial(plan: Plan, results: dict[str, Result]) -> Arm | None:
    return next(iter(done_arms(plan, results).values()), None)


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
    arms = done_arms(plan, results)
    groups: dict[str, list[Arm]] = defaultdict(list)
    unfinished: dict[str, int] = defaultdict(int)
    for name in plan.trials:
        words = settings_words(setting_of(plan, name, varied(plan)))
        if name in arms:
            groups[words].append(arms[name])
        else:
            unfinished[words] += 1
    settings = [Setting(w, group, plan.unit, unfinished[w]) for w, group in groups.items()]
    if not settings:
        return None
    contexts = {e.model_config(e.runs[name]).context for name, e in plan.trials.items()}
    same_windows = len(contexts) == 1 and len(plan.data) == 1
    return Ranking(sorted(settings, key=lambda s: s.bound.mean), same_windows)


def introduction(plan: Plan, results: dict[str, Result]) -> str:
    base = plan.sweep
    evaluation = next(iter(plan.trials.values())).evaluation
    varied_words = ", ".join(map(short, plan.swept))
    return (
        f"{count(len(plan.trials), 'trial')} of run {base.run} of {base.experiment}, varied in "
        f"{varied_words or 'nothing'}. They are ranked by an upper bound on the negative "
        "log-likelihood of held-out sequences: exact for a baseline, "
        f"IWAE-{evaluation.iwae_samples} for a Free Transformer. Lower is better."
    )


def findings(plan: Plan, results: dict[str, Result]) -> list[str]:
    """What the sweep found, one sentence an entry."""
    ranking, arms = rank(plan, results), done_arms(plan, results)
    sentences = []
    if ranking:
        best = ranking.best
        seeds = f", mean of {count(len(best.arms), 'seed')}" if len(best.arms) > 1 else ""
        sentences.append(f"Lowest bound: {best.words}: {best.bound} {UNITS[plan.unit]}{seeds}.")
        others = ranking.settings[1:]
        alike = [s for s in others if not ranking.differs(s)]
        above = [s for s in others if ranking.differs(s)]
        if alike:
            sentences.append(f"No difference measured from it: {listed(ranking, alike)}.")
        if above:
            sentences.append(f"Above it: {listed(ranking, above)}.")
        first = next(iter(arms.values()))
        if len(arms) > len(ranking.settings):
            sentences.append(
                f"Lowest single trial: {first.name}: {bound_of(first, plan.unit)} "
                f"{UNITS[plan.unit]}."
            )
    else:
        sentences.append("No trial went to its end, so nothing is ranked.")
    for status, words in ((STOPPED, "stopped early, and not ranked"), (FAILED, "failed")):
        number = sum(result.status == status for result in results.values())
        if number:
            sentences.append(f"{count(number, 'trial')} {words}.")
    return sentences + collapses(list(arms.values()))


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
        "± is one standard error over held-out sequences; a difference within two of them is "
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
            "these very sequences, luck included. Train it with other seeds before quoting it."
        )
    if any(setting.unfinished for setting in ranking.settings):
        sentences.append(
            "Where only some seeds of a setting went to the end, its mean leaves out the others, "
            "which may have been the worse ones."
        )
    return " ".join(sentences)


def draw(plan: Plan, results: dict[str, Result]) -> dict[str, Figure]:
    """A figure for each setting that was varied, κ first."""
    arms = done_arms(plan, results)
    figures = {}
    keys = varied(plan)
    for key in sorted(keys, key=lambda k: k != KAPPA):
        dots = [
            sweep_plots.Dot(
                plan.settings[name][key],
                settings_words({
                    k: v for k, v in setting_of(plan, name, keys).items() if k != key
                }) if len(keys) > 1 else "",
                bound_of(arm, plan.unit).mean,
                arm.collapsed,
            )
            for name, arm in arms.items()
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
    arms = done_arms(plan, results)
    rows = []
    for name in [*arms, *(n for n in plan.trials if n not in arms)]:
        result = results[name]
        row = {"trial": name, "status": result.status, **plan.settings[name]}
        if name in arms:
            row |= {k: v for k, v in arm_row(arms[name]).items() if k != "run"}
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
        "arms": done_arms(plan, results),
        "ranking": rank(plan, results),
        "introduction": introduction(plan, results),
        "findings": findings(plan, results),
        "caveat": caveat(plan, results),
        "notes": {term: NOTES[term] for term in KEPT_NOTES},
        "unit": UNITS[plan.unit],
        "heads": [short(key) for key in plan.swept],
        "cells": lambda name: table_cells(plan, name),
        "bound": lambda arm: bound_of(arm, plan.unit),
        "stopped": [r for r in results.values() if r.status == STOPPED],
        "failed": [r for r in results.values() if r.status == FAILED],
        "share": lambda result: share_trained(plan, result),
        "training_bits": training_bits,
        "signed": signed,
    }
    with replace_folder(target) as folder:
        images = save_figures(draw(plan, results), folder / "figures")
        for template, name in (("sweep.html.jinja", "index.html"), ("sweep.md.jinja", "report.md")):
            page = templates().get_template(template).render(**context, images=images)
            (folder / name).write_text(page)
        write_table(folder / "trials.csv", trial_rows(plan, results))
        (folder / "summary.txt").write_text(summary(plan, results, target / "index.html"))
    return target
