"""Generation with a key-value cache: the prompt's z from the encoder, new z from the prior.

Shapes: B sequences, P prompt tokens, N new tokens, H latent bits.
"""

import torch
from torch import Generator, Tensor

from ftmodel.mapper import pack_bits
from ftmodel.transformer import FreeTransformer


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
    generator: Generator,
    z: int | Tensor | None = None,
    share_z: int = 1,
    temperature: float = 1.0,
) -> Tensor:
    """Continue prompts (B, P), P ≥ 1, by ``n_new`` sampled tokens; returns (B, P + n_new).

    Args:
        generator: CPU generator of all that is not pinned by ``z``.
        z: None draws z fresh. An integer is a seed: it fixes the z of all positions, the same for
            every row (prompt positions sample the encoder's bits with that seed's noise). A tensor
            of codes (N,) or (B, N), N ≥ n_new − 1, fixes the z of the new positions.
        share_z: that many neighbouring rows share their z where it is not pinned by ``z``.
        temperature: of the token distribution; 0 takes the most probable token.

    Raises:
        ValueError: the result would not fit the model's context, the temperature is negative,
            ``share_z`` does not divide B, or ``z`` is given to a baseline, has the wrong shape, too
            few codes, or codes outside 0 … 2^H − 1.
    """
    b, p = prompt.shape
    device = prompt.device
    if p + n_new - 1 > model.config.context:
        raise ValueError(
            f"{p} prompt tokens and {n_new} new ones exceed the context of {model.config.context}"
        )
    if temperature < 0:
        raise ValueError(f"a temperature of {temperature} is negative")
    bits = model.config.latent_bits
    if not bits and z is not None:
        raise ValueError("a baseline has no z to pin")
    if b % share_z:
        raise ValueError(f"{b} sequences cannot share z in groups of {share_z}")
    noise = codes = None
    if bits:
        if isinstance(z, int):
            seeded = torch.Generator().manual_seed(z)
            noise = latent_noise(1, p + n_new, bits, seeded).expand(b, -1, -1)
        else:
            noise = latent_noise(b, p + n_new, bits, generator, share_z)
        noise = noise.to(device)
        codes = pack_bits(noise[:, p:] < 0.5)  # uniform over 0 … 2^H − 1
        noise = noise[:, :p]
        if isinstance(z, Tensor):
            if z.is_floating_point() or (z.dim() == 2 and z.shape[0] not in (1, b)) or z.dim() > 2:
                raise ValueError(f"codes must be integers (N,) or ({b}, N), not {tuple(z.shape)}")
            if z.shape[-1] < n_new - 1:
                raise ValueError(f"{z.shape[-1]} codes cannot pin {n_new} new tokens")
            if z.numel() and not 0 <= int(z.min()) <= int(z.max()) < 1 << bits:
                raise ValueError(f"a code lies outside 0 … {(1 << bits) - 1}")
            codes = z.to(device).expand(b, -1)

    cache = model.new_cache(p + n_new)
    tokens = prompt
    out = model(prompt, noise=noise, cache=cache)  # prefill: z from the encoder, on the prompt only
    for i in range(n_new):
        token = sample_token(model.logits(out.hidden[:, -1]), temperature, generator)
        tokens = torch.cat((tokens, token), dim=1)
        if i + 1 < n_new:
            out = model(token, codes=None if codes is None else codes[:, i : i + 1], cache=cache)
    return tokens


def sample_token(logits: Tensor, temperature: float, generator: Generator) -> Tensor:
    """One token (B, 1) from logits (B, V); drawn on the CPU, so that devices agree."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    probabilities = (logits.float() / temperature).softmax(-1).cpu()
    return torch.multinomial(probabilities, 1, generator=generator).to(logits.device)
