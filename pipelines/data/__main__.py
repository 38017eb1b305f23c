"""Stage `data`: make a corpus (see artifacts/corpus.py).

    python -m pipelines.data target

Text is read by all cores, or a Ray cluster (segments.py), freed of copies, mixed and written part
by part (mixture.py). All of it is the same for any number of workers. Unfinished work is in
data/corpus/<name>.partial, because DVC deletes data/corpus/<name> before the stage runs. A killed
stage continues there.
"""

from typing import Any

from pipelines.host.command_line import DATASET, command, run_command


@command(__doc__)
@DATASET
def main(**given: Any) -> None:
    from pipelines.data import build

    build.main(**given)


if __name__ == "__main__":
    run_command(main, "python -m pipelines.data")
