"""The outcomes of trials, and a table of all of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from ray.exceptions import RayTaskError

from pipelines.artifacts.results import Estimate
from pipelines.common.console import aligned
from pipelines.common.errors import UserError

# what a trial reports to Tune: the first two while it trains, and at last all
FRACTION, TRAINING_BOUND = "fraction", "training_bound_bits"
BOUND, ERROR = "bound", "standard_error"  # held out

DONE, STOPPED, FAILED = "done", "stopped early", "failed"


@dataclass(frozen=True)
class TrialOutcome:
    """How a trial ended."""

    name: str
    state: str  # DONE, STOPPED or FAILED
    share: float  # of its budget that it was trained for
    bound: Estimate | None = None  # held out; of a trial that is done
    error: str = ""

    @classmethod
    def of(cls, name: str, last: Mapping[str, Any], error: object) -> "TrialOutcome":
        """The outcome from a trial's ``last`` report, and Tune's error if there is one."""
        share = last.get(FRACTION, 0.0)
        if error:
            return cls(name, FAILED, share, error=in_one_line(error))
        if BOUND not in last:
            return cls(name, STOPPED, share)
        return cls(name, DONE, share, Estimate(last[BOUND], last[ERROR]))

    def __str__(self) -> str:
        """The outcome in a few words."""
        if self.bound:
            return f"bound {self.bound}"
        at = f"{self.state}, at {self.share:.0%} of its budget"
        return f"{at}: {self.error}" if self.error else at


def in_one_line(error: object) -> str:
    """What ended a trial: an exception of its own, or the loss of its process."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    words = " ".join(str(cause).split())
    return words if isinstance(cause, UserError | str) else f"{type(cause).__name__}: {words}"


def by_bound(outcomes: Iterable[TrialOutcome]) -> list[TrialOutcome]:
    """Sort by held-out bound, lowest first; outcomes without one are last, by how far they came."""
    return sorted(outcomes, key=lambda o: (o.bound.mean if o.bound else inf, -o.share))


def trial_table(outcomes: Iterable[TrialOutcome]) -> list[str]:
    """Lines of a table of all trials, best first."""
    rows = [["trial", "state", "budget", "bound, bits per token"]]
    for o in by_bound(outcomes):
        rows.append([o.name, o.state, f"{o.share:.0%}", str(o.bound or o.error or "–")])
    return aligned(rows)
