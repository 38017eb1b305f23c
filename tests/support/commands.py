"""A command of ours in this process, as the command line calls it."""

from pipelines.cli import ftlab
from pipelines.host.command_line import perform


def call(*arguments: str) -> None:
    """`ftlab …`; raises UserError for a user's mistake."""
    perform(ftlab, "ftlab", arguments)
