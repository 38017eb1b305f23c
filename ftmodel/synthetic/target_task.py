"""The paper's synthetic task (§ 4.1): a letter's target at a random position among noise.

A sequence is a prompt, the letter and '>', then 64 characters: underscores, with the letter
repeated 8 times from a uniform start, each character then replaced by '!' with probability 1/16.
"""

from math import log

import torch
from torch import Generator, Tensor

from ftmodel.synthetic.process import Process

LENGTH = 64
TARGET = 8
STARTS = LENGTH - TARGET + 1  # 57
NOISE = 1 / 16

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ALPHABET = LETTERS + "_!>"  # a token id is an index into this string
BLANK, BANG, ARROW = (ALPHABET.index(c) for c in "_!>")
PROMPT = 2  # tokens: the letter and '>'
ROW = PROMPT + LENGTH


def encode(text: str) -> Tensor:
    """Token ids (len(text),) of a text over ALPHABET; raises ValueError on any other character."""
    return torch.tensor([ALPHABET.index(c) for c in text])


def decode(tokens: Tensor) -> str:
    return "".join(ALPHABET[i] for i in tokens.tolist())


def sample_with_starts(n: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Draw n sequences (n, 66) of token ids, and return with them the start (n,) of each target,
    0 … 56 characters after the prompt.
    """
    letter = torch.randint(len(LETTERS), (n, 1), generator=generator)
    start = torch.randint(STARTS, (n, 1), generator=generator)
    offset = torch.arange(LENGTH) - start  # (n, 64)
    clean = torch.where((offset >= 0) & (offset < TARGET), letter, BLANK)
    noisy = torch.rand(n, LENGTH, generator=generator) < NOISE
    body = torch.where(noisy, BANG, clean)
    return torch.cat((letter, torch.full_like(letter, ARROW), body), dim=1), start.flatten()


def sample_sequences(n: int, generator: Generator) -> Tensor:
    return sample_with_starts(n, generator)[0]


def exact_log_probability(sequences: Tensor) -> Tensor:
    """log P(sequence | letter) in nats, (n,), of sequences (n, 66), by enumerating the 57 starts.

    −inf where the process cannot produce what follows the first token.
    """
    letter, arrow, body = sequences[:, :1], sequences[:, 1], sequences[:, PROMPT:]
    position = torch.arange(LENGTH)
    start = torch.arange(STARTS)[:, None]
    inside = (position >= start) & (position < start + TARGET)  # (57, 64)
    bang = (body == BANG)[:, None]
    fits = torch.where(inside, (body == letter)[:, None], (body == BLANK)[:, None])  # (n, 57, 64)
    impossible = torch.tensor(-torch.inf, dtype=torch.float64)
    log_p = torch.where(bang, log(NOISE), torch.where(fits, log(1 - NOISE), impossible)).sum(-1)
    total = torch.logsumexp(log_p, dim=1) - log(STARTS)
    return torch.where(arrow == ARROW, total, impossible)


PROCESS = Process(
    symbols=tuple(ALPHABET),
    separator="",
    row=ROW,
    sample=sample_sequences,
    log_probability=exact_log_probability,
)
