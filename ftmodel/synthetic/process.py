"""What a synthetic process is: a distribution over sequences whose likelihood is known exactly.

Every sequence of a process is a row of the same length, (n, row) token ids; a token id is the index
of its symbol in ``symbols``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Generator, Tensor


@dataclass(frozen=True)
class Process:
    symbols: tuple[str, ...]
    separator: str  # between symbols in a text
    row: int  # tokens of a sequence
    sample: Callable[[int, Generator], Tensor]  # n sequences (n, row)
    log_probability: Callable[[Tensor], Tensor]  # of (n, row), given the first token: (n,), nats
    answer: int = 0  # tokens at the end that follow from those before, none of them random
    # with a hidden fair binary label: the rows that ``sample`` draws, and their labels (n,)
    sample_labelled: Callable[[int, Generator], tuple[Tensor, Tensor]] | None = None
    label_posterior: Callable[[Tensor], Tensor] | None = None  # P(label = 1 | row), (n,)

    def text(self, row: Tensor) -> str:
        return self.separator.join(self.symbols[i] for i in row.tolist())
