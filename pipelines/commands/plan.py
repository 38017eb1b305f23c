"""Estimate an experiment's cost without running it.

    ftlab plan experiment=smoke
    ftlab plan experiment=paper_1_5b compute.workers=64 --mfu 0.35 --price 2.5

Without a GPU, measures this machine for ten seconds and prints minutes: of each arm's training and
evaluation, and of all stages side by side. With a GPU, with one of the options below, or if the
experiment is too large for a CPU, it prints for a run of each arm parameters, FLOPs, memory on each
GPU, speed and days; then the cost of all runs together (ftmodel/costs/). There nothing is measured:
you provide utilisation and price. With --weak-scaling RUN it prints that run's speed on 1 to 256
GPUs; a GPU's batch is the experiment's (ftmodel/costs/scaling.py).

Last it prints which difference the seeds of each arm would find, and how many seeds the smallest
effect needs, by spreads on record (`ftlab spreads`).

Arguments without dashes are overrides, as for `ftlab compose`.
"""

from typing import Any

import click

from pipelines.host.command_line import COUNT, NOT_NEGATIVE, POSITIVE, Number, command, overrides

GPU = {"flops": 989e12, "mfu": 0.4, "memory": 80.0}  # an H100


@command(__doc__)
@overrides("experiment")
@click.option(
    "--flops",
    type=POSITIVE,
    show_default="989e12",
    metavar="FLOP/S",
    help="Peak FLOP/s of a GPU (H100).",
)
@click.option(
    "--mfu",
    type=Number(0, 1, min_open=True),
    metavar="SHARE",
    show_default="0.4",
    help="Share of the peak that is reached.",
)
@click.option("--memory", type=POSITIVE, show_default="80", metavar="GIB", help="Memory of a GPU.")
@click.option(
    "--price", type=POSITIVE, metavar="MONEY", help="Price of a GPU-hour, in any currency."
)
@click.option("--weak-scaling", metavar="RUN", help="Print this run's speed on 1 to 256 GPUs.")
@click.option(
    "--nvlink",
    type=POSITIVE,
    default=360,
    metavar="GB/S",
    help="Bandwidth of a GPU within its node.",
)
@click.option(
    "--network",
    type=POSITIVE,
    default=40,
    metavar="GB/S",
    help="Bandwidth of a GPU to other nodes.",
)
@click.option("--per-node", type=COUNT, default=8, help="GPUs per node.")
@click.option("--latency", type=NOT_NEGATIVE, default=2, metavar="µS", help="Latency of a hop.")
@click.option(
    "--overlap",
    type=Number(0, 1),
    default=0.8,
    metavar="SHARE",
    help="Fraction of communication that overlaps with computation.",
)
def main(**given: Any) -> None:
    from pipelines.parallel import plan

    assumed = any(given[name] is not None for name in (*GPU, "price", "weak_scaling"))
    gpu = {name: value if given[name] is None else given[name] for name, value in GPU.items()}
    plan.main(**given | gpu, assumed=assumed)
