"""Stage `data`: make a corpus.    python -m pipelines.data <name>

Writes data/corpus/<name>/train.jsonl and validation.jsonl, one document a line: {"id", "text"}.
"""

import json
import sysconfig
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import torch

from ftmodel.target_task import decode, sample_sequences
from pipelines import errors
from pipelines.errors import UserError
from pipelines.schema import FilesData, TargetData
from pipelines.shards import SPLITS
from pipelines.stage import argument, load_stage, replace_folder

Documents = Iterator[tuple[str, str]]


def target_documents(data: TargetData) -> dict[str, Documents]:
    """Sequences of the synthetic task; no held-out sequence occurs in the training part."""
    generator = torch.Generator().manual_seed(data.seed)
    held_out = [decode(s) for s in sample_sequences(data.validation_sequences, generator)]

    def training() -> Documents:
        known, made = set(held_out), 0
        while made < data.train_sequences:
            for sequence in sample_sequences(4096, generator):
                text = decode(sequence)
                if text not in known and made < data.train_sequences:
                    yield str(made), text
                    made += 1

    return {"train": training(), "validation": ((str(i), s) for i, s in enumerate(held_out))}


def file_documents(key: str, data: FilesData) -> dict[str, Documents]:
    """The files of a folder, each in the split that a hash of its relative path says."""
    stdlib = data.root == "stdlib"
    root = Path(sysconfig.get_paths()["stdlib"] if stdlib else data.root)
    if not root.is_dir():
        raise UserError(f"{key}.root: {data.root} is not a folder")
    files: dict[str, list[Path]] = {name: [] for name in SPLITS}
    for path in sorted(root.glob(data.pattern)):
        relative = path.relative_to(root)
        if path.is_file() and not set(relative.parts[:-1]) & set(data.exclude):
            digest = sha256(f"{data.seed}:{relative.as_posix()}".encode()).digest()
            held_out = int.from_bytes(digest[:8]) / 2**64 < data.validation_share
            files["validation" if held_out else "train"].append(path)
    found = sum(map(len, files.values()))
    if not found:
        raise UserError(f"{key}.pattern: {data.pattern} matches no file under {data.root}")
    for name, paths in files.items():
        if not paths:
            raise UserError(
                f"{key}.validation_share: {data.validation_share} of {found} files leaves the "
                f"{name} part empty"
            )

    def documents(paths: list[Path]) -> Documents:
        for path in paths:
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"{key}: cannot read {path}: {error}") from None
            if text:
                yield path.relative_to(root).as_posix(), text

    return {name: documents(paths) for name, paths in files.items()}


def main() -> None:
    name = argument("dataset")
    experiment = load_stage("data", name)
    data = experiment.data[name]
    key = f"data.{name}"
    parts = target_documents(data) if isinstance(data, TargetData) else file_documents(key, data)
    with replace_folder(Path("data/corpus") / name) as folder:
        for split, documents in parts.items():
            count = size = 0
            with open(folder / f"{split}.jsonl", "w", encoding="utf-8") as file:
                for identity, text in documents:
                    file.write(json.dumps({"id": identity, "text": text}) + "\n")
                    count, size = count + 1, size + len(text.encode())
            if not size:
                raise UserError(f"{key}: the {split} part has no text")
            print(f"{name} {split}: {count:,} documents, {size:,} bytes")


if __name__ == "__main__":
    errors.run(main)
