"""`SharedCache`: the hosts of a Ray cluster fetch each block of remote data once, and give it to each other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from penstock.errors import PenstockError, require
from penstock.locations.block_peers import USED_PEERS, BlockPeers, MirroredPlace
from penstock.locations.mirror import MANIFEST, MIRRORS

_ray: Any = require("ray", "ray")

REQUESTS = 32
"""Requests that the actor of a node serves at once."""

PATIENCE = 60.0
"""Seconds that a reader waits for a peer before it asks the store."""

REST = 30.0
"""Seconds for which a reader does not ask a peer that did not answer."""

Answer = tuple[bytes, list[int]] | str | None


class BlockServer:
    """The actor of a node: reads blocks through the cache of this node, which all its processes use.

    Example:
        >>> BlockServer().ready()
        True
    """

    def ready(self) -> bool:
        """Return True, once the actor runs."""
        return True

    def adopt(self, tree: str, manifest: bytes) -> None:
        """Make a mirror that another node has described; see `Mirrors.adopt`.

        Args:
            tree: Path of its folder below `trees`.
            manifest: Content of its `mirror.json`.
        """
        MIRRORS.adopt(tree, manifest)

    def read(self, tree: str, name: str, begin: int, end: int) -> Answer:
        """Return bytes and checksums, None if the mirror is not known here, or a message if they cannot be read.

        Args:
            tree: Path of the folder of the mirror below `trees`.
            name: Path of the file below that folder.
            begin: The first byte, which begins a block.
            end: The byte after the last one.
        """
        try:
            return MIRRORS.read_blocks(tree, name, begin, end)
        except (PenstockError, OSError) as error:
            return f"{type(error).__name__}: {error}"  # the reader asks the store, and has the same error or none


class SharedCache(BlockPeers):
    """Blocks of remote data, fetched once for all nodes of a Ray cluster.

    Each node has an actor, which reads through the node's cache of blocks. A process that calls `use` asks the actor
    that owns a block before it asks the store. If that one does not answer, it asks another actor, then the store. The
    actors have the credentials of their environment alone.

    The driver starts the actors, and they end with it. Tasks and actors of Ray take the object as an argument.

    Args:
        servers: Handle of the actor of each node, by the address of the node. `start` makes them.
        patience: Seconds to wait for an actor before the next one, or the store, is asked. The default is 60.

    Example:
        >>> SharedCache({}).hosts()
        []
    """

    def __init__(self, servers: Mapping[str, Any], patience: float = PATIENCE) -> None:
        self._servers = dict(servers)
        self._patience = patience
        self._resting: dict[str, float] = {}

    @classmethod
    def start(cls, patience: float = PATIENCE) -> SharedCache:
        """Start an actor on each node that is alive. Nodes that join later read through these actors, and own nothing.

        Args:
            patience: Seconds to wait for an actor before the next one, or the store, is asked. The default is 60.

        Raises:
            MissingExtraError: Ray is not installed.
        """
        affinity = _ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        server = _ray.remote(BlockServer)
        servers = {
            node["NodeManagerAddress"]: server.options(
                num_cpus=0,
                max_concurrency=REQUESTS,
                max_restarts=-1,
                scheduling_strategy=affinity(node["NodeID"], False),
            ).remote()
            for node in _ray.nodes()
            if node["Alive"]
        }
        _ray.get([each.ready.remote() for each in servers.values()])
        return cls(servers, patience)

    def use(self) -> None:
        """Ask the actors for remote blocks from now on, in this process and for all datasets."""
        USED_PEERS.set(self)

    def stop(self) -> None:
        """End the actors. Processes that use them go on with the store."""
        for server in self._servers.values():
            _ray.kill(server)

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedCache, (self._servers, self._patience)

    @override
    def hosts(self) -> Sequence[str]:
        now = time.monotonic()
        return [host for host in self._servers if self._resting.get(host, now) <= now]

    @override
    def ask(self, host: str, place: MirroredPlace, begin: int, end: int) -> tuple[bytes, Sequence[int]] | None:
        server = self._servers[host]
        try:
            answer: Answer = _ray.get(server.read.remote(place.tree, place.name, begin, end), timeout=self._patience)
            if answer is None:
                manifest = (place.folder / MANIFEST).read_bytes()
                _ray.get(server.adopt.remote(place.tree, manifest), timeout=self._patience)
                answer = _ray.get(server.read.remote(place.tree, place.name, begin, end), timeout=self._patience)
        except _ray.exceptions.RayError:  # the actor or its node died, or it is too slow
            self._resting[host] = time.monotonic() + REST
            return None
        return answer if isinstance(answer, tuple) else None
