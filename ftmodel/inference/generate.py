"""Generation with a key-value cache: the prompt's z from the encoder, new z from the prior.

Shapes: B sequences, P prompt tokens, N new tokens, H latent bits.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from ftmodel.inference.fast_decoder import decoder
from ftmodel.model.mapper import pack_bits
from ftmodel.model.transformer import FreeTransformer


def latent_noise(rows: int, length: int, bits: int, generator: Generator, share: int = 1) -> Tensor:
    """Uniform noise (rows, length, bits) that fixes every z; ``share`` neighbouring rows agree."""
    assert rows % share == 0
    noise = torch.rand(rows // share, length, bits, generator=generator)
    return noise.repeat_interleave(share, dim=0)


@torch.inference_mode()
def generate(
    model: FreeTransformer,
    prompt: Tensor,
    n_new: int,
    *,
    generator: Generator | Sequence[Generator],
    z: int | Tensor | None = None,
    share_z: int = 1,
    noise: Tensor | None = None,
    temperature: float = 1.0,
    padding: Tensor | None = None,
    until: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Continue prompts (B, P), P ≥ 1, by ``n_new`` sampled tokens; returns (B, P + n_new), or fewer
    if ``until`` ends it earlier.

    Args:
        generator: CPU generator of all that is not pinned by ``z`` or ``noise``; or one for each
            row, from which its tokens are drawn whatever the other rows are. Those draw no z: a
            Free Transformer then needs ``noise`` or a seed as ``z``. All numbers are drawn at the
            start, however soon ``until`` ends a row.
        z: None draws z fresh. An integer is a seed: it fixes the z of all positions, the same for
            every row (prompt positions sample the encoder's bits with that seed's noise). A tensor
            of codes (N,) or (B, N), N ≥ n_new − 1, fixes the z of the new positions.
        share_z: that many neighbouring rows share their z where it is not pinned by ``z``.
        noise: (B, P + N, H), N ≥ n_new − 1, uniform on [0, 1), fixes the z of all positions: the
            encoder's bits of the prompt are sampled with it, new ones are [noise < 0.5]. In place
            of ``z`` and ``share_z``. What stands at padding does not matter. −1 sets a bit and 1
            clears it, the prompt's too, whatever the encoder says.
        temperature: of the token distribution; 0 takes the most probable token.
        padding: (B,), how many of the first positions of each prompt are padding, fewer than P, so
            that prompts may differ in length; what stands there does not matter.
        until: called after each token with all new ones, (B, n); returns (B,), which rows are
            finished. A finished row costs no more: from then on it repeats its last token, and
            stays finished whatever ``until`` says later. With all finished generation ends.

    Raises:
        ValueError: the result would not fit the model's context, the temperature is negative,
            ``share_z`` does not divide B, ``z`` or ``noise`` is given to a baseline or has the
            wrong shape, too few codes, or codes outside 0 … 2^H − 1, both are given, generators of
            single rows are not one a row or would have to draw z, or no token can be drawn as
            logits are NaN or, at a temperature above 0, divided by it, +∞ or all −∞.
    """
    b, p = prompt.shape
    device = prompt.device
    longest = p
    if padding is not None:
        longest -= int(padding.min())
        padding = padding.to(device) if padding.any() else None
    if longest + n_new - 1 > model.config.context:
        raise ValueError(
            f"{longest} prompt tokens and {n_new} new ones exceed the context of "
            f"{model.config.context}"
        )
    if temperature < 0:
        raise ValueError(f"a temperature of {temperature} is negative")
    bits = model.config.latent_bits
    if not bits and (z is not None or noise is not None):
        raise ValueError("a baseline has no z to pin")
    if b % share_z:
        raise ValueError(f"{b} sequences cannot share z in groups of {share_z}")
    if noise is not None and (z is not None or share_z > 1):
        raise ValueError("noise fixes every z: z and share_z have nothing left to say")
    if not isinstance(generator, Generator) and len(generator) != b:
        raise ValueError(f"{len(generator)} generators cannot draw the tokens of {b} sequences")
    codes = draws = None  # (N, B), of the rows that the model still reads
    if bits:
        noise = noise_of_z(b, p, n_new, bits, generator, z, share_z, noise, padding).to(device)
        codes = pack_bits(noise[:, p:] < 0.5).t()  # uniform over 0 … 2^H − 1
        noise = noise[:, :p]
        if isinstance(z, Tensor):
            check_codes(z, b, n_new, bits)
            codes = z.to(device).expand(b, -1).t()
    if temperature:
        draws = token_draws(generator, b, n_new).to(device)

    cache = model.new_cache(p + n_new)
    vocabulary = model.readout.out_features
    tokens = torch.cat((prompt, prompt.new_empty(b, n_new)), dim=1).long()
    rows: Tensor | slice = slice(None)  # those that the model still reads: all, or which
    # prefill: z from the encoder, on the prompt only
    hidden = model(prompt, noise=noise, cache=cache, padding=padding).hidden[:, -1]
    reader = decoder(model, cache, padding)
    for i in range(n_new):
        draw = None if draws is None else draws[i]
        token = sample_token(model.logits(hidden), temperature, draw)
        tokens[rows, p + i] = token
        if until is not None:
            check_drawn(token, vocabulary)
            finished = until(tokens[:, p : p + i + 1]).to(device)[rows]
            if finished.any():
                read = torch.arange(b, device=device)[rows]
                tokens[read[finished], p + i + 1 :] = token[finished, None]
                kept = (~finished).nonzero()[:, 0]
                if not len(kept):
                    return tokens[:, : p + i + 1]
                rows, token = read[kept], token[kept]
                codes, draws = (None if x is None else x[:, kept] for x in (codes, draws))
                padding = None if padding is None else padding[kept]
                cache = [layer.select(kept, p + n_new) for layer in cache]
                reader = decoder(model, cache, padding)
        if i + 1 < n_new:
            token.clamp_(max=vocabulary - 1)  # V is found at the end: to look is to wait for a GPU
            hidden = reader.read(token, None if codes is None else codes[i])
    check_drawn(tokens[:, p:], vocabulary)
    return tokens


