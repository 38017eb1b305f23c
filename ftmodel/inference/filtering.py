"""The filtering bound: the NLL of a Free Transformer by a particle filter, per chunk, in nats.

Under the prior z_t depends on nothing, on x_≤t if the prior is learned, and on earlier z as well if
it is recurrent; no activation depends on a later z. So p(x) is the likelihood of a hidden-variable
model that is read from left to right,

    p(x) = Π_t p(x_{t+1} | x_≤t),   p(x_{t+1} | x_≤t) = E [p(x_{t+1} | x_≤t, z_≤t)]

over z_≤t ~ p(z_≤t | x_≤t), which K particles approximate (sequential Monte Carlo; Doucet & Johansen
2009, A tutorial on particle filtering and smoothing, § 4). At each token every particle

    draws     z_t from a proposal π, by default the prior p,
    weighs    w_k ← W_k p(x_{t+1} | x_≤t, z_≤t) p(z_t) / π(z_t), whose sum over k estimates
              p(x_{t+1} | x_≤t), and W_k = w_k / Σ_j w_j,
    resamples where the effective sample size 1 / Σ_k W_k² falls under a share of K: K particles are
              drawn by their weights (systematically: Carpenter, Clifford & Fearnhead 1999), with
              their keys and values, and weigh 1 / K again.

The product of the estimates is an unbiased estimate of p(x) (Del Moral 2004, § 7.4.1), so its −log
is in expectation at least the NLL (Maddison et al. 2017, Filtering Variational Objectives). A
proposal may depend on all of x, as the encoder's posterior does, because the product is an
importance-sampling estimate with z and ancestors as its variables. Its variance grows linearly with
the length of a chunk. With importance sampling over a whole chunk, as in bounds.py, the variance
grows exponentially.

If several tokens share a latent code, a particle draws it at the first of them and keeps it; a
particle that is resampled in between goes on with its ancestor's code. One z for a whole sequence
leaves nothing to filter: see sequence_bound.py.

On text that comes with a draw of p(z | x), the same loop gives a lower bound: see two_sided.py.

Shapes: B rows, T tokens, D model width, H latent bits, K particles, S chunks, T' tokens of the
longest chunk, n chunks that have not ended yet.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ftmodel.cache import new_cache
from ftmodel.designs.sharing import is_start
from ftmodel.inference.bounds import (
    NOISE_STEPS,
    checked,
    log_density_ratio,
    lower_half,
    prior_probability,
    sampled_probability,
    token_nll,
)
from ftmodel.inference.decoder import FastDecoder, PlainDecoder, make_decoder
from ftmodel.mapper import pack_bits, signs
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.latent import Latent
from ftmodel.positions import check_like


def tokens_by_chunk(segment_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths (S,) of the chunks that ``segment_ids`` (B, T) number, and the index (S, T') of each
    chunk's tokens among all B · T; 0 past its end.
    """
    ids = segment_ids.flatten()
    lengths = ids.bincount()[1:]
    in_order = ids.argsort(stable=True)[int((ids == 0).sum()) :]
    return lengths, pad_sequence(list(in_order.split(lengths.tolist())), batch_first=True)


def systematic(weights: Tensor, uniform: Tensor) -> Tensor:
    """Draw K particles by weights (n, K), which add up to 1: indices (n, K) of the shares of [0, 1]
    that hold the points (uniform + 0 … K − 1) / K, with ``uniform`` (n,) on [0, 1).
    """
    k = weights.shape[1]
    return drawn_at((uniform[:, None] + torch.arange(k, device=weights.device)) / k, weights)


def drawn_at(points: Tensor, weights: Tensor) -> Tensor:
    """Indices (n, K) of the shares of [0, 1] that hold the ``points`` (n, K), by weights (n, K)."""
    last = weights.shape[1] - 1
    return torch.searchsorted(weights.cumsum(1), points, right=True).clamp_(max=last)


