"""What Lightning's Trainer logs, into a run's record for MLflow."""

from argparse import Namespace
from typing import Any

from lightning.pytorch.loggers.logger import Logger

from pipelines.tracking.run import Tracking
from pipelines.tracking.system_metrics import SystemMetrics

ROWS = 20  # at a time: the whole record is written to the disk each time


class TrackingLogger(Logger):
    """Rows of the training curve go under train/ and train_by_tokens/, anything else under train/.

    Rows wait for ``save``, or until there are ROWS of them.
    """

    def __init__(self, tracking: Tracking) -> None:
        super().__init__()
        self.tracking = tracking
        self.rows: list[dict[str, float]] = []
        self.system = SystemMetrics()

    @property
    def name(self) -> str:
        return self.tracking.experiment_name

    @property
    def version(self) -> str:
        """MLflow's id of the run; "" as long as the store has not answered."""
        return self.tracking.run_id

    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any
    ) -> None:
        """The record has all settings from its start."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if "tokens" in metrics:
            self.rows.append(metrics)
            self.tracking.log_system(self.system.sample(), int(metrics["step"]))
            if len(self.rows) >= ROWS:
                self.save()
        else:
            self.tracking.log_figures("train", metrics, step or 0)

    def save(self) -> None:
        if self.rows:
            self.tracking.log_rows(self.rows)
            self.rows = []

    def finalize(self, status: str) -> None:
        """Rows that still wait are of a run that failed, and come again when it is resumed."""
