"""Reports in one line that a GPU's memory is full."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pipelines.common.errors import UserError


@contextmanager
def full_memory(what: str, settings: str) -> Iterator[None]:
    """Raise a UserError that says to lower ``settings`` if a GPU's memory is full."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(". ")[0]
        raise UserError(f"{what}: the GPU's memory is full; lower {settings} ({reason})") from None
