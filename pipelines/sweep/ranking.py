"""The trials of a sweep, ranked by their held-out bound alone.

A setting is what trials share that differ only in their seed: an arm. Whether settings differ is
decided as in the report, by the rule of ftmodel/analysis/differences.py.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from math import hypot
from typing import Any

from ftmodel.analysis.differences import DocumentError, pool_seeds
from pipelines.artifacts.results import UNITS
from pipelines.artifacts.run_results import RunResults, fraction
from pipelines.compare.arms import Arm, OverSeeds
from pipelines.compare.comparison import Comparison, contrast, contrast_bounds, poolable
from pipelines.sweep.plan import LATENT, Plan, Settings
from pipelines.sweep.result import DONE, Result

KAPPA, SEED = "run.kappa_bits", "run.seed"
SHORT = {KAPPA: "κ", "architecture.latent_bits": "H"}  # others by their last word


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
        text = value_words(key, value)
        words.append(text if text == "baseline" else f"{short(key)} = {text}")
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
        return self.arm.bounds(self.unit)

    @property
    def bound(self) -> OverSeeds:
        return self.arm.bound(self.unit)

    @property
    def seeds(self) -> str:
        done = len(self.arm.runs)
        return f"{done} of {done + self.unfinished}" if self.unfinished else str(done)


@dataclass(frozen=True)
class Ranking:
    """Settings from the lowest bound on."""

    settings: list[Setting]
    same_documents: bool  # whether all trials are scored on the same held-out tokens

    @property
    def best(self) -> Setting:
        return self.settings[0]

    @cached_property
    def differences(self) -> dict[str, Comparison]:
        """Every other setting minus the best one, by its words."""
        return {setting.words: self.difference(setting) for setting in self.settings[1:]}

    def difference(self, setting: Setting) -> Comparison:
        arm, best, unit = setting.arm, self.best.arm, setting.unit
        arms = [each.arm for each in self.settings]
        if self.same_documents:
            return contrast_bounds(arm, best, unit, arms)
        documents = min(each.first.evaluation.documents for each in (arm, best))
        errors = hypot(setting.bound.se, self.best.bound.se)  # as if of different documents
        pool = pool_seeds(each.bounds(unit) for each in poolable(arm, best, arms))
        over = DocumentError(errors, documents - 1)
        return contrast(arm, best, unit, setting.bounds, self.best.bounds, over, pool)

    def with_verdict(self, verdict: str) -> list[Comparison]:
        return [c for c in self.differences.values() if c.verdict == verdict]


@dataclass(frozen=True)
class SweepAnalysis:
    """What the report of a sweep is made from."""

    plan: Plan
    results: dict[str, Result]

    @cached_property
    def runs(self) -> dict[str, RunResults]:
        """The finished trials, from the lowest bound on."""
        runs = {
            name: self.results[name].run_results(experiment)
            for name, experiment in self.plan.trials.items()
            if self.results[name].status == DONE
        }
        return dict(sorted(runs.items(), key=lambda item: item[1].bound(self.plan.unit).mean))

    @property
    def best_trial(self) -> RunResults | None:
        return next(iter(self.runs.values()), None)

    @property
    def unit(self) -> str:
        return UNITS[self.plan.unit]

    @property
    def varied(self) -> list[str]:
        """The keys that tell settings apart."""
        return [key for key in self.plan.swept if key != SEED]

    def with_status(self, status: str) -> list[Result]:
        return [result for result in self.results.values() if result.status == status]

    def setting_of(self, name: str) -> Settings:
        """A trial's values of the varied keys; a baseline has none of a latent's."""
        run = self.plan.trials[name].runs[name]
        return {
            key: self.plan.settings[name][key]
            for key in self.varied
            if run.kappa_bits is not None or not key.startswith(LATENT)
        }

    @cached_property
    def ranking(self) -> Ranking | None:
        """None if no trial finished."""
        groups: dict[str, list[RunResults]] = defaultdict(list)
        unfinished: dict[str, int] = defaultdict(int)
        for name in self.plan.trials:
            words = settings_words(self.setting_of(name))
            if name in self.runs:
                groups[words].append(self.runs[name])
            else:
                unfinished[words] += 1
        if not groups:
            return None
        settings = [
            Setting(Arm(words, runs), self.plan.unit, unfinished[words])
            for words, runs in groups.items()
        ]
        contexts = {e.model_config(e.runs[name]).context for name, e in self.plan.trials.items()}
        same_documents = len(contexts) == 1 and len(self.plan.data) == 1
        return Ranking(sorted(settings, key=lambda s: s.bound.mean), same_documents)

    def share_trained(self, result: Result) -> float:
        """Fraction of its budget that a trial was trained for."""
        experiment = self.plan.trials[result.trial]
        steps = experiment.steps(experiment.runs[result.trial])
        return result.curve[-1].step / steps if result.curve else 0.0
