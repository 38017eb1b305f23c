"""What a report is made from: the arms and all comparisons between them, computed once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from matplotlib.figure import Figure

from ftmodel.analysis.differences import LEVEL, Difference
from ftmodel.analysis.statistics import adjusted
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.arms import Arm, by_data, families
from pipelines.compare.comparison import (
    BudgetTable,
    Comparison,
    Designs,
    UseOfZ,
    budget_table,
    compare,
    contrast_bounds,
    designs,
    uses_of_z,
)
from pipelines.config.arms import family_words
from pipelines.config.schema import EvaluationConfig, Expectation
from pipelines.report.benchmarks import Benchmarks, benchmarks, sampled_tasks
from pipelines.report.blocks import Picture, Text
from pipelines.report.style import Style, styles


@dataclass(frozen=True)
class Analysis:
    arms: list[Arm]
    settings: EvaluationConfig  # of what was measured
    expectation: list[Expectation] = field(default_factory=list)
    pages: Mapping[str, str] = field(default_factory=dict)  # of runs in MLflow, by name
    smallest_effect: float | None = None  # of the experiment, bits

    @property
    def runs(self) -> list[RunResults]:
        return [run for arm in self.arms for run in arm.runs]

    @cached_property
    def by_data(self) -> dict[str, list[Arm]]:
        return by_data(self.arms)

    @cached_property
    def families(self) -> list[list[Arm]]:
        return families(self.arms)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Comparisons of the final bounds, with those marked that survive `adjusted_level`."""
        return self.marked(self.compared)

    @cached_property
    def compared(self) -> list[Comparison]:
        """As `comparisons`, before it is known which survive."""
        return compare(self.arms, self.smallest_effect)

    @cached_property
    def expected(self) -> list[Comparison]:
        """Comparisons of the final bounds of each expectation's two arms, in order."""
        arms = {arm.name: arm for arm in self.arms}
        return [
            contrast_bounds(
                arms[each.arm],
                arms[each.than],
                arms[each.arm].unit,
                self.arms,
                each.smallest_effect,
            )
            for each in self.expectation
        ]

    @cached_property
    def designs(self) -> list[Designs]:
        """Groups of Free Transformers that differ only in the design of their latent."""
        return [replace(each, others=self.marked(each.others)) for each in self.by_design]

    @cached_property
    def by_design(self) -> list[Designs]:
        """As `designs`, before it is known which survive."""
        return designs(self.arms, self.smallest_effect)

    @cached_property
    def budgets(self) -> dict[str, BudgetTable]:
        """Tables, by data, of arms measured at smaller budgets."""
        found = {
            data: budget_table(
                arms,
                [c for c in self.compared if c.arm.run.data == data],
                self.smallest_effect,
            )
            for data, arms in self.by_data.items()
        }
        return {data: table for data, table in found.items() if table.arms}

    @cached_property
    def benchmarks(self) -> list[Benchmarks]:
        """The benchmarks of each family that was scored on a suite."""
        return [replace(each, adjusted_level=self.adjusted_level) for each in self.scored]

    @cached_property
    def scored(self) -> list[Benchmarks]:
        """As `benchmarks`, before it is known which differences survive."""
        return benchmarks(self.arms)

    @cached_property
    def uses(self) -> dict[str, UseOfZ]:
        """What z is worth to each Free Transformer, by its name."""
        uses = (use for arms in self.by_data.values() for use in uses_of_z(arms))
        return {use.arm.name: use for use in uses}

    @cached_property
    def style(self) -> dict[str, Style]:
        """The look of each arm, the same in all figures."""
        return styles(arm.name for arm in self.arms)

    def pictures(
        self,
        name: str,
        description: str,
        shown: Callable[[Arm], object],
        draw: Callable[[list[Arm], Mapping[str, Style]], Figure],
    ) -> list[Picture]:
        """A figure for each data set that has arms to be shown in it."""
        return [
            Picture(f"{name}_{data}", draw(arms, self.style), f"{description} on {data}")
            for data, group in self.by_data.items()
            if (arms := [arm for arm in group if shown(arm)])
        ]

    def heading(self, arm: Arm, words: str) -> Text:
        """The heading of a part about this arm, with a link to its first run in MLflow."""
        page = self.pages.get(arm.first.name)
        return Text(f"### {words}" + (f"\n\n[{arm.first.name} in MLflow]({page})" if page else ""))

    def compared_on(self, data: str) -> list[Comparison]:
        return [c for c in self.comparisons if c.arm.run.data == data]

    def family_name(self, family: list[Arm]) -> str:
        """The data's name, with model, budget and parent if the data have several families."""
        first = family[0].first
        alone = len(families(self.by_data[first.run.data])) == 1
        return first.run.data if alone else "_".join(family_words(first.family))

    @cached_property
    def tested(self) -> list[Difference]:
        """All differences with a verdict: of the final bounds, at smaller budgets and over the last
        third; of benchmarks and pass@k; of designs of the latent; and of further pairs of arms with
        an expectation.
        """
        further = [c for group in self.by_design for c in group.others]
        pairs = [{c.arm.name, c.other.name} for c in [*self.compared, *further]]
        further += [c for c in self.expected if {c.arm.name, c.other.name} not in pairs]
        by_seeds = [c for table in self.budgets.values() for c in table.by_seeds]
        scores = [score for each in self.scored for score in each.compared]
        scores += [s for b in self.scored for t in sampled_tasks(b) for s in t.compared]
        found = [*self.compared, *further, *by_seeds, *(s.difference for s in scores)]
        return [each for each in found if each and each.verdict != "not known"]

    @cached_property
    def adjusted_level(self) -> float:
        """The largest p-value of those that survive the procedure of Benjamini & Hochberg over all
        that was tested; negative if none does.
        """
        p_values = [each.p_value for each in self.tested]
        pairs = zip(p_values, adjusted(p_values), strict=True)
        return max((p for p, by_all in pairs if by_all <= LEVEL), default=-1.0)

    def marked(self, comparisons: list[Comparison]) -> list[Comparison]:
        """Comparisons with those marked that count as a difference and survive."""
        return [
            replace(c, survives=c.p_value <= self.adjusted_level)
            if c.counts and c.verdict != "equivalent"
            else c
            for c in comparisons
        ]