def noise_of_z(
    b: int,
    p: int,
    n_new: int,
    bits: int,
    generator: Generator | Sequence[Generator],
    z: int | Tensor | None,
    share_z: int,
    noise: Tensor | None,
    padding: Tensor | None,
) -> Tensor:
    """Noise (B, P + N, H) that decides every z, but for those given as codes; arguments and
    ValueErrors are those of ``generate``.
    """
    if noise is not None:
        if noise.dim() != 3 or noise.shape[::2] != (b, bits) or noise.shape[1] < p + n_new - 1:
            raise ValueError(
                f"noise must be ({b}, {p} + {n_new}, {bits}), not {tuple(noise.shape)}"
            )
        return noise
    if isinstance(z, int):
        seeded = torch.Generator().manual_seed(z)
        drawn = latent_noise(1, p + n_new, bits, seeded)
        if padding is None:
            return drawn.expand(b, -1, -1)
        place = torch.arange(p + n_new) - padding.cpu()[:, None]  # (B, P + N)
        return drawn[0, place.clamp(min=0)]  # the first token's is the seed's first
    if isinstance(generator, Generator):
        return latent_noise(b, p + n_new, bits, generator, share_z)
    raise ValueError("generators of single rows draw tokens: z needs a seed or noise")


def check_codes(z: Tensor, b: int, n_new: int, bits: int) -> None:
    """Raise ValueError unless ``z`` (N,) or (B, N) are codes of at least N = n_new − 1 tokens."""
    if z.is_floating_point() or (z.dim() == 2 and z.shape[0] not in (1, b)) or z.dim() > 2:
        raise ValueError(f"codes must be integers (N,) or ({b}, N), not {tuple(z.shape)}")
    if z.shape[-1] < n_new - 1:
        raise ValueError(f"{z.shape[-1]} codes cannot pin {n_new} new tokens")
    if z.numel() and not 0 <= int(z.min()) <= int(z.max()) < 1 << bits:
        raise ValueError(f"a code lies outside 0 … {(1 << bits) - 1}")


def token_draws(generator: Generator | Sequence[Generator], b: int, n_new: int) -> Tensor:
    """Uniform numbers on [0, 1) (N, B), one for each new token, of one generator or one a row."""
    if isinstance(generator, Generator):
        return torch.rand(n_new, b, dtype=torch.float64, generator=generator)
    each = [torch.rand(n_new, dtype=torch.float64, generator=own) for own in generator]
    return torch.stack(each, dim=1)


def sample_token(logits: Tensor, temperature: float, draws: Tensor | None) -> Tensor:
    """One token a row, (B,), of logits (B, V): the most probable one at temperature 0, else that
    at which the distribution function passes the row's ``draws`` (B,), uniform on [0, 1). V where
    there is no such token, for NaN.

    One number a row, in place of one for each of V tokens as ``torch.multinomial`` draws.
    """
    if draws is None:
        most, token = logits.max(-1)  # the first of equals, as argmax, but faster on a CPU
        return token.masked_fill_(most.isnan(), logits.shape[-1])
    probabilities = (logits.float() / temperature).softmax(-1)
    total = probabilities.cumsum(-1, dtype=torch.float64)
    # 1 − draws is in (0, 1]: what is looked for is at most the last of total, and a token of
    # probability 0 is never the first to reach it, if sums are made in order, as on a CPU
    sought = (1 - draws)[:, None] * total[:, -1:]
    return torch.searchsorted(total, sought)[:, 0]


def check_drawn(tokens: Tensor, vocabulary: int) -> None:
    """Raise ValueError unless all ``tokens`` are of the vocabulary; see ``sample_token``."""
    if (tokens >= vocabulary).any():
        raise ValueError(
            "no token can be drawn: logits are NaN or infinite, as they are or over the temperature"
        )
