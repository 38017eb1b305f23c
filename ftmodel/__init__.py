"""The Free Transformer (Fleuret 2025, arXiv 2510.17558): the library's public names.

docs/library.md explains them. Each name is imported when it is first used, so code that needs only
a configuration does not import torch. Shapes are in docstrings: B batch, T tokens, D model width,
H latent bits, V vocabulary, K samples, S chunks. Losses and bounds are in nats, κ is in bits.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ftmodel.cache import new_cache as new_cache
    from ftmodel.config import LatentDesign as LatentDesign, ModelConfig as ModelConfig
    from ftmodel.conversion.llama import (
        llama_config as llama_config,
        llama_weights as llama_weights,
        load_llama as load_llama,
        our_config as our_config,
    )
    from ftmodel.inference.answers import (
        log_mean_exp as log_mean_exp,
        score_answers as score_answers,
    )
    from ftmodel.inference.bounds import (
        encode as encode,
        exact_nll as exact_nll,
        latent_bounds as latent_bounds,
    )
    from ftmodel.inference.filtering import (
        FilterSettings as FilterSettings,
        filtering_bound as filtering_bound,
    )
    from ftmodel.inference.generate import generate as generate
    from ftmodel.inference.latent_source import (
        Codes as Codes,
        FromPrior as FromPrior,
        Noise as Noise,
        Pinned as Pinned,
    )
    from ftmodel.inference.passes import from_prior as from_prior, with_codes as with_codes
    from ftmodel.inference.sequence_bound import nll_bound as nll_bound
    from ftmodel.layers import use_kernels as use_kernels
    from ftmodel.model.free_transformer import FreeTransformer as FreeTransformer, Output as Output
    from ftmodel.model.objective import Loss as Loss, training_loss as training_loss
    from ftmodel.positions import Positions as Positions

HOMES = {
    "cache": ("new_cache",),
    "config": ("LatentDesign", "ModelConfig"),
    "conversion.llama": ("llama_config", "llama_weights", "load_llama", "our_config"),
    "inference.answers": ("log_mean_exp", "score_answers"),
    "inference.bounds": ("encode", "exact_nll", "latent_bounds"),
    "inference.filtering": ("FilterSettings", "filtering_bound"),
    "inference.generate": ("generate",),
    "inference.latent_source": ("Codes", "FromPrior", "Noise", "Pinned"),
    "inference.passes": ("from_prior", "with_codes"),
    "inference.sequence_bound": ("nll_bound",),
    "layers": ("use_kernels",),
    "model.free_transformer": ("FreeTransformer", "Output"),
    "model.objective": ("Loss", "training_loss"),
    "positions": ("Positions",),
}
MODULE_OF = {name: f"ftmodel.{module}" for module, names in HOMES.items() for name in names}
__all__ = sorted(MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(MODULE_OF[name]), name)
