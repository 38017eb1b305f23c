"""How Lightning writes and reads the checkpoints of models that every worker holds whole."""

from pathlib import Path
from typing import Any

from lightning.pytorch.plugins.io import TorchCheckpointIO

from pipelines.artifacts.checkpoint import load, remove, whole, write


class WholeFiles(TorchCheckpointIO):
    """Writes checkpoints beside their place, and reads those in parts, too.

    Lightning writes them to $TMPDIR. From there to another file system they are copied, and where
    the disk is full, or the process dies, half a file stays under the checkpoint's name.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():  # of this step and damaged: else training would have gone on from it
            remove(path)
        write(checkpoint, path)

    def load_checkpoint(self, path: str | Path, *_: Any, **__: Any) -> dict[str, Any]:
        content: dict[str, Any] = load(Path(path))
        content["state_dict"] = {k: whole(v) for k, v in content["state_dict"].items()}
        for optimizer in content["optimizer_states"]:
            optimizer["state"] = {
                i: {key: whole(value) for key, value in entry.items()}
                for i, entry in optimizer["state"].items()
            }
        return content
