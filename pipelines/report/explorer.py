"""The generations of all arms, for a page on which one chooses what to look at."""

from dataclasses import dataclass

from pipelines.artifacts.results import Generations
from pipelines.common.printable import printable
from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.wording import count


@dataclass(frozen=True)
class ArmGenerations:
    title: str
    seeds: str
    generations: list[Generations]


@dataclass(frozen=True)
class Family:
    """Arms with the same prompts."""

    name: str
    target: bool
    prompts: list[str]
    arms: list[ArmGenerations]


def explorer_families(analysis: Analysis) -> list[Family]:
    """By data, and where models of several contexts have other prompts, by these."""
    families = []
    for data, arms in analysis.by_data.items():
        groups: dict[tuple[str, ...], list[Arm]] = {}
        for arm in arms:
            if prompts := tuple(g.prompt for g in arm.first.details.generations):
                groups.setdefault(prompts, []).append(arm)
        for prompts, group in groups.items():
            models = sorted({arm.run.model for arm in group})
            name = data if len(groups) == 1 else f"{data} ({', '.join(models)})"
            shown = [ArmGenerations(arm.title, seeds(arm), readable(arm)) for arm in group]
            families.append(
                Family(name, group[0].first.on_target, [*map(printable, prompts)], shown)
            )
    return families


def seeds(arm: Arm) -> str:
    return f"by seed {arm.run.seed}" + (
        f", the first of {count(len(arm.runs), 'seed')}" if len(arm.runs) > 1 else ""
    )


def readable(arm: Arm) -> list[Generations]:
    """Without control characters."""
    return [
        Generations(
            printable(g.prompt),
            [*map(printable, g.fresh)],
            [[*map(printable, texts)] for texts in g.pinned],
        )
        for g in arm.first.details.generations
    ]
