"""What z costs and is worth as models grow: tax, use of z and recovery of arms of several sizes at
constant tokens per parameter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ftmodel.analysis.differences import MIN_POINTS, Interval, Trend, log_linear, power_law
from ftmodel.designs.hinge import LN2
from pipelines.artifacts.run_results import fraction
from pipelines.compare.arms import Arm, baselines, by_data, families
from pipelines.compare.comparison import UseOfZ, uses_of_z
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import MISSING, Block, Cell, Entries, Picture, Table, Text, table
from pipelines.report.sections import titled
from pipelines.report.style import (
    COLOURS,
    GREY,
    Style,
    add_legend,
    label_axes,
    millions,
    seeds_and_means,
)
from pipelines.report.wording import number, share, signed

TAX, LARGER_TAX = "tax", "tax over the larger baseline"  # a bound minus the mean NLL of a baseline
USE, RECOVERY = "use of z", "recovery"
AGAINST = {TAX: "the baseline", LARGER_TAX: "the larger baseline"}
MAX_RATIO_SPREAD = 1.1  # largest ÷ smallest tokens per parameter that count as constant
TARGET = 124_000_000  # parameters of the smallest GPT-2, to which the line is drawn


@dataclass(frozen=True)
class Rung:
    """The arms of one size. Figures are in nats per token."""

    baseline: Arm  # the plain one
    larger: Arm | None  # the baseline with most further blocks
    uses: dict[float, UseOfZ]  # of the Free Transformers, by κ

    @property
    def parameters(self) -> int:
        """Parameters of the plain baseline, by which a size is named."""
        return self.baseline.parameters

    @property
    def tokens_per_parameter(self) -> float:
        return self.baseline.trained_tokens / self.parameters

    def figures(self, kappa: float) -> dict[str, list[float]]:
        """What z costs and is worth: values of the seeds by name, empty if not known. Recovery is
        one value over all seeds, as in the section on use of z.
        """
        use, unit = self.uses[kappa], "bits_per_token"
        found = (run.figures(unit).use for run in use.arm.runs)

        def tax_over(baseline: Arm | None) -> list[float]:
            if baseline is None:
                return []
            nll = fmean(baseline.bounds(unit))
            return [(bound - nll) * LN2 for bound in use.arm.bounds(unit)]

        return {
            TAX: tax_over(self.baseline),
            LARGER_TAX: tax_over(self.larger),
            USE: [each.mean * LN2 for each in found if each],
            RECOVERY: [] if use.recovery is None else [use.recovery],
        }


@dataclass(frozen=True)
class Ladder:
    """All sizes on one data set, the smallest first."""

    data: str
    rungs: list[Rung]

    @cached_property
    def kappas(self) -> list[float]:
        """The values of κ that every size has."""
        return sorted(set.intersection(*(set(rung.uses) for rung in self.rungs)))

    def points(self, name: str, kappa: float) -> dict[float, list[float]]:
        """A figure's values by parameters, for each size that has it."""
        found = {rung.parameters: rung.figures(kappa)[name] for rung in self.rungs}
        return {size: seeds for size, seeds in found.items() if seeds}


@titled("Tax by model size")
def ladder(analysis: Analysis) -> Sequence[Block]:
    blocks: list[Block] = []
    for each in ladders(analysis.arms):
        alt = "Tax, use of z and recovery against parameters, the tax with a line to 124 million"
        blocks += [
            Text(f"**{each.data}:** {scope(each)}"),
            *size_table(each),
            *prediction_table(each),
            Picture(f"ladder_{each.data}", draw_ladder(each), f"{alt}, on {each.data}"),
        ]
    return blocks


def ladders(arms: list[Arm]) -> list[Ladder]:
    """A ladder for each data set with three sizes or more at constant tokens per parameter."""
    return [each for data, alike in by_data(arms).items() if (each := build_ladder(data, alike))]


def build_ladder(data: str, arms: list[Arm]) -> Ladder | None:
    rungs = [made for family in families(arms) if (made := rung(family))]
    rungs.sort(key=lambda each: each.parameters)
    sizes = {each.parameters for each in rungs}
    if not len(sizes) == len(rungs) >= MIN_POINTS:
        return None
    ratios = [each.tokens_per_parameter for each in rungs]
    whole = Ladder(data, rungs)
    return whole if max(ratios) <= MAX_RATIO_SPREAD * min(ratios) and whole.kappas else None


def rung(family: list[Arm]) -> Rung | None:
    """The rung of a family; None without a plain baseline or a Free Transformer."""
    uses: dict[float, UseOfZ] = {}
    for use in uses_of_z(family):
        if use.arm.preset_design:
            uses.setdefault(use.arm.run.kappa_bits or 0.0, use)
    controls = baselines(family)
    if not uses or not controls or not controls[0].plain:
        return None
    larger = [each for each in controls[1:] if not each.run.random_prefix]
    return Rung(controls[0], larger[-1] if larger else None, uses)


def trend(ladder: Ladder, kappa: float, tax: str, power: bool = False) -> Trend | None:
    """The trend of a tax with size: log-linear in means over seeds, or a power law."""
    points = ladder.points(tax, kappa)
    fit = power_law if power else log_linear
    return fit([*points], [fmean(seeds) for seeds in points.values()])


