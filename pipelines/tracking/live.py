"""A run that is being trained: its journal is written, and MLflow kept up with it by a thread.

A store that is away, slow or dying stops no training, and gets the rest when it is back.
"""

from argparse import Namespace
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from lightning.pytorch.loggers.logger import Logger

from pipelines.common.console import say
from pipelines.common.errors import UserError
from pipelines.tracking.journal import Journal, read_journal
from pipelines.tracking.store import AWAY, Store
from pipelines.tracking.sync import LATER, Sync, reason
from pipelines.tracking.system_metrics import SystemMetrics

SYNC_SECONDS = 5.0  # between two syncs
MAX_RETRY_SECONDS = 60.0  # between two tries while the store is away


class Tracking(Logger):
    """Lightning's logger: rows of the curve go to curve/ and curve_by_tokens/, others to curve/."""

    def __init__(self, journal: Journal, note: str = "") -> None:
        """``note`` describes the experiment. Raises UserError as Store does."""
        super().__init__()
        self.journal, self.note = journal, note
        self.sync, self.system = Sync(Store()), SystemMetrics()
        self.away, self.ending = False, Event()
        journal.set_status("RUNNING")
        self.thread = Thread(target=self.keep_up, daemon=True)
        self.thread.start()

    @property
    def name(self) -> str:
        return self.journal.run.experiment

    @property
    def version(self) -> str:
        return self.journal.run.key

    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any
    ) -> None:
        """The journal begins with all settings."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if "tokens" in metrics:
            self.journal.add_row(metrics, self.system.sample)
        else:
            self.log_figures("curve", metrics, step or 0)

    def log_figures(self, prefix: str, figures: dict[str, float], step: int) -> None:
        self.journal.append(prefix=prefix, figures=figures, step=step)

    def tag(self, **tags: str) -> None:
        self.journal.append(tags=tags)

    def keep_up(self) -> None:
        wait = 0.0
        with suppress(UserError):  # somebody has deleted the journal: the next line to it says so
            while not self.ending.wait(wait):
                wait = SYNC_SECONDS if self.try_to_sync() else min(MAX_RETRY_SECONDS, 2 * wait + 1)

    def try_to_sync(self) -> bool:
        """Returns whether the store has everything now; says when that changes."""
        uri = self.sync.store.uri
        try:
            self.sync(read_journal(self.journal.path), self.note)
        except AWAY as error:
            if not self.away:
                say(f"MLflow at {uri} does not answer ({reason(error)}); going on")
            self.away = True
            return False
        if self.away:
            say(f"MLflow at {uri} answers again, and has everything now")
        self.away = False
        return True

    def finish(self, status: str = "FINISHED") -> None:
        """End the run, and wait for the store if it answers; a finished run keeps its end.

        Raises UserError if the disk is full or read-only.
        """
        try:
            self.journal.set_status(status)
        finally:
            self.ending.set()
            self.thread.join()
        if not self.try_to_sync():
            say(LATER)
