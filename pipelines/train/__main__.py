"""Stage `train`: train one run of the experiment.

    python -m pipelines.train free_k1_2

Writes checkpoints/<experiment>/<run>/ and results/<experiment>/<run>/curve.csv. The first has
last.ckpt, <tokens>.ckpt for each smaller budget, and the resolved configuration. A killed run
continues from its last good checkpoint, which is kept in resume/ until the run is evaluated.
"""

from typing import Any

from pipelines.host.command_line import RUN, command, run_command


@command(__doc__)
@RUN
def main(**given: Any) -> None:
    from pipelines.train import stage

    stage.main(**given)


if __name__ == "__main__":
    run_command(main, "python -m pipelines.train")
