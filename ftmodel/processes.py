"""Synthetic processes: what a model of them should say is known exactly.

Every sequence of a process is a row of the same length, (n, row) token ids; a token id is the
place of its symbol in ``symbols``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Generator, Tensor

from ftmodel import target_task


@dataclass(frozen=True)
class Process:
    symbols: tuple[str, ...]
    separator: str  # between symbols in a text
    row: int  # tokens of a sequence
    sample: Callable[[int, Generator], Tensor]  # n sequences (n, row)
    log_probability: Callable[[Tensor], Tensor]  # of (n, row), given the first token: (n,), nats

    def text(self, row: Tensor) -> str:
        return self.separator.join(self.symbols[i] for i in row.tolist())


PROCESSES = {
    "target": Process(
        symbols=tuple(target_task.ALPHABET),
        separator="",
        row=target_task.ROW,
        sample=target_task.sample_sequences,
        log_probability=target_task.exact_log_probability,
    ),
}
