"""The held-out bounds: all arms side by side, and against their baselines."""

from collections.abc import Callable
from dataclasses import dataclass

from pipelines.artifacts.results import UNITS, Estimate, Figures
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import Comparison
from pipelines.config.schema import Evaluation
from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section


@dataclass(frozen=True)
class Column:
    """A measured figure; ``comparable`` says whether arms may be compared by it."""

    label: str
    figure: Callable[[Figures], Estimate | None]
    comparable: bool


@dataclass(frozen=True)
class Differences:
    """The arms of one data set against its baselines, side by side."""

    controls: list[Arm]
    rows: list[tuple[Arm, list[Comparison | None]]]  # a comparison for each control


@dataclass(frozen=True)
class DataBounds:
    """The tables of one data set."""

    data: str
    arms: list[Arm]
    columns: list[Column]
    settings: Evaluation
    differences: Differences

    @property
    def filter_error(self) -> Estimate | None:
        """The filtering bound with the largest error of its own among the arms."""
        bounds = [arm.figures(self.units[0]).filtering for arm in self.arms]
        return max((b for b in bounds if b), key=lambda b: b.monte_carlo or 0, default=None)

    @property
    def half_variance(self) -> float:
        """Of a filter's log estimate, the largest of the arms."""
        bounds = [arm.figures(self.units[0]).filtering for arm in self.arms]
        return max((b.half_variance or 0.0 for b in bounds if b), default=0.0)

    @property
    def units(self) -> list[str]:
        """The first is the one to compare in."""
        return [unit for unit in UNITS if self.arms[0].first.figures(unit) != Figures()]

    @property
    def several_seeds(self) -> bool:
        return any(len(arm.runs) > 1 for arm in self.arms)

    @property
    def exact(self) -> Estimate | None:
        """Bits per token of the process itself, where it is known."""
        return self.arms[0].first.evaluation.bits_per_token.exact

    @property
    def documents(self) -> int:
        return self.arms[0].first.evaluation.documents


def section(analysis: Analysis) -> Section:
    content = [
        DataBounds(
            data,
            arms,
            columns(analysis.settings),
            analysis.settings,
            differences(analysis.compared_on(data), arms),
        )
        for data, arms in analysis.by_data.items()
    ]
    return Section("bounds", "Measurements", content=content)


def columns(settings: Evaluation) -> list[Column]:
    return [
        Column("NLL (exact)", lambda figures: figures.nll, True),
        Column("filtering bound", lambda figures: figures.filtering, True),
        Column("ELBO bound", lambda figures: figures.elbo, False),
        Column(f"IWAE-{settings.iwae_samples} bound", lambda figures: figures.iwae, False),
        Column("prior-sample bound", lambda figures: figures.prior, False),
        Column("KL", lambda figures: figures.kl, False),
        Column("reconstruction CE", lambda figures: figures.ce, False),
    ]


def differences(comparisons: list[Comparison], arms: list[Arm]) -> Differences:
    controls = [arm for arm in arms if any(c.other is arm for c in comparisons)]
    by_pair = {(c.arm.name, c.other.name): c for c in comparisons}
    compared = [arm for arm in arms if any(c.arm is arm for c in comparisons)]
    rows = [(a, [by_pair.get((a.name, control.name)) for control in controls]) for a in compared]
    return Differences(controls, rows)
