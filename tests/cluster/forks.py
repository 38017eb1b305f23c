"""Ray Train's workers as forks of this process: nothing is started, and nothing imported again."""

import multiprocessing
import os
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import ray
import torch
import torch.distributed as dist
from ray.train import WorkerGroupError

from pipelines.cluster import connection
from pipelines.train import distributed

PROCESSES = multiprocessing.get_context("fork")
HANGING = timedelta(seconds=60)


class ForkedTrainer:
    """Stands in for TorchTrainer."""

    def __init__(self, work, *, scaling_config, **_):
        self.work, self.size = work, scaling_config.num_workers

    def fit(self):
        with TemporaryDirectory() as folder:
            workers = []
            for rank in range(self.size):
                ends, send = PROCESSES.Pipe(duplex=False)
                arguments = (rank, Path(folder, "store"), send)
                worker = PROCESSES.Process(target=self.run, args=arguments, daemon=True)
                worker.start()
                send.close()
                workers.append((worker, ends))
            failures = {}
            for rank, (worker, ends) in enumerate(workers):
                try:
                    failure = ends.recv()
                except EOFError:
                    worker.join()
                    raise AssertionError(f"worker {rank} ended with {worker.exitcode}") from None
                worker.join()
                if failure:
                    failures[rank] = failure
        if failures:
            raise WorkerGroupError("", failures)

    def run(self, rank, store, ends):
        os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
        # a fork has none of OpenMP's threads: with more than one it would wait for them for ever
        torch.set_num_threads(1)
        ray.experimental.internal_kv.global_gcs_client = (
            None  # if this process has joined a cluster
        )
        ray.train.get_context = lambda: SimpleNamespace(
            get_world_rank=lambda: rank,
            get_world_size=lambda: self.size,
            get_local_rank=lambda: rank,
            get_node_rank=lambda: 0,
        )
        ray.train.torch.get_device = lambda: torch.device("cpu")
        try:
            dist.init_process_group(
                "gloo", f"file://{store}", HANGING, rank=rank, world_size=self.size
            )
            self.work()
        except Exception as error:
            ends.send(error)
        else:
            ends.send(None)


def replace_ray(monkeypatch):
    """Train on forks, on a cluster that seems to have 4 CPUs."""
    import torch._dynamo  # noqa: F401  else each fork imports it, for DDP

    node = {"NodeID": "here", "Alive": True, "Resources": {"CPU": 4.0}}
    monkeypatch.setattr(ray, "nodes", lambda: [node])
    monkeypatch.setattr(ray, "cluster_resources", lambda: node["Resources"])
    monkeypatch.setattr(connection, "PATIENCE", 0.0)
    monkeypatch.setattr(distributed, "PATIENCE", 0.0)
    for name in ("connect", "check_shared"):
        monkeypatch.setattr(distributed, name, lambda *_: None)
    monkeypatch.setattr(distributed, "TorchTrainer", ForkedTrainer)
    monkeypatch.setenv("RAY_ADDRESS", "forks")  # else a loss restarts Ray
