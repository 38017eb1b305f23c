"""Cross-entropy of two texts while the latent code of one becomes the other's, a few bits at a
time. For designs with one latent code per sequence.

Like the swap of z, this is a reconstruction cross-entropy, not a language-model loss.

Shapes: S texts, T tokens, H latent bits, F steps.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ftmodel.inference.bounds import sampled_probability, token_nll
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.mapper import pack_bits

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the bits in which two z differ


@dataclass(frozen=True)
class PathCE:
    """−log p(text | z), nats, by how many of the differing bits are the other text's: (F, S)."""

    start: Tensor  # the text that the path begins at
    end: Tensor  # the other text
    random: Tensor  # the first text, with as many bits changed, chosen at random
    end_random: Tensor  # the other text, with the same changes


@torch.inference_mode()
def posterior(model: FreeTransformer, texts: Tensor, rows: int) -> Tensor:
    """P(bit = 1) of z given texts (S, T + 1) but their last token: (S, H), float64, on the CPU."""
    at = model.positions(texts[:, :-1])
    parts = texts[:, :-1].split(rows)
    o = [model.encode(part, model.lower(part, at), at)[:, 0] for part in parts]
    return sampled_probability(torch.cat(o)).cpu()


def paths(bits: Tensor, other: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Change ``bits`` (S, H) into ``other`` (S, H) step by step in a random order: (F, S, H). The
    second path changes as many bits, chosen at random.
    """
    differ = bits != other
    order, any_order = torch.rand(2, *bits.shape, generator=generator)
    orders = order.masked_fill(~differ, torch.inf), any_order
    shares = torch.tensor(SHARES, dtype=torch.float64)[:, None, None]
    counts = (shares * differ.sum(1, keepdim=True)).round()
    toward, at_random = (bits ^ (each.argsort(1).argsort(1) < counts) for each in orders)
    return toward, at_random


@torch.inference_mode()
def interpolated_ce(
    model: FreeTransformer, texts: Tensor, q: Tensor, donor: Tensor, rows: int, generator: Generator
) -> PathCE:
    """Cross-entropy of all but the first token of texts (S, T + 1), and of their donors, on the
    path between their z, each drawn once with ``q`` (S, H), as ``posterior`` gives it.

    Args:
        donor: (S,), the index of the text that each path leads to; on the CPU, as ``q`` is.
        rows: texts that are computed at once.
    """
    latent = model.latent
    assert latent is not None, "a baseline has no z"
    bits = torch.rand(q.shape, generator=generator) < q
    toward, at_random = paths(bits, bits[donor], generator)
    at = model.positions(texts[:, :-1])

    def ce(of: Tensor, path: Tensor) -> Tensor:
        """Cross-entropy of texts (S, T + 1) along bits (F, S, H): (F, S)."""
        parts = []
        for text, z in zip(of.split(rows), path.split(rows, dim=1), strict=True):
            x = model.lower(text[:, :-1], at)
            codes = pack_bits(z).to(text.device)[..., None].expand(-1, -1, x.shape[1])
            hidden = [model.upper(x, latent.embed(each), at) for each in codes]
            nll = [token_nll(model, each, text[:, 1:]).double().sum(1) for each in hidden]
            parts.append(torch.stack(nll).cpu())
        return torch.cat(parts, dim=1)

    end = texts[donor]
    return PathCE(ce(texts, toward), ce(end, toward), ce(texts, at_random), ce(end, at_random))
