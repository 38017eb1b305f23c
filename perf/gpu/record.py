"""The record of a GPU's measurements: one dated JSON file, and the same as a page of Markdown."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from perf.alone import commit
from perf.table import number, write_table
from pipelines import doctor
from pipelines.common.atomic_files import replace_file
from pipelines.common.errors import UserError
from pipelines.common.provenance import processor_name
from pipelines.common.strict_json import dumps

REHEARSAL = "This is a rehearsal at toy size on a CPU. Its figures mean nothing."
PRECISION = "training: bf16 autocast, float32 weights; decoding: float32"
HEAD = "| part | target | measured | |\n|---|---|---|---|"


def header(rehearse: bool) -> dict[str, Any]:
    """What the figures depend on; asked of the driver and of PyTorch."""
    driver = doctor.run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    device = processor_name() if rehearse else torch.cuda.get_device_name()
    return {
        "rehearsal": rehearse,
        "device": device,
        "driver": "none" if rehearse else (driver or "unknown").splitlines()[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "precision": PRECISION,
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def path_of(head: dict[str, Any], out: Path) -> Path:
    """Without its suffix: by date and device, or as a rehearsal, whose file no other takes up."""
    name = "rehearsal" if head["rehearsal"] else re.sub(r"\W+", "_", head["device"]).strip("_")
    return out / f"{head['date']}_{name}"


def read(path: Path) -> dict[str, Any]:
    """The parts that an earlier call of this day has measured; raises UserError if it is no such
    file.
    """
    file = path.with_suffix(".json")
    try:
        record = json.loads(file.read_bytes())
        page(record, record["parts"])
        return dict(record["parts"])
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(f"{file} cannot be read: remove it, or name another --out") from None


def write(path: Path, record: dict[str, Any], asked: dict[str, str]) -> None:
    with replace_file(path.with_suffix(".json")) as file:
        file.write(dumps(record, indent=1, ensure_ascii=False).encode())
    with replace_file(path.with_suffix(".md")) as file:
        file.write(page(record, asked).encode())


def page(record: dict[str, Any], asked: dict[str, Any]) -> str:
    """``asked``: every part by name, with the target in words that it is to measure, if any."""
    parts = [f"# {'Rehearsal' if record['rehearsal'] else record['device']}, {record['date']}"]
    if record["rehearsal"]:
        parts.append(f"**{REHEARSAL}**")
    facts = ("device", "driver", "torch", "cuda", "precision", "commit", "date")
    parts.append("\n".join(f"- {fact}: {record[fact]}" for fact in facts))
    done, rehearsal = record["parts"], record["rehearsal"]
    rows = [row for p in asked for row in targets(p, asked[p], done.get(p), rehearsal)]
    parts.append("\n".join(["## Targets\n", HEAD, *rows]))
    body = write_table(record["parts"]).partition("\n")[2].strip()
    return "\n\n".join([*parts, body]).rstrip() + "\n"


def targets(part: str, words: str, entry: dict[str, Any] | None, rehearsal: bool) -> Iterator[str]:
    """Rows of the table: each figure that has a target, or the first; or why there is none."""
    if entry is None or "figures" not in entry:
        yield f"| {part} | {words} | | not measured: {why_not(entry)} |"
        return
    if "later" in entry:
        yield f"| {part} | {words} | | measured; when tried again: {entry['later']} |"
    found = [figure for figure in entry["figures"] if figure["met"] is not None]
    for figure in found:
        verdict = "met" if figure["met"] else "missed"
        yield (
            f"| {part} | {figure['name']} {figure['target']} | {number(figure['median'])} | "
            f"{'rehearsed' if rehearsal else verdict} |"
        )
    if not found:
        first = entry["figures"][0]
        said = f"{first['name']}: {number(first['median'])} {first['unit']}"
        yield f"| {part} | {words} | {said} | see below |"


def why_not(entry: dict[str, Any] | None) -> str:
    """In a line."""
    if entry is None:
        return "not tried"
    reason = entry["failure"].strip().splitlines()[-1] if "failure" in entry else entry["skipped"]
    return str(reason).replace("|", "\\|")
