"""Texts: how large each is and what of its held-out part is in training, and continuations."""

import json
from collections.abc import Sequence
from pathlib import Path

from pipelines.artifacts.paths import tokens_folder
from pipelines.artifacts.tokens.shards import Overlap
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Samples, Text, heading
from pipelines.report.sections import titled
from pipelines.report.wording import count


@titled("Data")
def corpora(analysis: Analysis) -> Sequence[Block]:
    blocks: list[Block] = []
    for data, arms in analysis.by_data.items():
        if arms[0].first.source == "text":
            lines = (f"- {words}" for words in data_words(tokens_folder(data)))
            blocks += [heading(data), Text("\n".join(lines))]
    return blocks


def data_words(folder: Path) -> list[str]:
    if not (folder / "metadata.json").exists():
        return [f"{folder} has no metadata.json, so its size is not known"]
    splits = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))["splits"]
    units = ("document", "token", "byte")
    sizes = [
        f"{name}: {', '.join(count(split[f'{unit}s'], unit) for unit in units)}"
        for name, split in splits.items()
    ]
    return [*sizes, overlap_words(folder)]


def overlap_words(folder: Path) -> str:
    if not (path := folder / "overlap.json").exists():
        return "the overlap of held-out and training text was not measured"
    return str(Overlap(**json.loads(path.read_bytes())))


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