def stratified(noise: Tensor, shift: Tensor) -> Tensor:
    """Noise (N, K, H) whose K numbers for a bit are (0 … K − 1 + shift) / K in a random order, from
    independent noise (N, K, H) and ``shift`` (N, H), all uniform on the multiples of 2^-24 in
    [0, 1). Each new number is uniform there too, independently of its particle's other bits.

    So each particle draws its z from the proposal as before, which is all that an unbiased estimate
    needs. But a bit of probability q is set in ⌊K q⌋ or ⌈K q⌉ of K particles (Latin hypercube:
    McKay, Beckman & Conover 1979; in filters: Gerber & Chopin 2015, Sequential quasi-Monte Carlo,
    § 3).
    """
    places = (noise.argsort(1) * NOISE_STEPS) + (shift[:, None] * NOISE_STEPS).long()
    return (places // noise.shape[1]).float() / NOISE_STEPS


class Particles:
    """K particles of each chunk. Each has a row of the upper half's keys and values; the rows of a
    chunk are side by side.
    """

    def __init__(self, model: FreeTransformer, capacity: int) -> None:
        self.model, self.cache = model, new_cache(model.config, capacity)
        self.filled = self.cache[model.config.lower_blocks :]
        self.rows = 0  # rows that the decoder was built for; PlainDecoder accepts any number
        self.decoder: FastDecoder | PlainDecoder = PlainDecoder(model, self.cache)

    def read(self, x: Tensor, codes: Tensor) -> Tensor:
        """Read the next token of n chunks, with z = codes (n, K) and the lower half's x (n, D):
        activations (n, K, D). Chunks after the first n have ended.
        """
        n, k = codes.shape
        if self.filled[0].length and self.rows != n * k:
            self.rows = n * k
            for layer in self.filled:
                layer.keep(self.rows)
            self.decoder = make_decoder(self.model, self.cache)
        hidden = self.decoder.upper(x.repeat_interleave(k, dim=0), codes.flatten())
        return hidden.unflatten(0, (n, k))

    def move(self, chunks: Tensor, ancestors: Tensor) -> None:
        """Replace the particles of ``chunks`` (m,) by their ``ancestors`` (m, K), 0 … K − 1."""
        first = chunks[:, None] * ancestors.shape[1]
        source = (first + ancestors).flatten()
        target = (first + torch.arange(ancestors.shape[1], device=first.device)).flatten()
        moved = source != target
        for layer in self.filled:
            layer.move(source[moved], target[moved])


def propose(
    latent: Latent,
    x: Tensor,
    before: Tensor,
    noise: Tensor,
    o: Tensor | None,
    share: float,
    kept: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw z (n, K) from the proposal with ``noise`` (n, K, H); the first particle's is ``kept``
    (n,), if there is one. Also returns log p(z) / π(z), (n, K), or () where that is 0.

    The prior reads x (n, D) of the lower half and the particles' activations (n, K, D) at the token
    ``before``. The proposal's logits are the prior's or, given the encoder's ``o`` (n, H), a mean
    in which these weigh ``share`` and the prior's 1 − ``share``.
    """
    prior = latent.prior(x[:, None], before)
    p = q = prior_probability(prior, x)
    if o is not None:
        rest = 0 if prior is None else (1 - share) * prior
        q = sampled_probability(share * o[:, None] + rest)
    bits = noise < q
    if kept is not None:
        bits[:, 0] = signs(kept, bits.shape[-1]) > 0
    return pack_bits(bits), p.new_zeros(()) if o is None else log_density_ratio(bits, p, q)


@dataclass(frozen=True)
class FilterSettings:
    """How a filter draws and resamples its particles."""

    # the effective sample size under which particles are resampled, as a share of K; 0 never
    # resamples, which leaves the prior-sample bound
    resample_below: float = 0.5
    # the encoder's share of the logits that propose z, the rest being the prior's: 0 is the prior,
    # 1 the posterior; None: the design's default in ``nll_bound``, else the prior
    proposal: float | None = None
    # whether the particles of a chunk draw their z together: see ``stratified``
    stratify: bool = False


DEFAULT_SETTINGS = FilterSettings()


@torch.inference_mode()
def filtering_bound(
    model: FreeTransformer,
    inputs: Tensor,
    targets: Tensor,
    particles: int,
    draw: Callable[[], Tensor],
    segment_ids: Tensor | None = None,
    settings: FilterSettings = DEFAULT_SETTINGS,
    path: Tensor | None = None,
) -> Tensor:
    """An upper bound, in expectation, on the NLL of ``targets`` (B, T), the successors of
    ``inputs`` (B, T), by a filter of K = ``particles``: nats per chunk, (S,) in float64. With a
    ``path``, a lower bound.

    The lower half runs once for all particles. Memory: the upper half's keys and values for S · K
    chunks.

    Args:
        draw: returns new noise (B, T, H), uniform on [0, 1). Called K + 1 times: for the z of each
            particle, and for resampling, which uses the first of its H numbers; once more to
            stratify. 2 K times with a path.
        segment_ids: as in ``latent_bounds``.
        path: z (B, T), one draw of p(z | x) for each chunk. The first particle keeps it to the end
            and is always its own ancestor; the others are drawn independently of each other, and
            resampled so. Then the mean of 1 / p̂(x) is 1 / p(x) (conditional SMC: Andrieu, Doucet &
            Holenstein 2010, Particle Markov chain Monte Carlo methods, § 4.3).

    Raises:
        ValueError: the model is a baseline or has one latent code per sequence, or shapes do not
            fit ``inputs``.
    """
    draw = checked(draw, model, inputs, targets)
    assert model.latent is not None, "checked"
    if model.config.latent.one_code:
        raise ValueError("latent.per: one code per sequence leaves nothing to filter")
    if path is not None:
        check_like("path", path, inputs.shape, inputs)
        path, settings = path.flatten(), replace(settings, stratify=False)
    x, at, ids = lower_half(model, inputs, segment_ids)
    proposal = settings.proposal or 0.0
    o = model.encode(inputs, x, at).flatten(0, 1) if proposal else None
    x = x.flatten(0, 1)  # (B · T, D)
    starts, begins = at.span_starts, None  # (B · T,): whether a token draws a z
    if starts is not None:
        begins = is_start(starts).expand_as(inputs).flatten()
    noise = torch.stack([draw() for _ in range(particles)], dim=2).flatten(0, 1)  # (B · T, K, H)
    uniform = torch.stack([draw()[..., 0] for _ in range(1 if path is None else particles)], dim=2)
    uniform = uniform.flatten(0, 1).double()  # (B · T, 1 or K)
    if settings.stratify:
        noise = stratified(noise, draw().flatten(0, 1))
    lengths, tokens = tokens_by_chunk(ids)
    longest = lengths.argsort(descending=True, stable=True)  # chunks that end leave the last rows
    tokens, index = tokens[longest], torch.arange(tokens.shape[1], device=x.device)
    active = (lengths[:, None] > index).sum(0)  # chunks that have a token there, (T',)

    nll = torch.zeros(len(lengths), dtype=torch.float64, device=x.device)
    log_weights = nll[:, None].expand(-1, particles) - log(particles)  # log W, (n, K)
    cloud = Particles(model, tokens.shape[1])
    hidden = x.new_zeros(len(lengths), particles, x.shape[-1])  # of the token before
    z = torch.zeros(len(lengths), particles, dtype=torch.long, device=x.device)
    for t, n in enumerate(active.tolist()):
        now = tokens[:n, t]
        logits = None if o is None else o[now]
        kept = None if path is None else path[now]
        new, log_ratio = propose(
            *(model.latent, x[now], hidden[:n], noise[now], logits, proposal), kept
        )
        if begins is None:
            z = new
        else:
            here = begins[now][:, None]
            z, log_ratio = torch.where(here, new, z[:n]), log_ratio * here
        hidden = cloud.read(x[now], z)
        target = targets.flatten()[now][:, None].expand(-1, particles)
        log_weights = log_weights[:n] + log_ratio - token_nll(model, hidden, target)
        log_p = log_weights.logsumexp(1)
        nll[:n] -= log_p
        log_weights = log_weights - log_p[:, None]
        effective = (2 * log_weights).logsumexp(1).neg().exp()  # sample size
        poor = (effective < settings.resample_below * particles).nonzero().squeeze(1)
        if len(poor):
            weights, points = log_weights[poor].exp(), uniform[now[poor]]
            if path is None:
                ancestors = systematic(weights, points[:, 0])
            else:
                ancestors = drawn_at(points, weights)
                ancestors[:, 0] = 0
            cloud.move(poor, ancestors)
            hidden[poor] = hidden[poor[:, None], ancestors]
            z[poor] = z[poor[:, None], ancestors]
            log_weights[poor] = -log(particles)
    return torch.empty_like(nll).scatter_(0, longest, nll)
