"""A GPU whose memory is full, in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pipelines.common.errors import UserError


@contextmanager
def full_memory(what: str, settings: str) -> Iterator[None]:
    """Raise UserError, which says to lower ``settings``, where a GPU's memory is full."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(". ")[0]
        raise UserError(f"{what}: the GPU's memory is full; lower {settings} ({reason})") from None
