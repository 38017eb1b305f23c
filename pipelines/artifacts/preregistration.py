"""What an experiment asked and expected when the training of a run began.

It decides nothing, so the hash that tells trainings apart leaves it out. It is in the manifest of
every checkpoint, from which a resumed run takes it over.
"""

from dataclasses import dataclass, field

from pipelines.config.schema import Expectation


@dataclass(frozen=True)
class Preregistration:
    question: str | None = None
    expectation: list[Expectation] = field(default_factory=list)
