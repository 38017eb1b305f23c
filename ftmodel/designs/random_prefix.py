"""A random prefix: n random tokens before each sequence of a baseline, the cheapest rival to z
(seed-conditioning, Nagarajan et al. 2025, arXiv 2504.15266). Like z, they are noise that a model
may turn into a choice before it writes; unlike z, no encoder says which noise suits a text.

The prefix c is uniform: n independent tokens from its own vocabulary of 16, so it has 4 n
bits. Hence p(x) = (1 / 16^n) Σ_c p(x | c). It is drawn by the noise of a row's first token, stands
at the n positions before it, and is read by all tokens of the row; it is never predicted.

Shapes: B rows, T tokens, D model width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ftmodel.designs.noise import Draws
from ftmodel.mapper import signs

PREFIX_VOCABULARY = 16


class RandomPrefix(nn.Module):
    """The embeddings of the prefix's n = ``width`` tokens: ``weight`` (16, D)."""

    drawn_once = True
    purpose, reader = "a random prefix is drawn", "a random prefix must stand before"

    def __init__(self, width: int, d_model: int) -> None:
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.empty(PREFIX_VOCABULARY, d_model))

    def forward(self, x: Tensor, draws: Draws, padding: Tensor | None = None) -> Tensor:
        """Put the prefix before embedded tokens x (B, T, D), behind any ``padding`` (B,), which
        stays in front: (B, n + T, D). The draws of a row's first token decide it. A given code of
        n bits takes the last token of the vocabulary for a set bit, the first for a clear one.
        """
        rows = torch.arange(len(x), device=x.device)
        first = draws[rows, 0 if padding is None else padding]  # noise (B, n)
        prefix = (first.noise * PREFIX_VOCABULARY).long()
        if first.codes is not None:
            pinned = (signs(first.codes, self.width) > 0) * (PREFIX_VOCABULARY - 1)
            given = torch.ones_like(first.codes).bool() if first.given is None else first.given
            prefix = torch.where(given[:, None], pinned, prefix)
        both = torch.cat((F.embedding(prefix, self.weight), x), dim=1)
        if padding is None:
            return both
        index = torch.arange(both.shape[1], device=x.device)
        shift = index - padding[:, None]
        # padding may hold anything
        return both[rows[:, None], torch.where((shift >= 0) & (shift < self.width), shift, index)]
