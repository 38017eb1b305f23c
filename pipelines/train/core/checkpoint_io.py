"""How Lightning writes checkpoints."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from pipelines.common.atomic_files import replace_file


class WholeFiles(TorchCheckpointIO):
    """Writes checkpoints beside their place, all of a file or nothing.

    Lightning writes them to $TMPDIR. From there to another file system they are copied, and where
    the disk is full, or the process dies, half a file stays under the checkpoint's name.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Raises OSError."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # about a position: hides what the file said
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise
