"""Where the z of a generation comes from: the prior, a seed, given codes, or given noise.

Noise samples z from the encoder at the prompt's positions, bit h being [noise_h < q_h], and from
the prior at new tokens, [noise_h < p_h]. Where tokens share a latent code, a span may begin in the
prompt and go on in new tokens. If these reused the encoder's code, they would depend on an encoder
that saw only part of the span, which never happens in training. So the code of a prompt's last span
is drawn, approximately, from the model's own posterior,

    p(z | prompt) ∝ p(z) Π p(x_{t+1} | x_≤t, z) over the prompt's tokens in that span,

where p(z) is the prior at its first token, given the tokens up to there and the z before. The z of
earlier spans is the encoder's, as in the paper.

Shapes: B rows, P prompt tokens, N new tokens, T = P + N, H latent bits, D model width,
C candidates.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ftmodel.designs.noise import Draws
from ftmodel.designs.sharing import at_starts, is_start
from ftmodel.inference.bounds import (
    log_density_ratio,
    prior_probability,
    sampled_probability,
    token_nll,
)
from ftmodel.mapper import check_codes, pack_bits
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.positions import Positions, span_starts

Shape = tuple[int, int, int]  # B, T, H
Generators = Generator | Sequence[Generator]  # one for all rows, or one for each
CANDIDATES = 16  # of a prompt's last z


class LatentSource(ABC):
    """What decides the z of all positions."""

    @abstractmethod
    def draws(
        self, shape: Shape, prompt: int, generator: Generators, padding: Tensor | None
    ) -> Draws:
        """Draws of ``shape`` (B, T, H), P = ``prompt``, or of one position fewer: the last new
        token is never read. ``generator`` and ``padding`` (B,) as in ``generate``.

        Raises ValueError if this source cannot give them.
        """


@dataclass(frozen=True)
class FromPrior(LatentSource):
    """Noise from the generator of ``generate``, so z of new tokens comes from the prior; z of the
    prompt comes from the encoder, as with every source but given codes. Groups of
    ``share`` neighbouring rows have the same noise, and so under the uniform prior the same z of
    new tokens.
    """

    share: int = 1

    def draws(
        self, shape: Shape, prompt: int, generator: Generators, padding: Tensor | None
    ) -> Draws:
        rows, length, bits = shape
        if rows % self.share:
            raise ValueError(f"{rows} sequences cannot share z in groups of {self.share}")
        if not isinstance(generator, Generator):
            raise ValueError("generators of single rows draw only tokens: z needs a seed or noise")
        noise = torch.rand(rows // self.share, length, bits, generator=generator)
        return Draws(noise.repeat_interleave(self.share, dim=0))


@dataclass(frozen=True)
class Pinned(LatentSource):
    """The same noise in every row, drawn with ``seed`` and counted from each row's first token
    after its padding. Under the uniform prior all rows then have the same z of new tokens.
    """

    seed: int

    def draws(
        self, shape: Shape, prompt: int, generator: Generators, padding: Tensor | None
    ) -> Draws:
        rows, length, bits = shape
        noise = torch.rand(length, bits, generator=torch.Generator().manual_seed(self.seed))
        if padding is None:
            return Draws(noise.expand(rows, -1, -1))
        index = torch.arange(length) - padding.cpu()[:, None]  # (B, T)
        return Draws(noise[index.clamp(min=0)])


@dataclass(frozen=True)
class Codes(LatentSource):
    """Given codes of the new tokens, integers (N,) or (B, N) in 0 … 2^H − 1; N − 1 of them are
    enough. The z of the prompt comes from the encoder, with noise from the generator.
    """

    z: Tensor

    def draws(
        self, shape: Shape, prompt: int, generator: Generators, padding: Tensor | None
    ) -> Draws:
        (rows, length, bits), z, new = shape, self.z, shape[1] - prompt
        if z.is_floating_point() or (z.dim() == 2 and z.shape[0] not in (1, rows)) or z.dim() > 2:
            raise ValueError(f"codes must be integers (N,) or ({rows}, N), not {tuple(z.shape)}")
        if z.shape[-1] < new - 1:
            raise ValueError(f"{z.shape[-1]} codes cannot pin {new} new tokens")
        check_codes(z, bits)
        noise = FromPrior().draws(shape, prompt, generator, padding).noise
        codes = torch.zeros(rows, length, dtype=torch.long)
        codes[:, prompt : prompt + z.shape[-1]] = z[..., :new].cpu()
        given = torch.arange(length) >= prompt
        return Draws(noise, codes, given.expand(rows, -1))


@dataclass(frozen=True)
class Noise(LatentSource):
    """Given noise (B, T, H), uniform on [0, 1), for the prompt and the new tokens. The last
    position may be missing, and padding may hold any number. With ``codes`` (B, T), positions have
    that z instead, also in the prompt: all positions, or the ``given`` ones (B, T).
    """

    values: Tensor
    codes: Tensor | None = None
    given: Tensor | None = None

    def draws(
        self, shape: Shape, prompt: int, generator: Generators, padding: Tensor | None
    ) -> Draws:
        rows, length, bits = shape
        size = tuple(self.values.shape)
        if len(size) != 3 or size[::2] != (rows, bits) or size[1] < length - 1:
            raise ValueError(f"noise must be ({rows}, {length}, {bits}), not {size}")
        if self.codes is not None:
            if self.codes.shape != size[:2]:
                raise ValueError(f"codes must be {size[:2]}, not {tuple(self.codes.shape)}")
            check_codes(self.codes, bits)
        return Draws(self.values, self.codes, self.given)


def candidate_noise(noise: Tensor) -> Tensor:
    """Noise (C, B, H) for C candidates, from noise (B, H) for one: uniform on [0, 1) each, a fixed
    set of points rotated by ``noise`` (Cranley & Patterson 1976), the first being ``noise`` itself.
    """
    fixed = torch.Generator().manual_seed(0)
    points = torch.rand(CANDIDATES, 1, noise.shape[-1], generator=fixed)
    points[0] = 0
    return (noise + points.to(noise.device)) % 1


@torch.inference_mode()
def prompt_codes(
    model: FreeTransformer, prompt: Tensor, draws: Draws, x: Tensor, o: Tensor, at: Positions
) -> Tensor:
    """z (B, P) of prompts (B, P), at all tokens of a span the same: the encoder's by ``draws``
    (B, P, H), but a prompt's last span has a z from p(z | prompt), where none is given.

    Args:
        x: the lower half's activations (B, P, D) of the prompts, at their positions ``at``.
        o: the encoder's logits (B, P, H).

    The draw is sampling importance resampling (Rubin 1988): half of C candidates are proposed by
    the prior, half by the encoder, z has weight p(z) Π p(x_{t+1} | x_≤t, z) / ((p(z) + q(z)) / 2),
    and one of them is drawn by weight. It is approximate where few of the candidates suit the
    prompt: where a long prompt determines more than log2 C bits of z, and the encoder does not know
    them.
    """
    assert model.latent is not None
    embed, starts = model.latent.embed, at.span_starts
    codes = draws.choose(model.latent.sample(o, draws.noise)[1])
    if starts is None:
        return codes
    rows, index = (torch.arange(n, device=prompt.device) for n in prompt.shape)
    begin = starts[:, -1].expand(len(prompt))  # of the last span
    ours = draws[rows, begin]
    if ours.codes is not None and (ours.given is None or bool(ours.given.all())):
        return at_starts(codes, starts)
    inside = index[:-1] >= begin[:, None]  # (B, P − 1)
    first = int(begin.min())
    hidden = model.upper(x, embed(codes), at) if model.latent.prior.sequential else None
    p = prior_probability(model.prior_logits(x, at, hidden), x).expand_as(o)[rows, begin]
    q = sampled_probability(o[rows, begin])

    candidates, log_weights = [], []
    for c, uniform in enumerate(candidate_noise(ours.noise)):
        bits = uniform < (q if c % 2 else p)
        candidates.append(pack_bits(bits))
        hidden = model.upper(x, embed(codes.index_put((rows, begin), candidates[-1])), at)
        nll = token_nll(model, hidden[:, first:-1], prompt[:, first + 1 :]).double()
        mixture = (1 + log_density_ratio(bits, q, p).exp()).log()  # (p + q) / p
        log_weights.append(-mixture - (nll * inside[:, first:]).sum(1))
    shares = torch.stack(log_weights, dim=1).softmax(1).cumsum(1)  # (B, C)
    # by the noise of the next token, which reads no z of its own; without one, nothing weighs the
    # candidates, and z is the first, which is the prior's
    after = (begin + 1).clamp(max=prompt.shape[1] - 1)
    point = (draws.noise[rows, after, 0] * (after > begin)).double()
    chosen = torch.searchsorted(shares, point[:, None], right=True).squeeze(1)
    chosen.clamp_(max=CANDIDATES - 1)
    z = ours.choose(torch.stack(candidates)[chosen, rows])
    return at_starts(codes.index_put((rows, begin), z), starts)


def draws_of_new_tokens(
    model: FreeTransformer, draws: Draws, codes: Tensor, padding: Tensor | None
) -> Draws:
    """Draws (B, N, H) that give all new tokens of a span one z: the prompt's ``codes`` (B, P) if
    the span begins there, else what ``draws`` (B, N, H) say at its start.
    """
    (rows, p), new = codes.shape, draws.noise.shape[1]
    starts = span_starts(model.config.latent, p + new, codes.device, padding=padding)
    if starts is None:
        return draws
    starts = starts.expand(rows, -1)
    of_prompt = (starts < p)[:, p:]
    prompts = at_starts(torch.cat((codes, codes.new_zeros(rows, new)), dim=1), starts)[:, p:]
    given = of_prompt
    if draws.codes is not None:
        prompts = torch.where(of_prompt, prompts, draws.codes)
        given = of_prompt | (True if draws.given is None else draws.given)
    keep = ~(of_prompt | is_start(starts)[:, p:])
    return Draws(draws.noise, prompts, given, keep)
