"""The NLL of a model with one z, or one random prefix, per sequence, exact or bounded from above,
per chunk, in nats.

p(x) = Σ_z p(x | z) p(z) is summed directly where H is small. Else it is estimated by importance
sampling: the encoder proposes every second z, the prior the others, and all are weighed by the
mixture of both,

    −log (1/K) Σ_k p(x | z_k) p(z_k) / π(z_k),    π = s q(z | x) + (1 − s) p(z),

where s is the encoder's share. It is unbiased for p(x), as each proposal has its fixed share
of the samples, and no weight exceeds p(x | z) / (1 − s) (Owen & Zhou 2000, Safe and effective
importance sampling): an overconfident encoder does little harm.

Shapes: B rows, T tokens, H latent bits, K samples, S chunks.
"""

from collections.abc import Callable
from dataclasses import replace
from math import log

import torch
from torch import Tensor

from ftmodel.config import LatentDesign, ModelConfig
from ftmodel.inference.bounds import (
    checked,
    chunk_ids,
    importance_bound,
    log_density_ratio,
    lower_half,
    prior_probability,
    sampled_probability,
    sums,
    token_nll,
)
from ftmodel.inference.filtering import DEFAULT_SETTINGS, FilterSettings, filtering_bound
from ftmodel.mapper import bit_table, pack_bits, signs
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.positions import check_like

MOST_ENUMERATED = 8  # bits of a z whose values are all summed


def default_proposal(design: LatentDesign, kappa_bits: float = 0.0) -> float:
    """The encoder's share of the logits in a filter's proposal of z, by the design and by κ in bits
    per token, if it is known. docs/measurement/particles.md says what it was chosen from.
    """
    if design.shared_codes and not design.one_code:
        return 0.25
    return 0.125 if kappa_bits > 1 else 0.0


def enumerable(config: ModelConfig) -> bool:
    """Whether there is one z per sequence, of so few bits that all its values can be summed."""
    few = 0 < config.latent_bits <= MOST_ENUMERATED
    return few and config.latent.one_code


@torch.inference_mode()
def enumerated_nll(
    model: FreeTransformer, inputs: Tensor, targets: Tensor, segment_ids: Tensor | None = None
) -> Tensor:
    """Exact NLL, nats, (S,); arguments as in ``latent_bounds``. The upper half runs 2^H times."""
    latent = model.latent
    assert latent is not None and enumerable(model.config)
    bits = bit_table(model.config.latent_bits, inputs.device).bool()
    x, at, ids = lower_half(model, inputs, segment_ids)
    p = prior_probability(model.prior_logits(x, at), x)  # no earlier z, hence not recurrent
    half, log_p = torch.full_like(p, 0.5), []
    for z, r in zip(bits, latent.embed(pack_bits(bits)), strict=True):
        hidden = model.upper(x, r.expand_as(x), at)
        ratio = sums(log_density_ratio(z, p, half).expand_as(ids), ids)  # log p(z) 2^H
        log_p.append(ratio - sums(token_nll(model, hidden, targets), ids))
    return log(len(bits)) - torch.stack(log_p).logsumexp(0)


@torch.inference_mode()
def prefix_bound(
    model: FreeTransformer,
    inputs: Tensor,
    targets: Tensor,
    samples: int,
    draw: Callable[[], Tensor],
    segment_ids: Tensor | None = None,
) -> Tensor:
    """An upper bound, in expectation, on the NLL of a baseline with a random prefix c: (S,) nats,

        −log (1/K) Σ_k p(x | c_k),  c_k uniform,  K = ``samples``;

    exact where n = 1 and K is a multiple of 16, because the first token of c takes evenly spaced
    values from a random start. Arguments as in ``latent_bounds``, with noise (B, T, n), but a row
    holds at most one chunk, at its beginning, with the row's prefix. Raises ValueError otherwise.
    """
    check_like("targets", targets, inputs.shape, inputs)
    ids = chunk_ids(inputs, segment_ids)
    if not ((ids == ids[:, :1]) | (ids == 0)).all():
        raise ValueError("segment_ids: a row with a random prefix holds one chunk")
    first, log_p = draw()[..., 0], []
    for k in range(samples):
        noise = draw()
        noise[..., 0] = (first + k / samples) % 1
        hidden = model(inputs, noise).hidden
        log_p.append(-sums(token_nll(model, hidden, targets), ids))
    return importance_bound(torch.stack(log_p), samples)


@torch.inference_mode()
def sequence_bound(
    model: FreeTransformer,
    inputs: Tensor,
    targets: Tensor,
    samples: int,
    draw: Callable[[], Tensor],
    segment_ids: Tensor | None = None,
    path: Tensor | None = None,
) -> Tensor:
    """An upper bound, in expectation, on the NLL: (S,) nats, float64, with K = ``samples``, each of
    which runs the upper half once; arguments as in ``latent_bounds``. A single sample comes from
    the prior.

    With a ``path`` (B, T), a z drawn from p(z | x) for each row, which is one chunk: a lower bound.
    The z replaces a sample of the encoder or of the prior, whichever the mixture drew it from.
    """
    latent, draw = model.latent, checked(draw, model, inputs, targets)
    assert latent is not None and model.config.latent.one_code
    x, at, ids = lower_half(model, inputs, segment_ids)
    q = sampled_probability(model.encode(inputs, x, at))
    p = prior_probability(model.prior_logits(x, at), x)
    share, log_weights = samples // 2 / samples, []
    if path is not None:
        kept = signs(path, q.shape[-1]) > 0
        log_q = -sums(log_density_ratio(kept, p, q), ids)
        encoder = (torch.tensor(share).logit() + log_q).sigmoid()  # its part of the mixture at z
        place = (draw()[:, 0, 0] < encoder).long()[:, None, None]
    for k in range(samples):
        bits = draw() < (q if k % 2 else p)
        if path is not None:
            bits = torch.where(place == k, kept, bits)
        hidden = model.upper(x, latent.embed(pack_bits(bits)), at)
        log_q = -sums(log_density_ratio(bits, p, q), ids)  # log q(z | x) / p(z)
        mixture = (share * log_q.exp() + 1 - share).log()
        log_weights.append(-mixture - sums(token_nll(model, hidden, targets), ids))
    return importance_bound(torch.stack(log_weights), samples)


def nll_bound(
    model: FreeTransformer,
    inputs: Tensor,
    targets: Tensor,
    samples: int,
    draw: Callable[[], Tensor],
    segment_ids: Tensor | None = None,
    settings: FilterSettings = DEFAULT_SETTINGS,
    path: Tensor | None = None,
) -> Tensor:
    """The bound by which a model is compared, (S,): ``prefix_bound`` of a baseline with a random
    prefix, ``sequence_bound`` if there is one z per sequence, else ``filtering_bound``, whose
    arguments these are. Settings without a proposal take the default of the design.
    """
    if model.prefix is not None:
        return prefix_bound(model, inputs, targets, samples, draw, segment_ids)
    if model.config.latent.one_code:
        return sequence_bound(model, inputs, targets, samples, draw, segment_ids, path)
    if settings.proposal is None:
        settings = replace(settings, proposal=default_proposal(model.config.latent))
    return filtering_bound(model, inputs, targets, samples, draw, segment_ids, settings, path)
