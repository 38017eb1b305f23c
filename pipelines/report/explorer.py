"""All arms' generations, for a page on which readers choose what to look at."""

from typing import Any

from pipelines.common.printable import printable
from pipelines.compare.arms import Arm, grouped
from pipelines.report.analysis import Analysis
from pipelines.report.wording import count


def explorer_families(analysis: Analysis) -> list[dict[str, Any]]:
    """Arms with the same prompts: by data, and by prompts where contexts differ."""
    families = []
    for data, arms in analysis.by_data.items():
        shown = (arm for arm in arms if arm.first.details.generations)
        groups = grouped(shown, lambda arm: tuple(g.prompt for g in arm.first.details.generations))
        for prompts, group in groups.items():
            models = ", ".join(sorted({arm.run.model for arm in group}))
            families.append(
                {
                    "name": data if len(groups) == 1 else f"{data} ({models})",
                    "target": group[0].first.on_target,
                    "prompts": [*map(printable, prompts)],
                    "arms": [*map(generations, group)],
                }
            )
    return families


def generations(arm: Arm) -> dict[str, Any]:
    """An arm's generations by its first seed, without control characters."""
    several = f", the first of {count(len(arm.runs), 'seed')}" if len(arm.runs) > 1 else ""
    readable = [
        {
            "prompt": printable(g.prompt),
            "fresh": [*map(printable, g.fresh)],
            "pinned": [[*map(printable, texts)] for texts in g.pinned],
        }
        for g in arm.first.details.generations
    ]
    return {
        "title": arm.title,
        "seeds": f"by seed {arm.run.seed}{several}",
        "generations": readable,
    }
