"""Cross-entropy of texts with z that is not their own, per text, in nats: with the z of another
source, and on the way from a text's z to another's, a few bits at a time, where a sequence has one
z.

It is the reconstruction cross-entropy with another z in place of a sample of the posterior. Neither
is a language-model loss.

Shapes: S texts, T tokens, D model width, H latent bits, F steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Generator, Tensor

from ftmodel.designs.noise import Draws
from ftmodel.designs.sharing import at_starts
from ftmodel.inference.bounds import sampled_probability, token_nll
from ftmodel.inference.passes import upper_from_prior
from ftmodel.mapper import pack_bits
from ftmodel.model.free_transformer import FreeTransformer


@dataclass(frozen=True)
class SwappedCE:
    """−log p(text | z) by where z is from, nats, mean over its draws: (S,) each."""

    own: Tensor  # the posterior given the text
    prior: Tensor
    other: Tensor  # the posterior given another text, at the same positions
    permuted: Tensor  # its own, at permuted positions


def another_document(document: Tensor, generator: Generator) -> Tensor:
    """For each of S texts, draw the index of a text from another document, (S,), given the
    ``document`` (S,) of each. Raises ValueError if all texts are from one document.
    """
    if len(document.unique()) < 2:
        raise ValueError("all texts are from one document")
    others = (document[:, None] != document).double()
    return torch.multinomial(others, 1, generator=generator)[:, 0]


def codes_by_source(
    q: Tensor,
    starts: Tensor | None,
    prior: Callable[[Tensor], Tensor],
    donor: Tensor,
    generator: Generator,
) -> SwappedCE:
    """Draw codes (S, T) from each source. Bits of the texts' own posterior have probabilities q
    (S, T, H); tokens of a span, whose first is at ``starts`` (1, T), read one z; ``prior`` draws
    codes with noise (S, T, H).
    """
    codes = at_starts(pack_bits(torch.rand(q.shape, generator=generator) < q), starts)
    first = torch.arange(codes.shape[1]) if starts is None else starts[0]
    first, span = first.unique(return_inverse=True)
    order = torch.rand(len(codes), len(first), generator=generator).argsort(1)
    return SwappedCE(
        own=codes,
        prior=prior(torch.rand(q.shape, generator=generator)),
        other=codes[donor],
        permuted=codes[:, first].gather(1, order)[:, span],
    )


@torch.inference_mode()
def swapped_ce(
    model: FreeTransformer,
    texts: Tensor,
    donor: Tensor,
    samples: int,
    rows: int,
    generator: Generator,
) -> SwappedCE:
    """Cross-entropy of all but the first token of texts (S, T + 1) by the source of z.

    Args:
        donor: (S,), the index of the text whose z takes the place of a text's own.
        samples: draws of z from each source, over which the mean is taken.
        rows: texts that are computed at once.
        generator: on the CPU, draws all z.
    """
    assert model.latent is not None, "a baseline has no z to swap"
    device = texts.device
    at = model.positions(texts[:, :-1])
    inputs = [part[:, :-1] for part in texts.split(rows)]
    below = [model.lower(part, at) for part in inputs]
    o = [model.encode(part, x, at) for part, x in zip(inputs, below, strict=True)]
    q = sampled_probability(torch.cat(o)).cpu()

    def prior(noise: Tensor) -> Tensor:
        parts = zip(below, noise.to(device).split(rows), strict=True)
        drawn = [upper_from_prior(model, x, Draws(part), at)[1].cpu() for x, part in parts]
        return torch.cat(drawn)

    starts = None if at.span_starts is None else at.span_starts.cpu()
    drawn = [codes_by_source(q, starts, prior, donor, generator) for _ in range(samples)]
    sums = {field.name: torch.zeros(len(texts)).double() for field in fields(SwappedCE)}
    for index, x in zip(torch.arange(len(texts)).split(rows), below, strict=True):
        part = texts[index.to(device)]
        for codes in drawn:
            for name, total in sums.items():
                r = model.latent.embed(getattr(codes, name)[index].to(device))
                nll = token_nll(model, model.upper(x, r, at), part[:, 1:])
                total[index] += nll.double().sum(1).cpu() / samples
    return SwappedCE(**sums)


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
