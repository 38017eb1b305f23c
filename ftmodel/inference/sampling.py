"""Drawing tokens from logits.

Shapes: B sequences, N new tokens, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor


def token_draws(generator: Generator | Sequence[Generator], rows: int, n_new: int) -> Tensor:
    """Uniform numbers on [0, 1), float64 (N, B), one for each new token of B = ``rows`` sequences,
    from one generator or from one for each row.
    """
    if isinstance(generator, Generator):
        return torch.rand(n_new, rows, dtype=torch.float64, generator=generator)
    columns = [torch.rand(n_new, dtype=torch.float64, generator=own) for own in generator]
    return torch.stack(columns, dim=1)


def sample_token(logits: Tensor, temperature: float, draws: Tensor | None) -> Tensor:
    """One token per row, (B,), of logits (B, V): the most probable one at temperature 0 (``draws``
    None), else the inverse of the distribution function at ``draws`` (B,), uniform on [0, 1). V
    where logits are NaN and there is no such token.

    One random number per row; ``torch.multinomial`` draws one for each of V tokens.
    """
    if draws is None:
        most, token = logits.max(1)  # the first of equals, as argmax, but faster on a CPU
        return token.masked_fill_(most.isnan(), logits.shape[1])
    probabilities = (logits.float() / temperature).softmax(1)
    cumulative = probabilities.cumsum(1, dtype=torch.float64)
    # 1 − draws is in (0, 1]: the threshold is at most the last cumulative sum, and a token of
    # probability 0 is never the first to reach it, if sums are accumulated in order, as on a CPU
    threshold = (1 - draws)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, threshold).squeeze(1)


def check_tokens(tokens: Tensor, vocabulary: int) -> None:
    """Raise ValueError unless all ``tokens`` are below V = ``vocabulary``; see ``sample_token``."""
    if (tokens >= vocabulary).any():
        raise ValueError(
            "no token can be drawn: logits are NaN or infinite, perhaps after the temperature"
        )
