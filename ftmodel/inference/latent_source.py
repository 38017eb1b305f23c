"""Where the z of a generation comes from: the prior, a seed, given codes, or given noise.

All of them give noise. It samples z from the encoder at the prompt's positions, bit h being
[noise_h < q_h], and from the prior at new tokens, [noise_h < p_h].

Shapes: B rows, P prompt tokens, N new tokens, T = P + N, H latent bits.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ftmodel.designs.sharing import at_starts, noise_at_starts
from ftmodel.inference.bounds import (
    log_density_ratio,
    prior_probability,
    sampled_probability,
    token_nll,
)
from ftmodel.mapper import check_codes, pack_bits, pinned_noise
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.positions import span_starts

Shape = tuple[int, int, int]  # B, T, H
Generators = Generator | Sequence[Generator]  # one for all rows, or one for each


class LatentSource(ABC):
    """Noise for the z of all positions."""

    @abstractmethod
    def noise(self, shape: Shape, generator: Generators, padding: Tensor | None) -> Tensor:
        """Noise uniform on [0, 1), of ``shape`` (B, T, H), or of one position fewer: the last new
        token is never read. ``generator`` and ``padding`` (B,) as in ``generate``.

        Raises ValueError if this source cannot give such noise.
        """

    def of_new_tokens(self, noise: Tensor) -> Tensor:
        """Noise that samples the z of new tokens, from their part (B, N, H) of ``noise``: the same,
        or −1 where a bit of given codes is set and 1 where it is not.

        Raises ValueError if the codes do not fit such tokens.
        """
        return noise


@dataclass(frozen=True)
class FromPrior(LatentSource):
    """Noise from the generator of ``generate``, so z of new tokens comes from the prior. Groups of
    ``share`` neighbouring rows have the same noise, and so under the uniform prior the same z of
    new tokens.
    """

    share: int = 1

    def noise(self, shape: Shape, generator: Generators, padding: Tensor | None) -> Tensor:
        rows, length, bits = shape
        if rows % self.share:
            raise ValueError(f"{rows} sequences cannot share z in groups of {self.share}")
        if not isinstance(generator, Generator):
            raise ValueError("generators of single rows draw only tokens: z needs a seed or noise")
        noise = torch.rand(rows // self.share, length, bits, generator=generator)
        return noise.repeat_interleave(self.share, dim=0)


@dataclass(frozen=True)
class Pinned(LatentSource):
    """The same noise in every row, drawn with ``seed`` and counted from each row's first token
    after its padding. Under the uniform prior all rows then have the same z of new tokens.
    """

    seed: int

    def noise(self, shape: Shape, generator: Generators, padding: Tensor | None) -> Tensor:
        rows, length, bits = shape
        noise = torch.rand(length, bits, generator=torch.Generator().manual_seed(self.seed))
        if padding is None:
            return noise.expand(rows, -1, -1)
        index = torch.arange(length) - padding.cpu()[:, None]  # (B, T)
        return noise[index.clamp(min=0)]


@dataclass(frozen=True)
class Codes(LatentSource):
    """Given codes of the new tokens, integers (N,) or (B, N) in 0 … 2^H − 1; N − 1 of them are
    enough. The z of the prompt comes from the encoder, with noise from the generator.
    """

    z: Tensor

    def noise(self, shape: Shape, generator: Generators, padding: Tensor | None) -> Tensor:
        return FromPrior().noise(shape, generator, padding)

    def of_new_tokens(self, noise: Tensor) -> Tensor:
        z, (rows, new, bits) = self.z, noise.shape
        if z.is_floating_point() or (z.dim() == 2 and z.shape[0] not in (1, rows)) or z.dim() > 2:
            raise ValueError(f"codes must be integers (N,) or ({rows}, N), not {tuple(z.shape)}")
        if z.shape[-1] < new - 1:
            raise ValueError(f"{z.shape[-1]} codes cannot pin {new} new tokens")
        check_codes(z, bits)
        return pinned_noise(z.expand(rows, -1), bits)


@dataclass(frozen=True)
class Noise(LatentSource):
    """Given noise (B, T, H) for the prompt and the new tokens. The last position may be missing,
    and padding may hold any number. Noise of −1 sets a bit and noise of 1 clears it, also at the
    prompt's positions.
    """

    values: Tensor

    def noise(self, shape: Shape, generator: Generators, padding: Tensor | None) -> Tensor:
        rows, length, bits = shape
        size = tuple(self.values.shape)
        if len(size) != 3 or size[::2] != (rows, bits) or size[1] < length - 1:
            raise ValueError(f"noise must be ({rows}, {length}, {bits}), not {size}")
        return self.values


# The latent code of a span that a prompt begins and new tokens continue, where tokens share codes.
#
# In the paper's design the encoder gives a prompt's codes, and the prior the codes of new tokens.
# If new tokens reused the prompt's last latent code, they would depend on an encoder that saw only
# part of the span, which never happens in training. So the code of a prompt's last span is drawn,
# approximately, from the model's own posterior,
#
#     p(z | prompt) ∝ p(z) Π p(x_{t+1} | x_≤t, z) over the prompt's tokens in that span,
#
# where p(z) is the prior at its first token, given the tokens up to there and the z before,
#
# by sampling importance resampling (Rubin 1988): half of C candidates are proposed by the prior,
# half by the encoder, z has weight p(z) Π p(x_{t+1} | x_≤t, z) / (p(z) / 2 + q(z) / 2), and one of
# them is drawn by weight. It is approximate where few of the candidates suit the prompt: where a
# long prompt determines more than log2 C bits of z, and the encoder does not know them. The z of
# earlier spans is the encoder's, as in the paper.
#
# Shapes: B rows, P prompt tokens, N new tokens, H latent bits, D model width, C candidates.

CANDIDATES = 16


def is_pinned(noise: Tensor) -> Tensor:
    """Whether noise sets or clears a bit whatever its probability is, same shape."""
    return (noise < 0) | (noise >= 1)


def candidate_noise(noise: Tensor) -> Tensor:
    """Noise (C, B, H) for C candidates, from noise (B, H) for one: uniform on [0, 1) each, a fixed
    set of points rotated by ``noise`` (Cranley & Patterson 1976), the first being ``noise`` itself.
    Values outside [0, 1) pin a bit and stay.
    """
    fixed = torch.Generator().manual_seed(0)
    points = torch.rand(CANDIDATES, 1, noise.shape[-1], generator=fixed)
    points[0] = 0
    return torch.where(is_pinned(noise), noise, (noise + points.to(noise.device)) % 1)


@torch.inference_mode()
def settled_noise(
    model: FreeTransformer,
    prompt: Tensor,
    noise: Tensor,
    padding: Tensor | None,
    encoded: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Draw the z of each prompt's last span from p(z | prompt), and pin it: ``noise`` (B, P, H),
    uniform on [0, 1), but −1 and 1 at that span's start. Prompts are (B, P). Where each token reads
    its own z, the noise stays as it is.

    Args:
        padding: (B,), leading positions that hold no token; None: there are none.
        encoded: the lower half's activations (B, P, D) and the encoder's logits (B, P, H) of the
            prompts, if they are known.
    """
    at = model.positions(prompt, padding=padding)
    starts = at.span_starts
    if starts is None or model.latent is None:
        return noise
    if encoded is None:
        x = model.lower(prompt, at)
        encoded = x, model.encode(prompt, x, at)
    x, o = encoded
    rows, index = (torch.arange(n, device=prompt.device) for n in prompt.shape)
    last = starts[:, -1].expand(len(prompt))
    inside = index[:-1] >= last[:, None]  # (B, P − 1)
    own = noise[rows, last]
    pinned = is_pinned(own)
    if pinned.all():
        return noise
    first = int(last.min())
    hidden = None
    if model.latent.prior.sequential:
        hidden = model.upper(x, model.latent.sample(o, noise)[0], at)
    prior = model.prior_logits(x, at, hidden)
    p = prior_probability(prior, x).expand_as(o)[rows, last]
    q = torch.where(pinned, p, sampled_probability(o[rows, last]))  # no choice, no weight

    candidates, log_weights = [], []
    for c, uniform in enumerate(candidate_noise(own)):
        bits = uniform < (q if c % 2 else p)
        candidates.append(pinned_noise(pack_bits(bits), bits.shape[-1]))
        candidate = noise.index_put((rows, last), candidates[-1])
        hidden = model.upper(x, model.latent.sample(o, candidate)[0], at)
        nll = token_nll(model, hidden[:, first:-1], prompt[:, first + 1 :]).double()
        mixture = (1 + log_density_ratio(bits, q, p).exp()).log()  # (p + q) / p
        log_weights.append(-mixture - (nll * inside[:, first:]).sum(1))
    shares = torch.stack(log_weights, dim=1).softmax(1).cumsum(1)  # (B, C)
    # by the noise of the next token, which reads no z of its own; without one, nothing weighs the
    # candidates, and z is the first, which is the prior's
    after = (last + 1).clamp(max=prompt.shape[1] - 1)
    point = (noise[rows, after, 0] * (after > last)).clamp(min=0).double()
    chosen = torch.searchsorted(shares, point[:, None], right=True).squeeze(1)
    chosen.clamp_(max=CANDIDATES - 1)
    return noise.index_put((rows, last), torch.stack(candidates)[chosen, rows])


def noise_of_new_tokens(
    model: FreeTransformer, noise: Tensor, codes: Tensor, padding: Tensor | None
) -> Tensor:
    """Noise (B, N, H) that gives all new tokens of a span one z: the prompt's ``codes`` (B, P) if
    the span begins there, else the z that ``noise`` (B, N, H) draws at its start, with NaN at its
    other tokens.
    """
    length = codes.shape[1] + noise.shape[1]
    starts = span_starts(model.config.latent, length, codes.device, padding=padding)
    if starts is None:
        return noise
    every = torch.cat((pinned_noise(codes, noise.shape[-1]), noise), dim=1)
    in_prompt = (starts < codes.shape[1])[..., None]
    of_spans = torch.where(in_prompt, at_starts(every, starts), noise_at_starts(every, starts))
    return of_spans[:, codes.shape[1] :]
