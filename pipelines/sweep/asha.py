"""Tune's ASHA stops the worse trials early (asynchronous successive halving, arXiv 1810.05934).

Trials are compared by their training bound, because there is no other while a model trains.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

from pipelines.sweep.outcome import FRACTION, TRAINING_BOUND


class RememberedAsha(ASHAScheduler):
    """Keeps ASHA's state in the file ``memory``, because Tuner.restore does not bring it back."""

    def __init__(self, memory: Path, **settings: Any) -> None:
        own: Any = {"time_attr": FRACTION, "max_t": 1.0, "metric": TRAINING_BOUND, "mode": "min"}
        super().__init__(**own, stop_last_trials=False, **{"grace_period": 0.1} | settings)
        with suppress(FileNotFoundError):
            self.restore(str(memory))
        self.memory = memory

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        decision = super().on_trial_result(tune_controller, trial, result)
        partial = f"{self.memory}.partial"
        self.save(partial)
        os.replace(partial, self.memory)
        return decision


def make_scheduler(asha: dict[str, Any] | None, folder: Path) -> TrialScheduler:
    """The scheduler of the trials; raises ValueError for settings that Tune does not take."""
    if asha is None:
        return FIFOScheduler()
    try:
        return RememberedAsha(folder / "asha.pkl", **asha)
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(f"asha: {error}") from None
