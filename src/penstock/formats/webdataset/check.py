"""Looking for damage in archives, and for what reads but is probably not meant."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from penstock.containers.tar import walk
from penstock.errors import DamageWarning, PenstockError
from penstock.files.mapping import map_file
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import folder_of
from penstock.formats.webdataset.samples import META
from penstock.formats.webdataset.source import ShardSource


def findings(path: Path | Sequence[Path]) -> Iterator[Finding]:
    """Damage of the dataset at `path`, or of several archives: an `error` where it cannot be read or was cut off, a
    `warning` where keys are used twice, `next_obs` is not the next observation, the last step of an episode is not
    done, or values are left out."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DamageWarning)  # they are findings here
            source = ShardSource(path, index=False)
        with source:
            yield from _read(source)
    except (PenstockError, OSError) as error:
        yield Finding("unreadable", str(folder_of(path)), str(error))


def _read(source: ShardSource) -> Iterator[Finding]:
    for shard, message in source.torn.items():
        yield Finding("truncated", shard, f"cut off: {message}")
    for shard in source.shards:
        if shard.suffix == ".tar" and (left := _behind(shard)):
            message = f"the last {left} bytes belong to no member; the next writer removes them"
            yield Finding("torn-tail", str(shard), message)
    keys = source.samples.keys
    different, first, count = np.unique(keys, return_index=True, return_counts=True)
    for i in np.flatnonzero((count > 1) & (different != META.encode())).tolist():
        where = str(source.shards[int(source.samples.shard[first[i]])])
        yield Finding("duplicate-key", where, f"the key {source.samples.key(int(first[i]))!r} is used {count[i]} times")
    if (steps := source.metadata.get("discontinuous_steps")) and source.layout == "seed":
        yield Finding("next-observation", str(source.path), f"in {steps} steps next_obs is not the next observation")
    for name in source.metadata.get("left_out", ()) if source.layout != "npy" else ():
        yield Finding(
            "damaged-part", str(source.path), f"{name} is no column: not every sample has values that fit together"
        )
    yield from _values(source)


def _behind(path: Path) -> int:
    """Bytes behind the end of an archive that are not zero."""
    data = map_file(path)
    rest = data[walk(data, path).end :]
    return len(rest) if rest.any() else 0


def _values(source: ShardSource) -> Iterator[Finding]:
    """Every value read once; and episodes of the seed's layout that do not end with a done."""
    for episode in source.episodes():
        if source.layout == "seed" and "dones" in source.spec and not np.asarray(episode.columns["dones"])[-1]:
            yield Finding("no-end", f"episode {episode.id}", "the last step is not done: the archive ends before it")
