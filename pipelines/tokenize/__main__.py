"""Stage `tokenize`: turn a corpus into token shards.

    python -m pipelines.tokenize target

Reads data/corpus/<name> and writes data/tokens/<name> (see artifacts/tokens/shards.py), a token
file for each part of the corpus. It uses a process per core. A killed run leaves its finished files
in data/tokens/<name>.partial, where the next run continues if code and data are the same.
"""

from typing import Any

from pipelines.host.command_line import DATASET, command, run_command


@command(__doc__)
@DATASET
def main(**given: Any) -> None:
    from pipelines.tokenize import build

    build.main(**given)


if __name__ == "__main__":
    run_command(main, "python -m pipelines.tokenize")
