"""Weak scaling: speed of a training step on N GPUs, each with its own batch of a fixed size.

Computed, not measured. A collective operation on n bytes takes (Thakur, Rabenseifner & Gropp 2005,
Optimization of Collective Communication Operations in MPICH; α latency of a hop, β bandwidth)

    all-gather, reduce-scatter   (N − 1) α + (N − 1) / N · n / β        a ring
    all-reduce                   2 log₂ N α + 2 (N − 1) / N · n / β     NCCL's double binary trees
                                 (Sanders, Speck & Träff 2009)

β is what each GPU sends per second: NVLink's rate within a node. Across nodes NCCL has a ring for
each network card, so a node sends with all its cards at once, and β is the lesser of the two.

P parameters of 4 bytes; sharding follows Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054, § 7):

    DDP    one all-reduce of 4 P a step, in buckets of 25 MiB, behind the backward pass of the last
           micro-batch, which is 2/3 of its computation
    FSDP   for each micro-batch an all-gather of every block forwards and another backwards, one of
           what belongs to no block, and a reduce-scatter of all gradients, behind all computation

A fraction ``overlap`` of the transfers overlaps with that computation; a GPU waits for the rest.
"""

from dataclasses import dataclass
from math import ceil, log2

from ftmodel.config import ModelConfig
from ftmodel.costs.counting import sizes

BUCKET = 25 << 20  # bytes; torch's DistributedDataParallel


@dataclass(frozen=True)
class Interconnect:
    """How GPUs are connected; the defaults of `ftlab plan` are 80 % of a DGX H100's."""

    nvlink: float  # bytes per second that a GPU sends within its node
    network: float  # bytes per second that it sends to other nodes, by its own card
    per_node: int  # GPUs per node
    latency: float  # seconds per hop
    overlap: float  # share of the transfers that can run behind computation, 0 … 1

    def bandwidth(self, gpus: int) -> float:
        """Bytes per second that each of ``gpus`` sends in a ring."""
        if gpus <= self.per_node:
            return self.nvlink
        return min(self.nvlink, self.per_node * self.network)


@dataclass(frozen=True)
class Traffic:
    """What each GPU sends in a step."""

    bytes: float
    hops: float  # one after another


def traffic(
    config: ModelConfig, vocab_size: int, gpus: int, sharded: bool, accumulate: int
) -> Traffic:
    """Traffic of a step of ``accumulate`` micro-batches; the batch size does not matter."""
    total, block, _ = map(int, sizes(config, vocab_size))
    blocks = config.n_layers + config.n_encoder_blocks
    if not sharded:
        buckets = ceil(4 * total / BUCKET)
        return Traffic(2 * (gpus - 1) / gpus * 4 * total, buckets * 2 * log2(gpus))
    rest = total - blocks * block
    moved = 4 * accumulate * (3 * blocks * block + 2 * rest)
    return Traffic((gpus - 1) / gpus * moved, accumulate * (3 * blocks + 2) * (gpus - 1))


@dataclass(frozen=True)
class Step:
    """Seconds of a step."""

    compute: float
    transfer: float
    exposed: float  # the part of the transfer that no computation hides

    @property
    def total(self) -> float:
        return self.compute + self.exposed

    @property
    def efficiency(self) -> float:
        """Speed of a GPU, relative to one GPU alone."""
        return self.compute / self.total


def step(
    compute: float, sent: Traffic, gpus: int, joined: Interconnect, sharded: bool, accumulate: int
) -> Step:
    """Time a step whose computation takes ``compute`` seconds on every GPU."""
    transfer = sent.bytes / joined.bandwidth(gpus) + sent.hops * joined.latency
    room = compute if sharded else compute / accumulate * 2 / 3
    return Step(compute, transfer, transfer - min(joined.overlap * transfer, room))
