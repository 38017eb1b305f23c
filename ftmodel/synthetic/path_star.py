"""Path-star graphs (Bachmann & Nagarajan 2024, arXiv 2403.06963) with room to choose the arm first.

A star has a start node and arms of equal length, here 3 arms of 3 nodes. A sequence is a countdown
of 6 blanks, the 9 edges ("source target |"), start, goal (the end of a uniformly chosen arm) and
the arm's 3 nodes from the start to the goal:

    654321ab|fg|bc|hi|cd|ae|ij|ah|ef|agefg

The labels of the 10 nodes are a uniform draw without repetition from 12, the edges stand in a
uniformly random order. Everything after the first blank is scored: log2(3) of the exact bits belong
to the goal and the rest to the edges. Start and path have none, because they follow from what
stands before. A model that has not learned to go back from the goal pays log2(3) bits more at the
path's first node; given that one, each further node is looked up in one edge.

The goal stays before the path: written after it, it would only repeat the path's last node, and
nothing would have to be planned. The arm can be chosen before the goal is named all the same, by a
z at the blanks that holds the labels of the arm. That costs log2(12 · 11 · 10) = 10.4 bits. The
edges, which name these labels, give back all but log2(3) of them, and the goal the rest; goal and
path are then copies of z. So such a z costs nothing and leaves nothing to search. A planner without
z pays no more, and no model less than the exact NLL.

With ``reverse`` the path is written from the goal to the node after the start: a known positive
control (Bachmann & Nagarajan 2024). It needs no search: only one edge leads to each node, and its
source is the next one. The exact bits are the same. A model that has not solved it has not learned
to look up a node, which planning needs, too.

Each blank is a symbol of its own: attention over equal tokens gives equal states, which could
neither say different things nor tell how many blanks are left.
"""

from dataclasses import dataclass
from math import lgamma, log
from string import ascii_lowercase

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from ftmodel.synthetic.process import Process


@dataclass(frozen=True)
class PathStar:
    """Graphs of one size."""

    degree: int  # arms
    arm: int  # nodes of an arm, without the start
    labels: int  # to draw nodes from: as many as there are nodes or more, at most 26
    blanks: int = 6  # 1 … 9
    reverse: bool = False  # write the path from the goal to the start

    @property
    def edges(self) -> int:
        return self.degree * self.arm

    @property
    def symbols(self) -> str:
        """A token id is an index into this string; labels are first, blanks and '|' follow."""
        countdown = "".join(str(left) for left in range(self.blanks, 0, -1))
        return ascii_lowercase[: self.labels] + countdown + "|"

    @property
    def row(self) -> int:
        return self.blanks + 3 * self.edges + 2 + self.arm

    def opening(self) -> Tensor:
        """The blanks (blanks,)."""
        return self.labels + torch.arange(self.blanks)

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Draw n sequences (n, row) of token ids."""
        labels = torch.rand(n, self.labels, generator=generator).argsort(1)[:, : 1 + self.edges]
        start, arms = labels[:, :1], labels[:, 1:].unflatten(1, (self.degree, self.arm))
        sources = torch.cat((start[:, None].expand_as(arms[..., :1]), arms[..., :-1]), dim=2)
        order = torch.rand(n, self.edges, generator=generator).argsort(1)
        bars = torch.full_like(arms, self.labels + self.blanks)
        pairs = torch.stack((sources, arms, bars), dim=-1).flatten(1, 2)
        shuffled = pairs.gather(1, order[:, :, None].expand(-1, -1, 3)).flatten(1)
        path = arms[torch.arange(n), torch.randint(self.degree, (n,), generator=generator)]
        opening, goal = self.opening().expand(n, -1), path[:, -1:]
        return torch.cat((opening, shuffled, start, goal, self.written(path)), dim=1)

    def written(self, path: Tensor) -> Tensor:
        """Turn paths (n, arm) into the order in which sequences have them, and back again."""
        return path.flip(1) if self.reverse else path

    def log_probability(self, sequences: Tensor) -> Tensor:
        """log P(sequence) in nats, (n,), of sequences (n, row); −inf for any other.

        All sequences are equally probable. Labels, order and goal are drawn in equally likely ways,
        and degree! of them give the same sequence: one for each order of the arms.
        """
        draws = lgamma(self.labels + 1) - lgamma(self.labels - self.edges)
        draws += lgamma(self.edges + 1) + log(self.degree)
        log_p = torch.tensor(lgamma(self.degree + 1) - draws, dtype=torch.float64)
        return torch.where(self.is_path_star(sequences), log_p, -torch.inf)

    def is_path_star(self, sequences: Tensor) -> Tensor:
        """Whether each row is a star, its start, an arm's end and that arm, (n,) booleans."""
        n, bar_id = len(sequences), self.labels + self.blanks
        parts = (self.blanks, 3 * self.edges, 2, self.arm)
        blanks, edges, query, path = sequences.split(parts, dim=1)
        source, target, bar = edges.unflatten(1, (-1, 3)).unbind(2)  # (n, edges) each
        nodes = torch.cat((source, target, query, path), dim=1)
        fits = (blanks == self.opening()).all(1) & (bar == bar_id).all(1)
        fits &= (nodes < self.labels).all(1)
        last = self.labels - 1
        source, target, query, path = (t.clamp(max=last) for t in (source, target, query, path))
        rows = torch.arange(n)
        links = torch.zeros(n, self.labels, self.labels, dtype=torch.long)
        links[rows[:, None], source, target] = 1
        start, goal = query.unbind(1)
        inner = links.sum(2).scatter(1, start[:, None], 0)  # edges that leave each other node
        fits &= (inner <= 1).all(1)
        depth = one_hot(start, self.labels)  # in how many ways each node is reached in k steps
        reached = depth.clone()
        for _ in range(self.arm):
            depth = (depth[:, :, None] * links).sum(1)
            reached += depth
            fits &= depth.sum(1) == self.degree
        path = self.written(path)
        walk = torch.cat((start[:, None], path), dim=1)
        steps = links[rows[:, None], walk[:, :-1], walk[:, 1:]]
        fits &= (steps == 1).all(1) & (path[:, -1] == goal)
        return fits & (reached <= 1).all(1)

    def process(self) -> Process:
        return Process(
            symbols=tuple(self.symbols),
            separator="",
            row=self.row,
            sample=self.sample,
            log_probability=self.log_probability,
            answer=self.arm,
        )
