"""The pretrained model that a run starts from."""

from dataclasses import dataclass, field

from ftmodel.config import LATENT_ONLY, limited


@dataclass
class InitFrom:
    """Either ``hf`` or ``run``; neither means random weights. ``latent_rms`` and ``copy_encoder``
    are for a latent that the parent lacks.
    """

    # a folder with config.json, tokenizer.json and safetensors, or a .gguf file
    hf: str | None = None
    run: str | None = None  # another run of this experiment, on the same data
    # peak learning rate of copied weights; null: optim.lr, the rate of new weights
    copied_lr: float | None = limited(None, at_least=0)
    # RMS of the post-sampler's vectors, relative to the residual stream where the block reads z.
    # With 0 the encoder gets no gradient. It has no effect with inject: memory
    latent_rms: float = limited(0.1, latent_only=True, at_least=0)
    # whether the encoder's block begins as a copy of the block that reads z; false: at random, as a
    # separate encoder must
    copy_encoder: bool = field(default=True, metadata=LATENT_ONLY)

    def __str__(self) -> str:
        return self.hf or self.run or ""

    def __bool__(self) -> bool:
        return self.hf is not None or self.run is not None

    def validate(self) -> None:
        if self.hf is not None and self.run is not None:
            raise ValueError("run: a run starts from `hf`, a folder, or from another run, not both")
        if self.hf is not None and not self.hf.strip():
            raise ValueError("hf: empty, not a folder")
        for name, value in vars(self).items():
            if not self and value != getattr(InitFrom(), name):
                raise ValueError(f"{name}: {value}, but the run has no parent")
