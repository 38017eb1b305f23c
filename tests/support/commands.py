"""A command of ours in this process, as the command line calls it."""

from pipelines.cli import command, perform


def call(name: str, *given: str) -> None:
    """`python -m pipelines.<name> …`; raises UserError for a user's mistake."""
    perform(command(name), name, given)
