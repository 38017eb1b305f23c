"""Bring an experiment up to date, as `make repro` does.

    ftlab repro experiment=smoke runs.free_k1_8.kappa_bits=0.25 --jobs 2

Composes the experiment into params.yaml and runs its stages. If another `make repro` or a DVC
command is at work in this folder, this one names it and waits; params.yaml is composed after that.
Stages that are ready run side by side: as many as this machine has room for, or --jobs. With
RAY_ADDRESS or --jobs ray, as many run as the Ray cluster has room for.
"""

from typing import Any

import click

from pipelines.host.command_line import command, jobs, overrides


@command(__doc__)
@overrides("experiment")
@click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait for another process that is at work here, or name it and end.",
)
@click.option(
    "--jobs",
    type=jobs,
    metavar="N",
    help="Number of stages side by side, or `ray` for as many as fit into the cluster. Default: "
    "as many as the machine has room for.",
)
def main(**given: Any) -> None:
    from pipelines.parallel import repro

    repro.main(**given)
