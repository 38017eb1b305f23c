"""Tracks a run while it is trained: writes its journal, and has a thread keep MLflow up with it.

A store that is away, slow or dying stops no training, and gets the rest when it is back.
"""

from contextlib import suppress
from threading import Event, Thread
from time import monotonic

from mlflow.system_metrics.metrics.base_metrics_monitor import BaseMetricsMonitor
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

from pipelines.host.console import say
from pipelines.host.errors import UserError
from pipelines.tracking.journal import Journal, read_journal
from pipelines.tracking.store import Store
from pipelines.tracking.sync import Sync, behind

SAMPLE_SECONDS = 10.0  # between two samples, at least, as MLflow has it
SYNC_SECONDS = 5.0  # between two syncs
MAX_RETRY_SECONDS = 60.0  # between two tries while the store is away


class SystemMetrics:
    """Samples how busy the machine is, under MLflow's names, with rows of the training curve, which
    are few however long a run is. The processor's load is its mean since the sample before.

    MLflow's own sampling has a thread that sends every sample by itself, and loses it if the server
    is away. A monitor that fails is left out: there may be no GPU, no pynvml, or a container that
    shows nothing of its machine.
    """

    def __init__(self) -> None:
        self.monitors: list[BaseMetricsMonitor] = []
        for kind in (CPUMonitor, DiskMonitor, NetworkMonitor, GPUMonitor):
            with suppress(Exception):
                monitor = kind()
                monitor.collect_metrics()  # the processor's load is counted from here on
                self.monitors.append(monitor)
        self.sampled = -SAMPLE_SECONDS

    def sample(self) -> dict[str, float]:
        """The figures now; none if the last ones are too recent."""
        if monotonic() - self.sampled < SAMPLE_SECONDS:
            return {}
        self.sampled = monotonic()
        figures: dict[str, float] = {}
        for monitor in self.monitors:
            monitor.clear_metrics()
            with suppress(Exception):
                monitor.collect_metrics()
                figures |= monitor.aggregate_metrics()
        return figures


class Tracking:
    """Writes a run's journal, and has a thread send it."""

    def __init__(self, journal: Journal, note: str = "") -> None:
        """``note`` describes the experiment."""
        self.journal = journal
        self.note = note
        self.sync = Sync(Store())
        self.system = SystemMetrics()
        self.away = False  # whether the store did not take everything the last time
        self.ending = Event()
        journal.set_status("RUNNING")
        self.thread = Thread(target=self.keep_up, daemon=True)
        self.thread.start()

    def log_row(self, row: dict[str, float]) -> None:
        """Log a row of the training curve; its figures go to curve/ and curve_by_tokens/."""
        self.journal.add_row(row, self.system.sample)

    def keep_up(self) -> None:
        """Sync until the run ends; while the store is away, after ever longer waits."""
        wait = 0.0
        with suppress(UserError):  # somebody has deleted the journal: the next line to it says so
            while not self.ending.wait(wait):
                wait = SYNC_SECONDS if self.try_to_sync() else min(MAX_RETRY_SECONDS, 2 * wait + 1)

    def try_to_sync(self) -> bool:
        """Sync; returns whether the store has everything now, and says when that changes."""
        store, run = self.sync.store, read_journal(self.journal.path)
        try:
            self.sync(run, self.note)
        except Exception as error:  # whatever MLflow raises, training goes on
            if not self.away:
                say(behind(store, error))
            self.away = True
            return False
        if self.away:
            say(f"MLflow at {store.name} answers again, and has everything now")
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
        self.try_to_sync()
