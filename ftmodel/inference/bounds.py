"""Upper bounds on the NLL of held-out chunks of text, per chunk, in nats.

A Free Transformer's cross-entropy under the posterior z is not a language-model loss: z has read
the tokens that it helps to predict. To compare with a baseline's NLL, take an upper bound (in
expectation over the samples) on the true NLL −log p(x) = −log Σ_z p(x | z) p(z):

    ELBO     E_q [−log p(x | z)] + KL(q(z | x) ‖ p(z))                  (Kingma & Welling 2014)
    IWAE-K   −log (1/K) Σ_k p(x | z_k) p(z_k) / q(z_k | x),  z_k ~ q     (Burda et al. 2016, eq. 8)
    prior    −log (1/K) Σ_k p(x | z_k),  z_k ~ p                        (the same, with q = p)

A learned prior p(z_t | x_≤t), or p(z_t | x_≤t, z_<t) if it is recurrent, makes p(z) the product of
these factors: the joint p(x, z) goes from left to right. The KL is then taken from each q(z_t | x)
to its factor.

All three treat the z of a whole chunk as one sample; filtering.py has the token-by-token bound by
which models are compared, sequence_bound.py the bound for one z per sequence.

Several chunks may lie in one row; attention and all sums then stay within each chunk.

Shapes: B rows, T tokens, H latent bits, K samples, S chunks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor
from torch.nn import functional as F

from ftmodel.designs.noise import Draws
from ftmodel.inference.passes import upper_from_prior
from ftmodel.kernels.product import product
from ftmodel.mapper import pack_bits
from ftmodel.model.free_transformer import FreeTransformer, check_noise
from ftmodel.model.objective import kl_per_bit
from ftmodel.positions import Positions, check_like


@torch.inference_mode()
def encode(
    model: FreeTransformer, tokens: Tensor, noise: Tensor, documents: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits o of the bits of z given tokens (B, T), and the KL of each bit to the prior in nats;
    both (B, T, H). Where several tokens share a latent code, both are 0 except at its first token.

    Args:
        noise: (B, T, H), uniform on [0, 1), by which z is sampled. It matters only under a
            recurrent prior, which depends on the earlier z; else the upper half does not run.
        documents: (B, T), the number of each token's document; None: each row is one document.

    Raises:
        ValueError: the model is a baseline, or shapes do not fit ``tokens``.
    """
    latent, hidden = model.latent, None
    if latent is None:
        raise ValueError("model: a baseline has no encoder")
    check_noise(model, tokens, noise)
    at = model.positions(tokens, documents=documents)
    x = model.lower(tokens, at)
    o = model.encode(tokens, x, at)
    if latent.prior.sequential:
        hidden = model.upper(x, latent.sample(o, noise)[0], at)
    return o, kl_per_bit(o, model.prior_logits(x, at, hidden))


LOGITS = 1 << 21  # computed at once: more do not stay in a CPU's cache
NOISE_STEPS = 1 << 24  # float32 noise on [0, 1) is a multiple of 2^-24


@dataclass
class Bounds:
    """Bounds in nats per chunk, (S,) each unless a shape is given."""

    ce: Tensor  # reconstruction: mean over K posterior samples of −log p(x | z)
    kl: Tensor
    elbo: Tensor
    iwae: Tensor
    prior: Tensor
    kl_bits: Tensor  # (S, H): the KL of each bit, in nats, summed over tokens
    log_weights: Tensor  # (K, S): log p(x | z_k) p(z_k) / q(z_k | x)


def importance_bound(log_weights: Tensor, k: int) -> Tensor:
    """IWAE-k, nats, (S,), from log weights (K, S): the mean over K // k disjoint groups of k."""
    groups = log_weights.shape[0] // k
    grouped = log_weights[: groups * k].unflatten(0, (groups, k))
    return (log(k) - grouped.logsumexp(1)).mean(0)


def sums(values: Tensor, segment_ids: Tensor) -> Tensor:
    """Sum values (B, T, …) by chunk: (S, …), float64; segment_ids as in ``latent_bounds``."""
    totals = values.new_zeros(int(segment_ids.max()) + 1, *values.shape[2:], dtype=torch.float64)
    return totals.index_add_(0, segment_ids.flatten(), values.flatten(0, 1).double())[1:]


