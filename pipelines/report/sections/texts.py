"""Texts: their sizes, how much of the held-out part is in training, and continuations."""

from collections.abc import Sequence

from pipelines.artifacts.paths import tokens_folder
from pipelines.artifacts.results import read
from pipelines.artifacts.tokens.shards import Overlap, read_metadata
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
