"""Compose conf/ into params.yaml, which every stage reads.

    ftlab compose experiment=quickstart runs.text_free_k1_2.kappa_bits=0.25

Hydra composes exactly as `dvc exp run -S experiment=…` does (.dvc/config points it at conf/), with
every default of the schema (hydra_plugins/schema.py). The result is validated before it replaces
params.yaml.
"""

from typing import Any

from pipelines.host.command_line import command, overrides


@command(__doc__)
@overrides("experiment")
def main(**given: Any) -> None:
    from pipelines.config import compose

    compose.main(**given)
