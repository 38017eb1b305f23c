"""How large each text is, and how much of its held-out part the training part has too."""

import json
from pathlib import Path

from pipelines.artifacts.paths import tokens_folder
from pipelines.artifacts.tokens.shards import Overlap
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Section, Text, heading
from pipelines.report.wording import count


def section(analysis: Analysis) -> Section | None:
    blocks: list[Block] = []
    for data, arms in analysis.by_data.items():
        if arms[0].first.source == "text":
            lines = (f"- {words}" for words in data_words(tokens_folder(data)))
            blocks += [heading(data), Text("\n".join(lines))]
    return Section("corpora", "Data", blocks) if blocks else None


def data_words(folder: Path) -> list[str]:
    if not (folder / "metadata.json").exists():
        return [f"{folder} has no metadata.json, so its size is not known"]
    splits = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))["splits"]
    units = ("document", "token", "byte")
    return [
        *(
            f"{name}: {', '.join(count(split[f'{unit}s'], unit) for unit in units)}"
            for name, split in splits.items()
        ),
        overlap_words(folder),
    ]


def overlap_words(folder: Path) -> str:
    if not (path := folder / "overlap.json").exists():
        return "the overlap of held-out and training text was not measured"
    return str(Overlap(**json.loads(path.read_bytes())))