def token_nll(model: FreeTransformer, hidden: Tensor, targets: Tensor) -> Tensor:
    """−log p of each target (B, T), nats, (B, T), given ``Output.hidden`` (B, T, D)."""
    weight = model.readout.weight
    rows = max(1, LOGITS // len(weight))
    chunks = zip(hidden.flatten(0, 1).split(rows), targets.flatten().split(rows), strict=True)
    nll = [F.cross_entropy(product(x, weight), y, reduction="none") for x, y in chunks]
    return torch.cat(nll).view_as(targets)


@torch.inference_mode()
def exact_nll(
    model: FreeTransformer, inputs: Tensor, targets: Tensor, segment_ids: Tensor | None = None
) -> Tensor:
    """Exact NLL of a baseline, nats per chunk, (S,) in float64. Arguments as in ``latent_bounds``.
    Raises ValueError for targets of another shape and for a Free Transformer.
    """
    check_like("targets", targets, inputs.shape, inputs)
    hidden = model(inputs, at=model.positions(inputs, documents=segment_ids)).hidden
    return sums(token_nll(model, hidden, targets), chunk_ids(inputs, segment_ids))


def checked(
    draw: Callable[[], Tensor], model: FreeTransformer, inputs: Tensor, targets: Tensor
) -> Callable[[], Tensor]:
    """Check the targets, and wrap ``draw`` to check its noise (B, T, H). Raises ValueError if
    either does not fit inputs (B, T), and for a baseline.
    """
    check_like("targets", targets, inputs.shape, inputs)
    if model.latent is None:
        raise ValueError("model: a baseline has no bound, its NLL is exact")
    model.noise_checked = False  # the first of each bound is, on a GPU too

    def drawn() -> Tensor:
        noise = draw()
        check_noise(model, inputs, noise)
        return noise

    return drawn


def chunk_ids(inputs: Tensor, segment_ids: Tensor | None) -> Tensor:
    """``segment_ids`` (B, T); if there are none, each row is one chunk."""
    if segment_ids is not None:
        return segment_ids
    return torch.arange(1, len(inputs) + 1, device=inputs.device)[:, None].expand_as(inputs)


def lower_half(
    model: FreeTransformer, inputs: Tensor, segment_ids: Tensor | None
) -> tuple[Tensor, Positions, Tensor]:
    """The lower half's activations (B, T, D), positions, and segment ids (B, T)."""
    at = model.positions(inputs, documents=segment_ids)
    return model.lower(inputs, at), at, chunk_ids(inputs, segment_ids)


def sampled_probability(o: Tensor) -> Tensor:
    """q = sigmoid(o) as float32 noise can draw it, in float64, same shape as o: rounded up to a
    multiple of 2^-24, and never 0 or 1, so that P(noise < q) is exactly q and every z has a
    positive probability.

    The bounds hold for any q as long as z is drawn from that same q. For logits below −16.6, noise
    of 0 sets a bit with probability 2^-24, not e^o: weighted by e^o, a single such draw would put
    the bound far below the true NLL.
    """
    return (o.double().sigmoid() * NOISE_STEPS).ceil().clamp(1, NOISE_STEPS - 1) / NOISE_STEPS


def log_density_ratio(bits: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """log p(z) / q(z), (…), for z with ``bits`` (…, H). A bit is 1 with probability p under the
    prior, q under the distribution that z is drawn from, (…, H) or (…, 1) each.
    """
    return (torch.where(bits, p, 1 - p) / torch.where(bits, q, 1 - q)).log().sum(-1)


def prior_probability(logits: Tensor | None, like: Tensor) -> Tensor:
    """P(bit = 1) under a prior with ``logits`` (…, H), as float32 noise can draw it, in float64;
    (1,) for None, the uniform prior.
    """
    if logits is None:
        return like.new_full((1,), 0.5, dtype=torch.float64)
    return sampled_probability(logits)


def kl_of_bits(q: Tensor, p: Tensor) -> Tensor:
    """KL(Bernoulli(q) ‖ Bernoulli(p)), nats, same shape as q, for probabilities inside (0, 1)."""
    return (
        -torch.special.entr(q) - torch.special.entr(1 - q) - q * p.log() - (1 - q) * (1 - p).log()
    )


@torch.inference_mode()
def latent_bounds(
    model: FreeTransformer,
    inputs: Tensor,
    targets: Tensor,
    samples: int,
    draw: Callable[[], Tensor],
    segment_ids: Tensor | None = None,
) -> Bounds:
    """ELBO, IWAE and prior-sample bound on the NLL of ``targets`` (B, T), the successors of
    ``inputs`` (B, T), in nats per chunk, with K = ``samples`` of z.

    The lower half and the encoder run once. The upper half runs twice per sample; under a recurrent
    prior, one of the two passes goes token by token.
    Args:
        draw: returns new noise (B, T, H), float32, uniform on the multiples of 2^-24 in [0, 1).
            Called 2 K times, for the posterior's and the prior's z in turn.
        segment_ids: (B, T), the number 1 … S of the chunk that a token belongs to, 0 for padding;
            a chunk lies within one row. None: each row is one chunk.

    Raises:
        ValueError: the model is a baseline, or shapes do not fit ``inputs``.
    """
    latent, draw = model.latent, checked(draw, model, inputs, targets)
    assert latent is not None
    x, at, ids = lower_half(model, inputs, segment_ids)
    q = sampled_probability(model.encode(inputs, x, at))  # P(bit = 1), (B, T, H)

    def nll(hidden: Tensor) -> Tensor:
        """−log p(x | z), nats, (S,), from activations (B, T, D) under that z."""
        return sums(token_nll(model, hidden, targets), ids)

    ce, kl, log_w, log_p = [], [], [], []
    for _ in range(samples):
        bits = draw() < q
        hidden = model.upper(x, latent.embed(pack_bits(bits)), at)
        p = prior_probability(model.prior_logits(x, at, hidden), x)
        ce.append(nll(hidden))
        kl.append(sums(kl_of_bits(q, p), ids))
        log_w.append(sums(log_density_ratio(bits, p, q), ids) - ce[-1])
        log_p.append(-nll(upper_from_prior(model, x, Draws(draw()), at)[0]))
    mean_ce, kl_bits = torch.stack(ce).mean(0), torch.stack(kl).mean(0)
    log_weights = torch.stack(log_w)
    return Bounds(
        ce=mean_ce,
        kl=kl_bits.sum(1),
        elbo=mean_ce + kl_bits.sum(1),
        iwae=importance_bound(log_weights, samples),
        prior=importance_bound(torch.stack(log_p), samples),
        kl_bits=kl_bits,
        log_weights=log_weights,
    )
