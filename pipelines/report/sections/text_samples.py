"""Continuations of held-out prompts, by the first seed of each arm."""

from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Samples, Section


def section(analysis: Analysis) -> Section | None:
    blocks: list[Block] = []
    for arm in analysis.arms:
        if arm.first.details.generations and not arm.first.on_target:
            blocks.append(analysis.heading(arm, arm.name))
            for sample in arm.first.details.generations:
                blocks += [Samples("prompt", sample.prompt), Samples("sample", sample.fresh[0])]
    return Section("text_samples", "Text samples", blocks) if blocks else None