def size_table(ladder: Ladder) -> list[Table]:
    return table(
        {
            "model": rung.baseline.run.model,
            "parameters": Cell(f"{rung.parameters:,}"),
            "tokens per parameter": Cell(f"{rung.tokens_per_parameter:.2f}"),
            "κ": Cell(fraction(kappa)),
            **{
                name: mean_range(seeds, decimals=2 if name == RECOVERY else 4)
                for name, seeds in rung.figures(kappa).items()
            },
        }
        for rung in ladder.rungs
        for kappa in ladder.kappas
    )


def mean_range(seeds: list[float], decimals: int) -> Cell:
    """The mean over seeds and, if there are several, their range."""
    if not seeds:
        return MISSING
    low, mean, high = (number(f(seeds), decimals) for f in (min, fmean, max))
    return Cell(mean, f"({low} to {high})" if len(seeds) > 1 else "")


def scope(ladder: Ladder) -> str:
    """How far 124 M lies beyond the sizes, and whether the decoders read z."""
    uses = [rung.uses[kappa] for rung in ladder.rungs for kappa in ladder.kappas if kappa]
    said = f"124 M is {TARGET / ladder.rungs[-1].parameters:.3g} times the largest size."
    if ignored := sum(use.ignored for use in uses):
        said += (
            f" z is ignored by {share(ignored, len(uses), 'arm')} with κ above 0: their tax is the "
            "tax of an unused latent."
        )
    return said


def prediction_table(ladder: Ladder) -> list[Table]:
    """The tax at 124 M by each line, with its interval."""
    rows = []
    for tax, baseline in AGAINST.items():
        for kappa in ladder.kappas:
            if line := trend(ladder, kappa, tax):
                law = trend(ladder, kappa, tax, power=True)
                at = line.at(TARGET)
                interval = f"(95 %: {signed(at.low)} to {signed(at.high)})"
                row: Entries = {
                    "tax of": f"κ = {fraction(kappa)}",
                    "over": baseline,
                    "nats per token for tenfold parameters": Cell(signed(line.per_tenfold)),
                    "at 124 M by the line": Cell(signed(at.mean), interval),
                    "at 124 M by a power law": factor_cell(law.at(TARGET)) if law else MISSING,
                }
                rows.append(row)
    return table(rows)


def factor_cell(interval: Interval) -> Cell:
    """The interval of a power law, whose ends are its mean divided and multiplied by one factor."""
    factor = interval.high / interval.mean
    width = f"{factor:.3g}" if factor < 1000 else "more than 1000"
    return Cell(signed(interval.mean), f"(95 %: a factor of {width} either way)")


def draw_ladder(ladder: Ladder) -> Figure:
    """Draw seeds as dots, with a line through the means, fitted where it is the tax."""
    colours = dict(zip(ladder.kappas, COLOURS[1:], strict=False))
    figure = Figure(figsize=(11, 8.4))
    panels = figure.subplots(2, 2)
    for axes, (name, baseline) in zip(panels[0], AGAINST.items(), strict=True):
        draw_taxes(axes, ladder, name, colours)
        label_axes(axes, f"Tax: bound − NLL of {baseline}", "parameters", "nats per token")
        millions(axes, [1e6, 1e7, 1e8], " M")
    for axes, name, title, unit in (
        (panels[1, 0], USE, "Use of z", "nats per token"),
        (panels[1, 1], RECOVERY, "Recovery: share of the KL that comes back", ""),
    ):
        for kappa, colour in colours.items():
            seeds_and_means(axes, ladder.points(name, kappa), colour)
        label_axes(axes, title, "parameters", unit)
        millions(axes, [rung.parameters for rung in ladder.rungs], " M")
    for axes in figure.axes:
        axes.axhline(0, lw=0.8, color=GREY)
    looks: dict[str, Style] = {
        f"κ = {fraction(kappa)}": {"color": colour, "marker": "o", "ms": 4}
        for kappa, colour in colours.items()
    }
    add_legend(figure, looks, 4)
    return figure


def draw_taxes(axes: Axes, ladder: Ladder, tax: str, colours: dict[float, str]) -> None:
    """Draw the tax with each κ's line to 124 M, in the band where another size is expected. A band
    much wider than seeds and lines is cut.
    """
    heights = [0.0]
    sizes = np.geomspace(ladder.rungs[0].parameters, TARGET, 60)
    for kappa, colour in colours.items():
        for size, seeds in ladder.points(tax, kappa).items():
            axes.plot([size] * len(seeds), seeds, "o", ms=4, color=colour, alpha=0.6)
            heights += seeds
        if line := trend(ladder, kappa, tax):
            bands = [line.at(size) for size in sizes]
            heights += [bands[0].mean, bands[-1].mean]
            axes.plot(sizes, [band.mean for band in bands], color=colour, lw=1.4)
            low, high = [band.low for band in bands], [band.high for band in bands]
            axes.fill_between(sizes, low, high, color=colour, alpha=0.1, lw=0)
    height = max(heights) - min(heights)
    axes.set_ylim(min(heights) - height / 2, max(heights) + height / 2)
