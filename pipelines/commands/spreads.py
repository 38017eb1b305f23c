"""Put an experiment's spreads over seeds on record, for `ftlab plan`.

    ftlab spreads

Reads params.yaml and results/<experiment>/, as the report does, and writes conf/spreads.csv: a row
for each arm that has several seeds, with the spread of its bound and, for its difference from the
plain baseline, the errors over documents. Earlier rows of the same experiment are replaced.
"""

from pipelines.host.command_line import command


@command(__doc__)
def main() -> None:
    from pipelines.parallel import spreads

    spreads.keep_spreads()
