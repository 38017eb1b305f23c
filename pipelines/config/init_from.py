"""The pretrained model that a run starts from."""

from dataclasses import dataclass

from ftmodel.model.limits import limited


@dataclass
class InitFrom:
    """One of ``hf`` and ``run``; by default neither: from random weights. ``latent_rms`` and
    ``copy_encoder`` are for a latent that the parent lacks.
    """

    hf: str | None = None  # a Hugging Face folder of a Llama (safetensors), or its .gguf file
    run: str | None = None  # of this experiment, on the same data
    # at the top of the schedule, of copied weights; null: optim.lr
    copied_lr: float | None = limited(None, at_least=0)
    # RMS of the post-sampler's vectors, over that of the residual stream that they are added to;
    # 0 computes what the parent does, but the encoder gets no gradient (no effect with inject:
    # memory)
    latent_rms: float = limited(0.1, at_least=0)
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
