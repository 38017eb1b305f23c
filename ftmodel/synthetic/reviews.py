"""Reviews from a small grammar: text with a hidden binary label, the sentiment.

A review's sentiment is a fair coin. Each of its sentences, independently given the sentiment, has
one of three shapes and draws its words uniformly, except the adjective: with probability 0.8 it has
the review's sentiment, else the other. Nouns and adverbs are independent of the label. A sequence
is a start symbol and 8 sentences of 6 words.
"""

from math import log

import torch
from torch import Generator, Tensor

from ftmodel.synthetic.process import Process

SENTENCES = 8
OWN = 0.8  # P(adjective has the review's sentiment)

NOUNS = ("plot", "cast", "music", "script", "camera", "ending", "title", "hero")
ADVERBS = ("very", "rather", "quite", "really")
ADJECTIVES = (  # by sentiment: 0 negative, 1 positive
    ("dull", "weak", "clumsy", "boring"),
    ("fine", "bright", "lovely", "clever"),
)
SHAPES = (  # the words in capitals are drawn
    ["the", "NOUN", "was", "ADVERB", "ADJECTIVE", "."],
    ["they", "found", "the", "NOUN", "ADJECTIVE", "."],
    ["what", "a", "ADVERB", "ADJECTIVE", "NOUN", "."],
)
START = "review:"
FIXED = sorted({word for shape in SHAPES for word in shape if not word.isupper()})
SYMBOLS = (START, *FIXED, *NOUNS, *ADVERBS, *ADJECTIVES[0], *ADJECTIVES[1])
WORDS = len(SHAPES[0])  # of a sentence
ROW = 1 + SENTENCES * WORDS

ID = {word: i for i, word in enumerate(SYMBOLS)}
EACH = len(ADJECTIVES[0])  # adjectives of a sentiment
FIRST = {"NOUN": ID[NOUNS[0]], "ADVERB": ID[ADVERBS[0]], "ADJECTIVE": ID[ADJECTIVES[0][0]]}
COUNT = {"NOUN": len(NOUNS), "ADVERB": len(ADVERBS), "ADJECTIVE": len(ADJECTIVES) * EACH}


def sample_labelled(n: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Draw n sequences (n, 49) of token ids, and return with them the sentiment (n,), 0 or 1."""
    label = torch.randint(2, (n,), generator=generator)
    size = (n, SENTENCES)
    own = torch.rand(size, generator=generator) < OWN
    sentiment = torch.where(own, label[:, None], 1 - label[:, None])
    drawn = {kind: torch.randint(COUNT[kind], size, generator=generator) for kind in COUNT}
    drawn["ADJECTIVE"] = sentiment * EACH + drawn["ADJECTIVE"] % EACH
    kind = torch.randint(len(SHAPES), size, generator=generator)
    of_shape = [  # the sentence in each shape, (n, S, WORDS)
        torch.stack(
            [
                FIRST[word] + drawn[word] if word in FIRST else torch.full(size, ID[word])
                for word in shape
            ],
            dim=-1,
        )
        for shape in SHAPES
    ]
    sentences = torch.stack(of_shape)[kind, torch.arange(n)[:, None], torch.arange(SENTENCES)]
    start = torch.full((n, 1), ID[START])
    return torch.cat((start, sentences.flatten(1)), dim=1), label


def sample_sequences(n: int, generator: Generator) -> Tensor:
    return sample_labelled(n, generator)[0]


def exact_log_probability(sequences: Tensor) -> Tensor:
    """log P(words after the first) in nats, (n,), of sequences (n, 49), summed over both labels;
    −inf for what the grammar cannot produce.
    """
    total = torch.logsumexp(given_label(sequences), dim=0) - log(2)
    return torch.where(sequences[:, 0] == ID[START], total, -torch.inf)


def label_posterior(sequences: Tensor) -> Tensor:
    """P(sentiment is 1 | words), (n,), of sequences (n, 49) of the grammar."""
    return given_label(sequences).softmax(0)[1]


def given_label(sequences: Tensor) -> Tensor:
    """log P(words after the first | label) in nats, (2, n), of sequences (n, 49)."""
    sentences = sequences[:, 1:].unflatten(1, (-1, WORDS))  # (n, S, WORDS)
    return torch.stack([sentence_log_probability(sentences, k).sum(1) for k in (0, 1)])


def sentence_log_probability(sentences: Tensor, label: int) -> Tensor:
    """log P(sentence | label) in nats, (n, S), of sentences (n, S, WORDS)."""
    impossible = torch.tensor(-torch.inf, dtype=torch.float64)
    adjectives = torch.cat([torch.full((EACH,), OWN if k == label else 1 - OWN) for k in (0, 1)])
    table = {kind: torch.full((COUNT[kind],), -log(COUNT[kind])).double() for kind in COUNT}
    table["ADJECTIVE"] = (adjectives.double() / EACH).log()
    shapes = []
    for shape in SHAPES:
        log_p = torch.full(sentences.shape[:2], -log(len(SHAPES)), dtype=torch.float64)
        for word, ids in zip(shape, sentences.unbind(-1), strict=True):
            if word in FIRST:
                index = ids - FIRST[word]
                fits = (index >= 0) & (index < COUNT[word])
                log_p += torch.where(fits, table[word][index % COUNT[word]], impossible)
            else:
                log_p += torch.where(ids == ID[word], 0.0, impossible)
        shapes.append(log_p)
    return torch.stack(shapes).logsumexp(0)


PROCESS = Process(
    symbols=SYMBOLS,
    separator=" ",
    row=ROW,
    sample=sample_sequences,
    log_probability=exact_log_probability,
    sample_labelled=sample_labelled,
    label_posterior=label_posterior,
)
