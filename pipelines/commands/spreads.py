"""Put an experiment's spreads over seeds on record, for `ftlab plan`.

    ftlab spreads

Reads params.yaml and results/<experiment>/, as the report does, and writes conf/spreads.csv: one row
for each arm that has several seeds, with the spread of its bound and the errors over documents of
its difference from the plain baseline. Earlier rows of the same experiment are replaced.
"""

from pipelines.host.command_line import command


@command(__doc__)
def main() -> None:
    from pipelines.parallel import spreads

    spreads.keep_spreads()
