"""A product, then its factors: easy to generate once the factors are known.

Two primes of 3 digits are drawn independently and uniformly. A sequence is a countdown of 8 blanks,
the 6 digits of their product, '=', the smaller prime, 'x' and the larger one:

    hgfedcba010403=101x103

Everything after the first blank is scored. A product has one pair of factors, so all exact bits
belong to the product and none to the factors. In this order next-token prediction has to know,
digit by digit, which numbers are products of two such primes, and then to factor one. With a z at
the blanks that holds the pair, 2 log2(143) − 1 = 13.3 bits, the product is a multiplication and the
factors are copies of z. There are 10 296 sequences, few enough to be learned by heart in time.

Each blank is a symbol of its own, as in ``path_star``.
"""

from math import log

import torch
from torch import Generator, Tensor

from ftmodel.synthetic.process import Process

BLANKS = 8
DIGITS = 3  # of a factor; a product has twice as many
PRIMES = torch.tensor([p for p in range(100, 1000) if all(p % d for d in range(2, 32))])
SYMBOLS = "0123456789hgfedcba=x"  # a token id is an index into this string; digits are first
BLANK, EQUALS, TIMES = (SYMBOLS.index(c) for c in "h=x")  # the first blank; the others follow it
ROW = BLANKS + 4 * DIGITS + 2


def sample_sequences(n: int, generator: Generator) -> Tensor:
    """Draw n sequences (n, 22) of token ids."""
    drawn = PRIMES[torch.randint(len(PRIMES), (n, 2), generator=generator)]
    return as_sequences(*drawn.sort(1).values.unbind(1))


def as_sequences(smaller: Tensor, larger: Tensor) -> Tensor:
    """Sequences (n, 22) of pairs of factors, (n,) each."""

    blanks = (BLANK + torch.arange(BLANKS)).expand(len(smaller), -1)
    equals, times = (torch.full_like(smaller, sign)[:, None] for sign in (EQUALS, TIMES))
    product = digits(smaller * larger, 2 * DIGITS)
    factors = (digits(smaller, DIGITS), times, digits(larger, DIGITS))
    return torch.cat((blanks, product, equals, *factors), dim=1)


def digits(numbers: Tensor, count: int) -> Tensor:
    """The last ``count`` decimal digits (n, count) of numbers (n,), the highest first."""
    return numbers[:, None] // 10 ** torch.arange(count - 1, -1, -1) % 10


def exact_log_probability(sequences: Tensor) -> Tensor:
    """log P(sequence) in nats, (n,), of sequences (n, 22); −inf unless it is a product of two such
    primes with its factors in order.

    Two draws give a pair of different primes, one draw a square.
    """
    powers = 10 ** torch.arange(DIGITS - 1, -1, -1)
    smaller = (sequences[:, -1 - 2 * DIGITS : -1 - DIGITS] * powers).sum(1)
    larger = (sequences[:, -DIGITS:] * powers).sum(1)
    fits = (sequences == as_sequences(smaller, larger)).all(1) & (smaller <= larger)
    fits &= torch.isin(smaller, PRIMES) & torch.isin(larger, PRIMES)
    draws = torch.where(smaller == larger, 1.0, 2.0).double()
    return torch.where(fits, draws.log() - 2 * log(len(PRIMES)), -torch.inf)


PROCESS = Process(
    symbols=tuple(SYMBOLS),
    separator="",
    row=ROW,
    sample=sample_sequences,
    log_probability=exact_log_probability,
    answer=2 * DIGITS + 1,
)
