"""Path-star graphs (Bachmann & Nagarajan 2024, arXiv 2403.06963) with room to choose the arm first.

A star has a start node and 3 arms of 3 nodes. A sequence is a countdown of 6 blanks, the 9 edges
("source target |"), start, goal (the end of a uniformly chosen arm) and the arm's 3 nodes from the
start to the goal:

    654321ab|fg|bc|hi|cd|ae|ij|ah|ef|agefg

The labels of the 10 nodes are a uniform draw without repetition from 12, the edges stand in a
uniformly random order. Everything after the first blank is scored: of the exact bits, log2(3) are
the goal's and the rest the edges'; none are the start's and the path's, which follow from what
stands before. A model that has not learned to go back from the goal pays log2(3) bits more at the
path's first node; given that one, each further node is looked up in one edge.

The goal stays before the path: written after it, it would only repeat the path's last node, and
nothing would have to be planned. The arm can be chosen before the goal is named all the same, by a
z at the blanks that holds the labels of the arm. That costs log2(12 · 11 · 10) = 10.4 bits. The
edges, which name these labels, give back all but log2(3) of them, and the goal the rest; goal and
path are then copies of z. So such a z costs nothing and leaves nothing to search. A planner without
z pays no more, and no model less than the exact NLL.

Each blank is a symbol of its own: attention over equal tokens gives equal states, which could
neither say different things nor tell how many blanks are left.
"""

from math import lgamma, log

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from ftmodel.synthetic.process import Process

BLANKS = 6
DEGREE = 3  # arms
ARM = 3  # nodes of an arm, without the start
LABELS = 12
SYMBOLS = "abcdefghijkl654321|"  # a token id is an index into this string; labels are first
BLANK, BAR = (SYMBOLS.index(c) for c in "6|")  # the first blank; the others follow it
ROW = BLANKS + 3 * DEGREE * ARM + 2 + ARM


def sample_sequences(n: int, generator: Generator) -> Tensor:
    """n sequences (n, 38) of token ids."""
    edges = DEGREE * ARM
    labels = torch.rand(n, LABELS, generator=generator).argsort(1)[:, : 1 + edges]
    start, arms = labels[:, :1], labels[:, 1:].unflatten(1, (DEGREE, ARM))
    sources = torch.cat((start[:, None].expand(-1, DEGREE, -1), arms[:, :, :-1]), dim=2)
    order = torch.rand(n, edges, generator=generator).argsort(1)
    pairs = torch.stack((sources, arms, torch.full_like(arms, BAR)), dim=-1).flatten(1, 2)
    shuffled = pairs.gather(1, order[:, :, None].expand(-1, -1, 3)).flatten(1)
    path = arms[torch.arange(n), torch.randint(DEGREE, (n,), generator=generator)]
    blanks = BLANK + torch.arange(BLANKS)
    return torch.cat((blanks.expand(n, -1), shuffled, start, path[:, -1:], path), dim=1)


def exact_log_probability(sequences: Tensor) -> Tensor:
    """log P(sequence) in nats, (n,), of sequences (n, 38); −inf for what is none of a path-star.

    All sequences are equally probable. Of the equally likely ways to draw labels, order and goal,
    as many give one sequence as there are orders of the arms, DEGREE!.
    """
    edges = DEGREE * ARM
    draws = lgamma(LABELS + 1) - lgamma(LABELS - edges) + lgamma(edges + 1) + log(DEGREE)
    log_p = torch.tensor(lgamma(DEGREE + 1) - draws, dtype=torch.float64)
    return torch.where(is_path_star(sequences), log_p, -torch.inf)


def is_path_star(sequences: Tensor) -> Tensor:
    """Whether a star's edges, its start, an arm's end and that arm stand there, (n,) booleans."""
    n = len(sequences)
    blanks, edges, query, path = sequences.split((BLANKS, 3 * DEGREE * ARM, 2, ARM), dim=1)
    source, target, bar = edges.unflatten(1, (-1, 3)).unbind(2)  # (n, edges) each
    nodes = torch.cat((source, target, query, path), dim=1)
    fits = (blanks == BLANK + torch.arange(BLANKS)).all(1) & (bar == BAR).all(1)
    fits &= (nodes < LABELS).all(1)
    source, target, query, path = (t.clamp(max=LABELS - 1) for t in (source, target, query, path))
    rows = torch.arange(n)
    links = torch.zeros(n, LABELS, LABELS, dtype=torch.long)  # how often each edge stands there
    links.index_put_((rows[:, None], source, target), torch.tensor(1), accumulate=True)
    start, goal = query.unbind(1)
    inner = links.sum(2).scatter(1, start[:, None], 0)  # edges that leave each other node
    fits &= (inner <= 1).all(1)
    depth = one_hot(start, LABELS)  # in how many ways each node is reached in k steps
    reached = depth.clone()
    for _ in range(ARM):
        depth = (depth[:, :, None] * links).sum(1)
        reached += depth
        fits &= depth.sum(1) == DEGREE
    walk = torch.cat((start[:, None], path), dim=1)
    fits &= (links[rows[:, None], walk[:, :-1], walk[:, 1:]] == 1).all(1) & (path[:, -1] == goal)
    return fits & (reached <= 1).all(1)


PROCESS = Process(
    symbols=tuple(SYMBOLS),
    separator="",
    row=ROW,
    sample=sample_sequences,
    log_probability=exact_log_probability,
)
