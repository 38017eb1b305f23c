"""Texts: how large each is, what of its held-out part is in training, and what models write."""

from collections.abc import Sequence
from typing import Any

from pipelines.artifacts.paths import tokens_folder
from pipelines.artifacts.results import read
from pipelines.artifacts.tokens.shards import Overlap, read_metadata
from pipelines.common.printable import printable
from pipelines.compare.arms import Arm, grouped
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Samples, Text, heading
from pipelines.report.sections import titled
from pipelines.report.wording import count


@titled("Data")
def corpora(analysis: Analysis) -> Sequence[Block]:
    blocks: list[Block] = []
    for data, arms in analysis.by_data.items():
        if arms[0].first.source == "text":
            folder = tokens_folder(data)
            lines = [
                f"- {name}: {count(split.documents, 'document')}, {count(split.tokens, 'token')}, "
                f"{count(split.bytes, 'byte')}"
                for name, split in read_metadata(folder).splits.items()
            ]
            lines.append(f"- {read(folder / 'overlap.json', Overlap, 'tokenize')}")
            blocks += [heading(data), Text("\n".join(lines))]
    return blocks


@titled("Text samples")
def text_samples(analysis: Analysis) -> Sequence[Block]:
    """Continuations of held-out prompts, by the first seed of each arm."""
    blocks: list[Block] = []
    for arm in analysis.arms:
        if arm.first.details.generations and not arm.first.on_target:
            blocks.append(analysis.heading(arm, arm.name))
            for sample in arm.first.details.generations:
                blocks += [Samples("prompt", sample.prompt), Samples("sample", sample.fresh[0])]
    return blocks


def explorer_families(analysis: Analysis) -> list[dict[str, Any]]:
    """For explorer.html: arms by data, and by prompts, which differ where contexts do."""
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
    """Those of its first seed, without control characters."""
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
