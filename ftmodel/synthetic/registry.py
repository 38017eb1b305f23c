"""Synthetic processes: what a model of them should say is known exactly.

Every sequence of a process is a row of the same length, (n, row) token ids; a token id is the
place of its symbol in ``symbols``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Generator, Tensor

from ftmodel.synthetic import coin_flip, reviews, target_task


@dataclass(frozen=True)
class Process:
    symbols: tuple[str, ...]
    separator: str  # between symbols in a text
    row: int  # tokens of a sequence
    sample: Callable[[int, Generator], Tensor]  # n sequences (n, row)
    log_probability: Callable[[Tensor], Tensor]  # of (n, row), given the first token: (n,), nats
    # where a hidden fair coin decides a sequence: the same rows as of sample, and their labels (n,)
    sample_labelled: Callable[[int, Generator], tuple[Tensor, Tensor]] | None = None
    label_posterior: Callable[[Tensor], Tensor] | None = None  # P(label = 1 | row), (n,)

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
    "coin": Process(
        symbols=tuple(coin_flip.SYMBOLS),
        separator="",
        row=coin_flip.ROW,
        sample=coin_flip.sample_sequences,
        log_probability=coin_flip.exact_log_probability,
        sample_labelled=coin_flip.sample_labelled,
        label_posterior=coin_flip.label_posterior,
    ),
    "reviews": Process(
        symbols=reviews.SYMBOLS,
        separator=" ",
        row=reviews.ROW,
        sample=reviews.sample_sequences,
        log_probability=reviews.exact_log_probability,
        sample_labelled=reviews.sample_labelled,
        label_posterior=reviews.label_posterior,
    ),
}
