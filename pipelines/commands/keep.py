"""Keep results for git, or register the best arm.

    ftlab keep docs/figure4     a finished experiment's Figure 4, or bounds on text, for git
    ftlab keep docs/designs --section designs     other sections of its report
    ftlab keep --register       the best arm, in MLflow's model registry

The first two read params.yaml and results/<experiment>/, as the report does. They write the
sections' pictures into the folder, and a README.md with the question, the expectations, the
sections, and which command, commit, device and time made them. The report itself, a page with all
pictures in it, is too large for git.
"""

from typing import Any

import click

from pipelines.host.command_line import command


@command(__doc__)
@click.argument("folder", help="The folder to write to.", type=click.Path(), required=False)
@click.option("--register", is_flag=True, help="Register the best arm in MLflow's model registry.")
@click.option(
    "--section",
    multiple=True,
    metavar="NAME",
    help="A section of the report; may be repeated. Default: figure4, or else bounds.",
)
def main(**given: Any) -> None:
    from pipelines.export import keep

    keep.main(**given)
