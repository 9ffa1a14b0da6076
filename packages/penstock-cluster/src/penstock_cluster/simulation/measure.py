"""`measure_storage`: constants of the user's own storage, from some hundred reads at random places."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import FloatArray
from penstock.errors import DataError
from penstock.files.descriptors import open_descriptor
from penstock.flow import map_on_threads
from penstock.locations.blocks import BLOCK
from penstock.locations.fetching import REQUEST
from penstock.locations.location import has_url
from penstock.locations.objects import ObjectInfo
from penstock.locations.stores import object_store
from penstock_cluster.simulation.queueing import CONNECTIONS
from penstock_cluster.simulation.storage import StorageConstants

STRAGGLER = 4.0
"""Times the median latency from which a request counts as a straggler."""
FILES = 64  # that are read from at most
Read = Callable[[int, int, int], int]
"""Reads bytes `begin : end` of a file by its number, and returns how many."""


@dataclass(frozen=True)
class _MeasuredFiles:
    """Sizes of some files, and how to read them."""

    sizes: list[int]
    read: Read


def measure_storage(
    location: str | os.PathLike[str],
    *,
    options: Mapping[str, Any] | None = None,
    reads: int = 256,
    seed: int = 0,
) -> StorageConstants:
    """Measure a storage by reading at random places of its files.

    Blocks of 64 KiB are read one at a time, for the latency; then ranges of 1 MiB one at a time, for the speed of a
    connection; then both sizes 32 at a time, for the bytes a second of this host and the processor time of a request.
    Pages of local files are dropped from the memory of the system before they are read. What this host reaches alone
    is a lower bound of what the storage can do for all hosts, so the limits of all hosts are left out: add them to the
    file if you know them.

    Args:
        location: A file, a folder, or a URL of a folder or an object, with some files above 1 MiB.
        options: Options of the store of a URL. The default is none.
        reads: Reads of each kind. The default is 256.
        seed: Seed of the places. The default is 0.

    Returns:
        The constants.

    Raises:
        DataError: There is no file of at least a block.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "some.bin"
        >>> _ = file.write_bytes(bytes(4 << 20))
        >>> measured = measure_storage(file, reads=16)
        >>> measured.latency > 0 and measured.connection > 0
        True
    """
    files = _remote_files(str(location), options) if has_url(str(location)) else _local_files(Path(location))
    rng = np.random.default_rng(seed)
    small = _timed(files, BLOCK, reads, rng)
    large = _timed(files, REQUEST * BLOCK, max(reads // 8, 4), rng)
    latency = float(np.median(small))
    longer = max(float(np.median(large)) - latency, 1e-9)
    nbytes = min(REQUEST * BLOCK, max(files.sizes)) - BLOCK
    before = time.process_time()
    many = _at_once(files, BLOCK, 4 * reads, latency, rng)
    overhead = (time.process_time() - before) / (4 * reads)
    line = _at_once(files, REQUEST * BLOCK, reads, latency, rng)
    usual = small[small <= STRAGGLER * latency]
    slow = small[small > STRAGGLER * latency]
    return StorageConstants(
        latency=latency,
        spread=float(np.std(np.log(usual))),
        connection=max(nbytes / longer, BLOCK / latency),
        host=max(line, many),
        overhead=overhead,
        stragglers=len(slow) / len(small),
        straggle=float(np.mean(slow) / latency) if len(slow) else 10.0,
        source=f"measured from {reads} reads of one host at {location}",
    )


def _timed(files: _MeasuredFiles, nbytes: int, reads: int, rng: np.random.Generator) -> FloatArray:
    """Seconds of reads, one at a time."""
    times = np.empty(reads)
    for i, (number, begin, end) in enumerate(_places(files, nbytes, reads, rng)):
        before = time.perf_counter()
        files.read(number, begin, end)
        times[i] = time.perf_counter() - before
    return times


def _at_once(files: _MeasuredFiles, nbytes: int, reads: int, latency: float, rng: np.random.Generator) -> float:
    """Bytes a second of `CONNECTIONS` reads at a time, once the first of them have waited for their latency."""
    places = _places(files, nbytes, reads, rng)
    before = time.perf_counter()
    got = sum(map_on_threads(lambda place: files.read(*place), places, CONNECTIONS, name="penstock-measure"))
    seconds = time.perf_counter() - before
    return got / max(seconds - latency, seconds / 2)


def _places(files: _MeasuredFiles, nbytes: int, reads: int, rng: np.random.Generator) -> list[tuple[int, int, int]]:
    """Random whole blocks: number of the file, first byte and end."""
    sizes = np.array(files.sizes)
    chosen = rng.choice(len(sizes), reads, p=sizes / sizes.sum())
    last = np.maximum((sizes[chosen] - nbytes) // BLOCK, 0)
    begin = rng.integers(0, last + 1) * BLOCK
    return list(zip(chosen.tolist(), begin.tolist(), np.minimum(begin + nbytes, sizes[chosen]).tolist(), strict=True))


def _remote_files(url: str, options: Mapping[str, Any] | None) -> _MeasuredFiles:
    store = object_store(url, options)
    by_size = sorted(store.list(), key=lambda info: -info.size)
    infos: list[ObjectInfo] = _large(by_size, lambda info: info.size, url)

    def read(number: int, begin: int, end: int) -> int:
        return len(store.read(infos[number].name, [(begin, end)], infos[number].version)[0])

    return _MeasuredFiles([info.size for info in infos], read)


def _local_files(place: Path) -> _MeasuredFiles:
    paths = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    paths = _large(sorted(paths, key=lambda path: -path.stat().st_size), lambda path: path.stat().st_size, place)

    for path in paths:  # pages can be dropped from memory after they are on the disk
        fd = open_descriptor(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    def read(number: int, begin: int, end: int) -> int:
        fd = open_descriptor(paths[number], os.O_RDONLY)
        try:
            os.posix_fadvise(fd, begin, end - begin, os.POSIX_FADV_DONTNEED)
            return len(os.pread(fd, end - begin, begin))
        finally:
            os.close(fd)

    return _MeasuredFiles([path.stat().st_size for path in paths], read)


def _large(files: list[Any], size: Callable[[Any], int], place: object) -> list[Any]:
    chosen = [each for each in files[:FILES] if size(each) >= BLOCK]
    if not chosen:
        raise DataError(f"expected files of at least {BLOCK} bytes to read from, got none - at {place}")
    return chosen
