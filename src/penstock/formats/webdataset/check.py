"""Looking for damage in archives, and for what reads but is probably not meant. Values are checked by the doctor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from penstock.containers.tar import TornError
from penstock.core.damage import collected_damage
from penstock.core.selection import Selection
from penstock.errors import PenstockError
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import folder_of
from penstock.formats.webdataset.samples import META
from penstock.formats.webdataset.source import ShardSource


def findings(path: Path | Sequence[Path]) -> Iterator[Finding]:
    """Damage of the dataset at `path`, or of several archives: an `error` where it cannot be read or was cut off within
    a member, a `warning` where keys are used twice, a killed writer left an append, or `next_obs` is not the next
    observation."""
    try:
        with collected_damage():  # they are findings here
            torn: TornError | None = None
            try:
                source = ShardSource(path, index="refresh")
            except TornError as error:
                torn = error
                source = ShardSource(path, index="refresh", salvage=True)
        with source:
            if torn is not None:  # opening refuses it, so that its account is not listed
                left_out = source.account.left_out
                if not any(entry.reason == "truncated" for entry in left_out):
                    # a compressed stream without its end, behind the last sample
                    yield Finding("truncated", Path(str(torn.path or folder_of(path))).name, str(torn))
                yield from (entry.finding() for entry in left_out)
            yield from _listed(source)
    except (PenstockError, OSError) as error:
        yield Finding("unreadable", str(folder_of(path)), str(error))


def _listed(source: ShardSource) -> Iterator[Finding]:
    for shard, byte in source.torn_tails.items():
        message = f"an append that was not finished follows byte {byte}; the next writer removes it"
        yield Finding("torn-tail", shard, message)
    keys = source.samples.keys
    different, first, count = np.unique(keys, return_index=True, return_counts=True)
    for i in np.flatnonzero((count > 1) & (different != META.encode())).tolist():
        where = str(source.shards[int(source.samples.shard[first[i]])])
        yield Finding("duplicate-key", where, f"the key {source.samples.key(int(first[i]))!r} is used {count[i]} times")
    if (steps := source.metadata.get("discontinuous_steps")) and source.layout == "seed":
        yield Finding("next-observation", str(source.path), f"in {steps} steps next_obs is not the next observation")
    if source.layout == "seed" and "dones" in source.spec:
        yield from _ends(source)


def _ends(source: ShardSource) -> Iterator[Finding]:
    """Episodes of the seed's layout that do not end with a done."""
    last = source.offsets[1:] - 1
    order = np.arange(len(last))
    selection = Selection(order * 0, last, order * 0 + 1, order, (len(last), 1))
    for e in np.flatnonzero(~np.asarray(source.read(["dones"], selection)["dones"], np.bool_).reshape(-1)).tolist():
        message = "the last step is not done: the archive ends before it"
        yield Finding("no-end", f"episode {e}", message, "dones", (e,), (int(last[e] - source.offsets[e]),))
