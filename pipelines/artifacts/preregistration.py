"""What an experiment asked and expected when the training of a run began.

It affects no result, so the hash that tells trainings apart leaves it out. Every checkpoint's
manifest has it, and a resumed run takes it over from there.
"""

from dataclasses import dataclass, field

from pipelines.config.schema import Expectation


@dataclass(frozen=True)
class Preregistration:
    question: str | None = None
    expectation: list[Expectation] = field(default_factory=list)
