"""The paper's coin (§ 2, equations 1 and 2): a hidden bit Z, and flips that are noisy copies of it.

Z ~ Bernoulli(1/2); the flips X_1 … X_64 are independent given Z, with

    P(X_t = 1 | Z = z) = (1 − ε) z + ε (1 − z).

Given Z a model needs to know one constant; without Z it must count the ones before every flip
(equation 2). A sequence is a start symbol and 64 flips, so that the first flip is predicted too.
"""

from math import log

import torch
from torch import Generator, Tensor

from ftmodel.synthetic.process import Process

FLIPS = 64
EPSILON = 0.2  # ε, the probability that a flip differs from Z
SYMBOLS = "^01"  # a token id is an index into this string
START, ZERO, ONE = range(3)
ROW = 1 + FLIPS


def probability_of_one(z: Tensor) -> Tensor:
    """P(X_t = 1 | Z = z), the same shape as z; z between 0 and 1 is the probability that Z is 1."""
    return (1 - EPSILON) * z + EPSILON * (1 - z)


def sample_labelled(n: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Draw n sequences (n, 65) of token ids, and return with them the Z (n,) of each."""
    z = torch.randint(2, (n, 1), generator=generator)
    flips = torch.rand(n, FLIPS, generator=generator) < probability_of_one(z)
    return torch.cat((torch.full_like(z, START), ZERO + flips.long()), dim=1), z.flatten()


def sample_sequences(n: int, generator: Generator) -> Tensor:
    return sample_labelled(n, generator)[0]


def exact_log_probability(sequences: Tensor) -> Tensor:
    """log P(flips) in nats, (n,), of sequences (n, 65); −inf for a row that is no flips."""
    flips = sequences[:, 1:]
    ones, zeros = (flips == ONE).sum(1).double(), (flips == ZERO).sum(1).double()
    given_one = ones * log(1 - EPSILON) + zeros * log(EPSILON)
    given_zero = ones * log(EPSILON) + zeros * log(1 - EPSILON)
    fits = (sequences[:, 0] == START) & (ones + zeros == flips.shape[1])
    return torch.where(fits, torch.logaddexp(given_one, given_zero) - log(2), -torch.inf)


def posteriors(sequences: Tensor) -> Tensor:
    """P(Z = 1 | x_1 … x_t) for t = 0 … 64, (n, 65), of sequences (n, 65).

    Equation 2: the posterior odds are ((1 − ε) / ε)^(ones − zeros so far).
    """
    signs = 2.0 * (sequences[:, 1:] == ONE) - 1  # (n, 64)
    lead = torch.nn.functional.pad(signs.cumsum(1), (1, 0)).double()
    return torch.sigmoid(lead * log((1 - EPSILON) / EPSILON))


def label_posterior(sequences: Tensor) -> Tensor:
    """P(Z = 1 | all flips), (n,), of sequences (n, 65)."""
    return posteriors(sequences)[:, -1]


def predictive(sequences: Tensor) -> Tensor:
    """P(X_{t+1} = 1 | x_1 … x_t) for t = 0 … 63, (n, 64), of sequences (n, 65)."""
    return probability_of_one(posteriors(sequences)[:, :-1])


PROCESS = Process(
    symbols=tuple(SYMBOLS),
    separator="",
    row=ROW,
    sample=sample_sequences,
    log_probability=exact_log_probability,
    sample_labelled=sample_labelled,
    label_posterior=label_posterior,
)
