"""The pretrained model that a run starts from."""

from dataclasses import dataclass
from math import isfinite


@dataclass
class InitFrom:
    """One of ``hf`` and ``run``; by default neither: from random weights. ``latent_rms`` and
    ``copy_encoder`` are for a latent that the parent lacks.
    """

    hf: str | None = None  # a Hugging Face folder of a Llama (safetensors), or its .gguf file
    run: str | None = None  # of this experiment, on the same data
    copied_lr: float | None = None  # at the top of the schedule, of copied weights; null: optim.lr
    # RMS of the post-sampler's vectors, over that of the residual stream that they are added to;
    # 0 computes what the parent does, but the encoder gets no gradient (no effect with inject:
    # memory)
    latent_rms: float = 0.1
    copy_encoder: bool = True  # a shared one begins as a copy of the block that reads z

    def __str__(self) -> str:
        return self.hf or self.run or ""

    def __bool__(self) -> bool:
        return self.hf is not None or self.run is not None

    def validate(self) -> None:
        if self.hf is not None and self.run is not None:
            raise ValueError("run: a run starts from `hf`, a folder, or from another run, not both")
        if self.hf is not None and not self.hf.strip():
            raise ValueError("hf: empty, not a folder")
        for name in ("copied_lr", "latent_rms", "copy_encoder"):
            if not self and getattr(self, name) != getattr(InitFrom(), name):
                raise ValueError(f"{name}: {getattr(self, name)}, but the run has no parent")
        for name in ("copied_lr", "latent_rms"):
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value >= 0):
                raise ValueError(f"{name}: {value} is not a number from 0 on")
