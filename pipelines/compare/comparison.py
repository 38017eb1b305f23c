"""Compares an experiment's arms by *the* rule for differences in ftmodel/analysis/differences.py.

Arms are compared with the baselines of their family by the final bound, and with the plain one at
each token budget and over the last third of training. Free Transformers with another design of the
latent are compared with their model's own design. Last, what z is worth to each of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan

import torch

from ftmodel.analysis.differences import (
    Difference,
    DocumentError,
    Pool,
    difference,
    document_error,
    pool_seeds,
)
from pipelines.artifacts.result_files import late_tokens
from pipelines.artifacts.results import Estimate
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.arms import Arm, OverSeeds, baselines, by_data, families, grouped, over_seeds

NOT_DECIDED = "not decided: the bound is loose"


@dataclass(frozen=True)
class Comparison(Difference):
    """An arm's figure minus another's, means over the seeds of each, in ``unit``."""

    arm: Arm
    other: Arm
    unit: str
    survives: bool = False  # as a difference, that so many were tested; the report finds out

    @property
    def worse(self) -> bool:
        """Whether the arm is worse, and not only its bound higher."""
        return self.verdict == "higher" and not self.may_be_loose

    @property
    def may_be_loose(self) -> bool:
        """Whether the verdict changes if either bound is as loose as it may be."""
        least = self.mean - self.arm.looseness(self.unit)
        most = self.mean + self.other.looseness(self.unit)
        return any(replace(self, mean=mean).verdict != self.verdict for mean in (least, most))

    @property
    def convergence(self) -> str:
        """The suffix for its number if the bound of either arm did not converge, else ""."""
        return self.arm.bound(self.unit).convergence or self.other.bound(self.unit).convergence

    @property
    def qualified_verdict(self) -> str:
        return NOT_DECIDED if self.may_be_loose else self.verdict

    @property
    def one_seed(self) -> bool:
        """Whether each arm has one seed, so that another seed may reverse the verdict."""
        return len(self.arm.runs) == len(self.other.runs) == 1

    @property
    def decided(self) -> bool:
        """Whether it reports a difference, or that none matters, however loose the bounds are."""
        return self.qualified_verdict in ("lower", "higher", "equivalent")

    @property
    def counts(self) -> bool:
        """Whether it is decided on several seeds."""
        return self.decided and not self.one_seed

    @property
    def how_far(self) -> str:
        """How large the difference may be, in words, where none was shown; may be empty."""
        if self.verdict == "equivalent":
            return f"within {self.smallest_effect:g}"
        return f"could be up to {self.furthest:.2g}" if self.verdict == "not decided" else ""

    @property
    def words(self) -> str:
        """How far, the threshold for the difference and the number of seeds, in words."""
        if isnan(self.threshold):
            return "its error is not known"
        mine, others = len(self.arm.runs), len(self.other.runs)
        seeds = f"{mine} and {others} seeds" if mine + others > 2 else "one seed each"
        far = f"{self.how_far}; " if self.how_far else ""
        return f"{far}threshold {self.threshold:.4f}, {seeds}"


def contrast(
    arm: Arm,
    other: Arm,
    unit: str,
    seeds: list[float],
    other_seeds: list[float],
    documents: DocumentError | None = None,
    pool: Pool | None = None,
    smallest_effect: float | None = None,
) -> Comparison:
    """Compare a figure of every seed of two arms; the rest is as in `difference`."""
    test = difference(seeds, other_seeds, documents, pool, smallest_effect)
    return Comparison(**vars(test), arm=arm, other=other, unit=unit)


def over_documents(arm: Arm, other: Arm, unit: str) -> DocumentError:
    """Error over documents of the difference between two arms' bounds, means over seeds."""
    bits, other_bits = (
        torch.stack([run.document_bits() for run in each.runs]) for each in (arm, other)
    )
    return document_error(bits, other_bits, arm.first.details.sizes(unit))


def contrast_bounds(
    arm: Arm, other: Arm, unit: str, arms: list[Arm], smallest_effect: float | None = None
) -> Comparison:
    """Compare one of ``arms`` with another by their bounds on the same held-out documents."""
    return contrast(
        arm,
        other,
        unit,
        seeds=arm.bounds(unit),
        other_seeds=other.bounds(unit),
        documents=over_documents(arm, other, unit),
        pool=pool_seeds(each.bounds(unit) for each in poolable(arm, other, arms)),
        smallest_effect=smallest_effect,
    )


def poolable(arm: Arm, other: Arm, arms: list[Arm]) -> list[Arm]:
    """Arms whose spread over seeds may stand for the two's: the families of both."""
    return [each for group in families(arms) if arm in group or other in group for each in group]


