"""How busy the machine is while a run is trained, under MLflow's names for it."""

from contextlib import suppress
from time import monotonic

import psutil
from mlflow.system_metrics.metrics.base_metrics_monitor import BaseMetricsMonitor
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

# no pynvml, no GPU, or a container that shows nothing of its machine
UNAVAILABLE = (ImportError, RuntimeError, OSError, AttributeError, psutil.Error)
SAMPLE_SECONDS = 10.0  # between two samples, at least, as MLflow has it


class SystemMetrics:
    """Samples the load with rows of the training curve, which are few however long a run is. The
    processor's load is its mean since the sample before. MLflow's own sampling has a thread that
    sends every sample by itself, and loses it if the server is away.
    """

    def __init__(self) -> None:
        self.monitors: list[BaseMetricsMonitor] = []
        for kind in (CPUMonitor, DiskMonitor, NetworkMonitor, GPUMonitor):
            with suppress(*UNAVAILABLE):
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
            with suppress(*UNAVAILABLE):
                monitor.collect_metrics()
                figures |= monitor.aggregate_metrics()
        return figures
