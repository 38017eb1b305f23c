"""Checks of arguments to the library's functions: nothing is silently broadcast."""

from torch import Tensor

from ftmodel.model.config import ModelConfig


def check_like(name: str, x: Tensor, shape: tuple[int, ...], other: Tensor) -> None:
    """Raise ValueError unless x has this shape and is on the device of ``other``."""
    if x.shape != shape:
        raise ValueError(f"{name}: its shape is {tuple(x.shape)}, not {tuple(shape)}")
    if x.device != other.device:
        raise ValueError(f"{name}: it is on {x.device}, the tokens are on {other.device}")


def check_codes(codes: Tensor, bits: int) -> None:
    """Raise ValueError unless all ``codes`` are in 0 … 2^bits − 1. 64 bits fill any integer."""
    if bits < 64 and (codes >> bits).any():
        raise ValueError(f"codes: one lies outside 0 … {(1 << bits) - 1}")


def check_noise(config: ModelConfig, tokens: Tensor, noise: Tensor | None, past: int = 0) -> None:
    """Raise ValueError unless ``noise`` (B, T, H) can sample z from the encoder of tokens (B, T),
    after ``past`` tokens in a cache, or (B, T, n) the random prefix of a baseline. Any other
    baseline takes None.
    """
    shape = *tokens.shape, config.noise_width
    if noise is None and (config.latent_bits or (config.random_prefix and not past)):
        what = (
            "a random prefix is drawn" if config.random_prefix else "a Free Transformer samples z"
        )
        raise ValueError(f"noise: {what} with noise {shape}, not None")
    if noise is None:
        return
    if not config.noise_width:
        raise ValueError("noise: a baseline has no latent and takes None")
    check_like("noise", noise, shape, tokens)
    if not noise.is_floating_point():
        raise ValueError(f"noise: its type is {noise.dtype}, not a floating-point one")
    if past:
        reader = (
            "a random prefix must stand before" if config.random_prefix else "the encoder must read"
        )
        raise ValueError(f"cache: it holds {past} tokens, but {reader} from the first on")