def controls(arm: Arm, arms: list[Arm]) -> list[Arm]:
    """The baselines to compare an arm with, smaller ones first: all of its family for a Free
    Transformer, only the plain one for a baseline.
    """
    if arm.plain:
        return []
    (family,) = [group for group in families(arms) if arm in group]
    return [other for other in baselines(family) if other.plain or not arm.baseline]


def from_plain(
    arms: list[Arm],
    values: Mapping[str, list[Estimate]],
    unit: str,
    documents: Callable[[Arm, Arm], DocumentError] | None = None,
    smallest_effect: float | None = None,
) -> dict[str, Comparison]:
    """Compare arms with the plain baseline of their family by ``values``, a figure of every seed by
    arm. Without ``documents``, the error over documents, seeds alone decide.
    """
    means = {name: [value.mean for value in each] for name, each in values.items()}
    present = [arm for arm in arms if arm.name in values]
    differences = {}
    for arm in present:
        for other in (other for other in controls(arm, present) if other.plain):
            pool = pool_seeds(means[each.name] for each in poolable(arm, other, present))
            differences[arm.name] = contrast(
                arm,
                other,
                unit,
                seeds=means[arm.name],
                other_seeds=means[other.name],
                documents=documents(arm, other) if documents else None,
                pool=pool,
                smallest_effect=smallest_effect,
            )
    return differences


def compare(arms: list[Arm], smallest_effect: float | None = None) -> list[Comparison]:
    """Compare each arm's bound with its controls' bounds; arms without controls are left out."""
    return [
        contrast_bounds(arm, other, arm.unit, group, smallest_effect)
        for group in by_data(arms).values()
        for arm in group
        for other in controls(arm, group)
    ]


@dataclass(frozen=True)
class BudgetBound:
    """An arm's bound at a token budget, or over the last third of training. Bounds of single
    documents are kept for the final budget alone, so at the others only seeds decide what counts.
    """

    bound: OverSeeds
    note: str  # what kind of figure it is; may be empty
    difference: Comparison | None  # from the plain baseline


BoundsByArm = dict[str, BudgetBound]


@dataclass(frozen=True)
class BudgetTable:
    """Arms on one data set, a column for each budget and one for the last third of training."""

    columns: dict[str, BoundsByArm]  # by their heads
    arms: list[Arm]

    @property
    def by_seeds(self) -> list[Comparison]:
        """Comparisons that only seeds decide, so none of the final bounds."""
        found = [each.difference for column in self.columns.values() for each in column.values()]
        return [each for each in found if each and each.documents is None]


def budget_table(
    arms: list[Arm], comparisons: list[Comparison], smallest_effect: float | None = None
) -> BudgetTable:
    """The table of arms on one data set, whose final bounds ``comparisons`` compares."""
    arms = [arm for arm in arms if all(run.evaluation.budgets for run in arm.runs)]
    tokens = sorted({entry.tokens for arm in arms for entry in arm.first.evaluation.budgets})
    columns = {
        f"{number:,} tokens": at_budget(arms, number, comparisons, smallest_effect)
        for number in tokens
    }
    columns["mean of the last third"] = over_last_third(arms, smallest_effect)
    return BudgetTable(columns, arms)


def at_budget(
    arms: list[Arm],
    tokens: int,
    comparisons: list[Comparison],
    smallest_effect: float | None = None,
) -> BoundsByArm:
    """The column for a budget, with the arms all of whose seeds have it."""
    bounds: dict[str, list[Estimate]] = {}
    notes = {}
    for arm in arms:
        budgets = [entry for run in arm.runs for entry in run.evaluation.budgets]
        here = [entry for entry in budgets if entry.tokens == tokens]
        if len(here) == len(arm.runs):
            bounds[arm.name] = [entry.figures(arm.unit).bound for entry in here]
            notes[arm.name] = "" if here[0].annealed else "snapshot"
    final = {  # their errors over documents are known
        c.arm.name: c for c in comparisons if c.other.plain and c.arm.trained_tokens == tokens
    }
    by_seeds = from_plain(arms, bounds, arms[0].unit, smallest_effect=smallest_effect)
    differences = by_seeds | final
    return {
        name: BudgetBound(over_seeds(each), notes[name], differences.get(name))
        for name, each in bounds.items()
    }


