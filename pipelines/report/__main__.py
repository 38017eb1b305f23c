"""Stage `report`: compare arms with each other and the paper.

    python -m pipelines.report
    python -m pipelines.report --so-far     # only finished runs, while others train

Reads results/<experiment>/<run>/ of every run in params.yaml, and the description of the data in
data/tokens/. Writes report/<experiment>/: report.md, index.html (the same as one self-contained
page), explorer.html (what models generate, by z), figures/, curves.csv, arms.csv (means over
seeds), runs.csv, figure4.csv and summary.txt. With --so-far the folder is
report/<experiment>.so_far/, and the last finished report stays as it is.
"""

from typing import Any

import click

from pipelines.host.command_line import command, run_command


@command(__doc__)
@click.option("--so-far", is_flag=True, help="Report only on the runs that are finished.")
def main(**given: Any) -> None:
    from pipelines.report import page

    page.main(**given)


if __name__ == "__main__":
    run_command(main, "python -m pipelines.report")
