"""What a forward pass can be asked for."""

from torch import Tensor

from ftmodel.model.cache import LayerCache, cached
from ftmodel.model.config import ModelConfig


def check_noise(
    config: ModelConfig, tokens: Tensor, noise: Tensor | None, cache: list[LayerCache] | None
) -> None:
    """Raise ValueError unless ``noise`` samples z from the encoder of tokens (B, T)."""
    shape = *tokens.shape, config.latent_bits
    if noise is None and config.latent_bits:
        raise ValueError(f"a Free Transformer samples z from its encoder with noise {shape}")
    if noise is None:
        return
    if not config.latent_bits:
        raise ValueError("a baseline has no latent and takes no noise")
    if noise.shape != shape:
        raise ValueError(f"noise {tuple(noise.shape)} should have the shape {shape}")
    if noise.device != tokens.device:
        raise ValueError(f"noise is on {noise.device}, tokens are on {tokens.device}")
    if cached(cache):
        raise ValueError("the encoder reads a sequence from its first token: empty the cache")