def over_last_third(arms: list[Arm], smallest_effect: float | None = None) -> BoundsByArm:
    """The column of means over the last third, compared if over the same budgets, at least two."""
    column: BoundsByArm = {}
    groups = grouped(arms, lambda arm: late_tokens(run.evaluation.budgets for run in arm.runs))
    for budgets, group in groups.items():
        bounds = {arm.name: arm.last_third for arm in group}
        notes = {0: "budgets differ by seed", 1: "the final budget alone"}
        note = notes.get(len(budgets), f"{len(budgets)} budgets")
        differences: dict[str, Comparison] = {}
        if len(budgets) > 1:
            unit = group[0].unit
            differences = from_plain(group, bounds, unit, smallest_effect=smallest_effect)
        column |= {
            name: BudgetBound(over_seeds(each), note, differences.get(name))
            for name, each in bounds.items()
        }
    return column


NAMES = {  # of settings of the latent
    "latent_bits": "H",
    "latent_block": "block",
    "latent.encoder_layers": "encoder blocks",
    "latent.per": "a code per",
    "latent.every": "a code every",
}


@dataclass(frozen=True)
class Designs:
    """Arms of one family and threshold, one of which has its model's design."""

    own: Arm
    others: list[Comparison]  # arms of another design, compared with ``own`` by the bound

    @property
    def arms(self) -> list[Arm]:
        return [self.own, *(comparison.arm for comparison in self.others)]


def design_words(arm: Arm) -> str:
    """An arm's design in words, such as `map linear, H 16` or `a code every 8`."""
    changes = arm.first.design_changes
    words = [
        f"{NAMES.get(key, key.removeprefix('latent.'))} {value}"
        for key, value in changes.items()
        if key != "latent.per" or "latent.every" not in changes  # which says it
    ]
    return ", ".join(words) or "its model's"


def designs(arms: Sequence[Arm], smallest_effect: float | None = None) -> list[Designs]:
    """A group for each family and threshold with the model's own design and another."""
    groups = []
    for family in families([*arms]):
        free = (arm for arm in family if not arm.baseline)
        by_threshold = grouped(
            free, lambda arm: (arm.run.kappa_bits, arm.run.kappa_warmup_steps, arm.run.beta)
        )
        for alike in by_threshold.values():
            own = next((arm for arm in alike if arm.preset_design), None)
            others = [arm for arm in alike if not arm.preset_design]
            if own and others:
                against = [
                    contrast_bounds(arm, own, own.unit, family, smallest_effect) for arm in others
                ]
                groups.append(Designs(own, against))
    return groups


NEGLIGIBLE = 0.05  # share of the KL
NO_KL = 0.005  # bits per token, for a κ of 1 and more


@dataclass(frozen=True)
class UseOfZ:
    """What z is worth to a Free Transformer: what its KL buys, in bits per token."""

    arm: Arm
    baseline: Arm | None  # the plain one of the same data, model and token budget
    kl: Estimate
    use: Estimate  # filtering bound − reconstruction CE: what the encoder's z adds to the past
    waste: Estimate  # KL − use
    ce: Estimate

    @property
    def ignored(self) -> bool:
        """Whether κ pays for bits, but their use is negligible or within its error of 0."""
        return bool(self.arm.run.kappa_bits) and negligible(self.use, self.kl)

    @property
    def divided(self) -> tuple[list[RunResults], list[RunResults]] | None:
        """The runs that use z, and those that ignore it, if the arm's seeds differ in that."""
        if not self.arm.run.kappa_bits:
            return None
        using, ignoring = list[RunResults](), list[RunResults]()
        for run in self.arm.runs:
            figures = run.figures("bits_per_token")
            assert figures.use and figures.kl, "every Free Transformer has all figures"
            (ignoring if negligible(figures.use, figures.kl) else using).append(run)
        return (using, ignoring) if using and ignoring else None

    @property
    def recovery(self) -> float | None:
        """(NLL of the baseline − reconstruction CE) / KL; None without a baseline or a KL."""
        least = NO_KL * min(1, self.arm.run.kappa_bits or 1)
        if self.baseline is None or self.kl.mean < least:
            return None
        nll = self.baseline.bound("bits_per_token").mean
        return (nll - self.ce.mean) / self.kl.mean


def negligible(use: Estimate, kl: Estimate) -> bool:
    return use.mean < max(2 * use.se, NEGLIGIBLE * kl.mean)


def uses_of_z(arms: list[Arm]) -> list[UseOfZ]:
    """The use of z by each Free Transformer, in order."""
    uses = []
    for arm in (arm for arm in arms if not arm.baseline):
        plain = next((other for other in controls(arm, arms) if other.plain), None)
        f = arm.figures("bits_per_token")
        assert f.kl and f.use and f.waste and f.ce, "every Free Transformer has all figures"
        uses.append(UseOfZ(arm, plain, f.kl, f.use, f.waste, f.ce))
    return uses
