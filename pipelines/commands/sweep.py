"""Vary the settings of one run, on Ray Tune.

    ftlab sweep sweep=kappa samples=4 'space.optim.lr.loguniform=[1.0e-3,1.0e-2]'

The same command continues an interrupted sweep. Finished trials are not repeated, unfinished trials
continue from their last checkpoint, and failed trials are tried again. Prints all trials, and
writes conf/experiment/<sweep>_best.yaml: the best settings, as an experiment with other seeds. In
MLflow the trials are nested in a run ``sweep``.
"""

from typing import Any

from pipelines.host.command_line import command, overrides


@command(__doc__)
@overrides("sweep")
def main(**given: Any) -> None:
    from pipelines.sweep import tune

    tune.main(**given)
