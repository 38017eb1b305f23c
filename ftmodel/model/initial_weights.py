"""Initial weights."""

from torch import nn

from ftmodel.model.config import ModelConfig


def draw_weights(model: nn.Module, config: ModelConfig) -> None:
    """Draw weights: normal with std 0.02, divided by √(2 L) for the decoder's projections into its
    residual stream (GPT-2). Token embeddings have ``config.embedding_std``, the latent's matrices
    ``config.latent_std``. How soon z is used depends on both: LOG.md, 2026-11-21.
    """
    into_residual = (2 * config.n_layers) ** -0.5
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            gain = name.endswith("weight")  # of an RMSNorm
            nn.init.constant_(parameter, float(gain))
            continue
        std = 0.02
        if name.startswith(("embedding", "prefix")):
            std = config.embedding_std
        elif name == "latent.prior.readout.weight":
            nn.init.zeros_(parameter)
            continue
        elif name.startswith("latent") and name != "latent.zeta":  # the norm rescales zeta
            std = config.latent_std
            if name.endswith("post_sampler"):
                std = config.post_sampler_std
        elif name.endswith(("output.weight", "down.weight")):
            std *= into_residual
        nn.init.normal_(parameter, std=std)
