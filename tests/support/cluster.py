"""A Ray cluster of this machine that all cluster tests of a process share."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from tests.support.project_copy import wait_for

# Who has no token may use nothing of a cluster, whose ports are open to the network. Ray reads the
# mode when it is imported. Beside other tests, workers of Ray's niceness (15) would hardly run.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid4().hex, "RAY_worker_niceness": "0"}


@dataclass
class TwoNodes:
    """Two nodes with two CPUs each; drivers and jobs are on the first."""

    cluster: Any  # ray.cluster_utils.Cluster
    second: Any  # its node that may be removed for another one
    dashboard: str  # the address for `ray job submit`

    @property
    def address(self) -> str:
        return self.cluster.address


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="session")
def two_nodes() -> Iterator[TwoNodes]:
    import ray
    from ray.cluster_utils import Cluster

    with ExitStack() as stack:
        port = free_port()
        head = {"num_cpus": 2, "dashboard_port": port, "include_dashboard": True}
        with pytest.MonkeyPatch.context() as starting:
            starting.delenv("PYTHONPATH", raising=False)  # jobs bring their own code
            cluster = Cluster()
            stack.callback(cluster.shutdown)
            stack.callback(ray.shutdown)
            cluster.add_node(**head)
            second = cluster.add_node(num_cpus=2)
        cluster.wait_for_nodes()
        dashboard = f"http://127.0.0.1:{port}"
        wait_for(f"{dashboard}/api/version")
        yield TwoNodes(cluster, second, dashboard)
