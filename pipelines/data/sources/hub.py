"""Reads a dataset from a hub as a stream, with `datasets`: only what is being read lies on this
machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.artifacts.corpus import Document
from pipelines.common.errors import UserError
from pipelines.common.file_listing import BUILDERS, Fingerprint, local_files, words_of
from pipelines.config.data import Hub
from pipelines.data.sources.base import Source, not_too_long, text_of


class HubSource(Source):
    def __init__(self, key: str, part: Hub) -> None:
        """Asks the hub for the dataset; raises UserError if it says no."""
        self.key, self.part, self.row = key, part, 0
        with self.errors_named("cannot be loaded"):
            from datasets import load_dataset  # takes a second to import
            from huggingface_hub import HfApi

            revision = part.revision
            if (local := local_files(part.dataset, part.data_files)) is not None:
                self.version = Fingerprint(local).hex()
            elif part.dataset not in BUILDERS:
                self.version = revision = HfApi().dataset_info(part.dataset, revision=revision).sha
            self.dataset = load_dataset(
                part.dataset,
                part.subset,
                split=part.split,
                revision=revision,
                data_files=part.data_files or None,
                streaming=True,
            )
        if columns := self.dataset.column_names:  # unknown for some until a row is read
            text_of(key, part.text_field, part.dataset, {name: "" for name in columns})
            self.dataset = self.dataset.select_columns([part.text_field])

    @contextmanager
    def errors_named(self, what: str) -> Iterator[None]:
        """Turn what the library raises about a name, a file or the connection into a UserError."""
        try:
            yield
        except Exception as error:
            raise UserError(
                f"{self.key}: {self.part.dataset} {what} ({words_of(error)}); check dataset, "
                "subset, split, revision and data_files, and the connection, or log in with "
                "HF_TOKEN"
            ) from error

    def position(self) -> dict[str, Any]:
        state = self.dataset.state_dict()
        return {"row": self.row, "dataset": state}

    def seek(self, position: dict[str, Any]) -> None:
        self.row = position["row"]
        self.dataset.load_state_dict(position["dataset"])

    def documents(self) -> Iterator[Document]:
        rows = iter(self.dataset)
        while True:
            with self.errors_named(f"cannot be read behind row {self.row:,}"):
                row = next(rows, None)
            if row is None:
                break
            self.row += 1
            location = f"{self.part.dataset}: row {self.row:,}"
            text = text_of(self.key, self.part.text_field, location, row)
            yield str(self.row), not_too_long(location, text)
