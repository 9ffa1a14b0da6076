"""A Ray cluster of several nodes on this machine, whose workers, nodes and head a test kills.

Everything is on loopback addresses and in a temporary folder. All processes inherit a variable that names the cluster:
so those that are left at the end are found, wherever they were moved.
"""

# pyright: basic

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HEAD = "127.0.0.2"  # Ray replaces 127.0.0.1 by the address of the machine
STORE = 80 << 20  # bytes of the object store of a node: the least that Ray takes
ENDED_SECONDS = 60
CLUSTER, NODE = "PENSTOCK_TEST_CLUSTER", "PENSTOCK_TEST_NODE"
SETTINGS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "disabled",  # else Ray writes a token to the home folder
    "GLOO_SOCKET_IFNAME": "lo",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_TRAIN_ENABLE_STATE_TRACKING": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",  # a report waits for the next one; 2 seconds by default
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",  # a minute by default, which a busy machine may need
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "2",  # a minute by default
    "RAY_health_check_period_ms": "300",  # a node that is gone misses five checks; 3 seconds by default
}


class LocalCluster:
    """A head, and nodes with one core each. The driver is this process, connected to the head."""

    def __init__(self, token: str, cpus: int) -> None:
        self.token = token
        self.cpus = cpus
        self.nodes: list[Any] = []
        self._made: Any = None
        self._started = 1

    @property
    def address(self) -> str:
        return self._made.address

    def start(self) -> None:
        """Start a head, and connect to it."""
        import ray
        from ray import cluster_utils

        self.nodes = []  # those of an earlier head have ended with it
        head = {
            "num_cpus": self.cpus,
            "object_store_memory": STORE,
            "include_dashboard": False,
            "include_log_monitor": False,
            "no_monitor": True,  # of an autoscaler
            "node_ip_address": HEAD,
        }
        self._made = cluster_utils.Cluster(initialize_head=True, head_node_args={**head, "env_vars": {NODE: HEAD}})
        ray.init(address=self.address, log_to_driver=False, _node_ip_address=HEAD)

    def add(self, gpus: int = 0) -> Any:
        """Add a node with its own address, and with GPUs that do not exist."""
        self._started += 1
        address = f"127.0.0.{self._started + 1}"
        node = self._made.add_node(
            num_cpus=1,
            num_gpus=gpus,
            object_store_memory=STORE,
            node_ip_address=address,
            env_vars={NODE: address},
        )
        self.nodes.append(node)
        return node

    def remove(self, node: Any) -> None:
        """Remove a node as an administrator does: Ray ends its processes."""
        self.nodes.remove(node)
        self._made.remove_node(node)
        self._kill(f"{NODE}={node.node_ip_address}")  # agents of Ray, of which one may outlive its node

    def kill_node(self, node: Any) -> None:
        """Kill all processes of a node, as a loss of power does."""
        self.nodes.remove(node)
        self._kill(f"{NODE}={node.node_ip_address}")
        self._made.remove_node(node, allow_graceful=False)

    def kill_head(self) -> None:
        """Kill all processes of the head. This process is connected no more."""
        import ray

        ray.shutdown()
        self._kill(f"{NODE}={HEAD}")
        self._made.remove_node(self._made.head_node, allow_graceful=False)

    def kill_workers(self) -> None:
        """Kill all processes that run jobs or wait for one."""
        for pid, title in self.processes():
            if title.startswith((b"ray::JobActor", b"ray::IDLE")):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def wait_for_workers(self) -> None:
        """Wait until all actors that were killed have ended: a second copy of a job may write until then.

        Nodes of a head that was killed end later, and do not count.
        """
        for address in [HEAD, *(node.node_ip_address for node in self.nodes)]:
            for pid, title in self.processes(f"{NODE}={address}"):
                if title.startswith(b"ray::JobActor"):
                    with suppress(ProcessLookupError):
                        self._wait_for(os.pidfd_open(pid), pid, title)

    def stop(self) -> None:
        """Stop all nodes, and wait until all processes are gone."""
        import ray

        ray.shutdown()
        if self._made is not None:
            self._made.shutdown()
        self._kill(f"{CLUSTER}={self.token}")  # agents of Ray, of which one may outlive its node

    def processes(self, variable: str = "") -> Iterator[tuple[int, bytes]]:
        """Yield number and command of each process of this cluster, of those with a variable if one is given."""
        wanted = [f"{CLUSTER}={self.token}\0".encode(), f"{variable}\0".encode()]
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = folder.joinpath("environ").read_bytes()
                if all(each in environment for each in wanted) and int(folder.name) != os.getpid():
                    yield int(folder.name), folder.joinpath("cmdline").read_bytes()
            except OSError:
                continue  # it ended meanwhile, or belongs to somebody else

    def _kill(self, variable: str) -> None:
        """Kill the processes with a variable, and wait until none is left. A process that ended has no environment."""
        while left := list(self.processes(variable)):
            for pid, title in left:
                with suppress(ProcessLookupError):
                    process = os.pidfd_open(pid)
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    self._wait_for(process, pid, title)

    def _wait_for(self, process: int, pid: int, title: bytes) -> None:
        """Wait until a process has ended, and close its descriptor."""
        try:
            ended = select.poll()
            ended.register(process, select.POLLIN)
            assert ended.poll(1000 * ENDED_SECONDS), f"a process of the cluster is left: {pid} {title!r}"
        finally:
            os.close(process)


@contextmanager
def local_cluster(cpus: int = 1, *, variables: Mapping[str, str] | None = None) -> Generator[LocalCluster]:
    """Start a cluster of one node with some cores; at the end nothing of it is left.

    All processes have the environment `variables`.
    """
    token = secrets.token_hex(8)
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short: paths of sockets have at most 107 bytes
    before = dict(os.environ)
    os.environ |= {**SETTINGS, **(variables or {}), CLUSTER: token, "RAY_TMPDIR": str(folder)}
    cluster = LocalCluster(token, cpus)
    try:
        cluster.start()
        yield cluster
    finally:
        try:
            cluster.stop()
        finally:
            os.environ.clear()
            os.environ.update(before)
            shutil.rmtree(folder)


@contextmanager
def time_limit(seconds: int) -> Generator[None]:
    """Interrupt the block after some seconds."""

    def late(*_: object) -> None:
        raise TimeoutError(f"a test of Ray took more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
