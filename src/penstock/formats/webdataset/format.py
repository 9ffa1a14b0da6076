"""The format of tar shards: how they are recognised, opened, checked and written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from typing_extensions import override

from penstock.containers.tar import END, Members, TornError, walk
from penstock.containers.tar.compress import compression_of, pack_bytes
from penstock.containers.tar.walk import torn_end
from penstock.core.damage import collected_damage
from penstock.core.selection import Selection
from penstock.core.spec import Spec
from penstock.errors import DataError, FormatError, PenstockError
from penstock.files import locked
from penstock.files.remote import open_file
from penstock.formats.base.file_facts import ReadFacts
from penstock.formats.base.findings import Finding, Repair, cut_repair
from penstock.formats.base.format import Format, folder_of, index_entries
from penstock.formats.base.writer import Target
from penstock.formats.webdataset.content import META, grouped, index_file, without_cut_sample
from penstock.formats.webdataset.seed_writer import SeedWriter
from penstock.formats.webdataset.shards import SUFFIXES, has_shards, plain, shards_of
from penstock.formats.webdataset.source import ShardSource
from penstock.formats.webdataset.writer import (
    NpyShardWriter,
    ShardWriter,
    join_archives,
    join_shards,
    lock_path,
    packing,
)

LAYOUTS: Mapping[str, type[NpyShardWriter] | type[SeedWriter]] = {"npy": NpyShardWriter, "seed": SeedWriter}


SHARD_OPTIONS = ("shard_bytes", "shard_episodes", "compression")
SHARDS = Target(
    "webdataset",
    flat=True,
    options=("layout", *SHARD_OPTIONS),
    kept=SHARD_OPTIONS,
    files=("shard-*.tar", "shard-*.tgz", "shard-*.tar.zst", ".shard-*", ".lock", ".penstock-*"),
)
SEED = replace(
    SHARDS,
    name="webdataset, layout seed",
    needs=("observations", "actions", "terminations", "truncations"),
    aligns=("step",),
    ragged="infos",
    flat=False,
)


class WebDatasetFormat(Format):
    """Tar archives of samples: one, several, or a folder of them. See docs/formats/webdataset.md."""

    name: ClassVar[str] = "webdataset"
    description: ClassVar[str] = "tar shards of the webdataset library, il-representations' and our own"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    extras: ClassVar[tuple[str, ...]] = ("zstd", "images", "msgpack", "cbor")

    def recognises(self, path: Path) -> bool:
        """Whether an archive of samples is at `path`, or in the folder there."""
        return has_shards(path)

    def locate(self, name: str) -> Path | None:
        """The name of one packed archive that is still being recorded."""
        return Path(name) if has_shards(Path(name)) else None

    def are_shards(self, files: Sequence[Path]) -> bool:
        """Whether all are named like archives, or have the same ending."""
        return all(file.name.endswith(SUFFIXES) for file in files) or len({file.suffix for file in files}) == 1

    def open(self, path: Path, **options: Any) -> ShardSource:
        return ShardSource(path, **options)

    def open_files(self, files: Sequence[Path], **options: Any) -> ShardSource:
        """Open archives as the shards of one dataset. Raises as `open` does."""
        return ShardSource(files, **options)

    @override
    def target(self, options: Mapping[str, Any]) -> Target:
        """What `create` can store in this layout."""
        return SEED if options.get("layout") == "seed" else SHARDS

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any) -> ShardWriter:
        layout = options.pop("layout", "npy")
        if layout not in LAYOUTS:
            raise DataError(f"expected layout to be one of {list(LAYOUTS)}, got {layout!r}")
        return LAYOUTS[layout].create(path, spec, metadata, **options)

    @override
    def join_parts(self, parts: Sequence[Path], out: Path, place: Path) -> None:
        """The archives of all parts are numbered again; the last one of a part may be shorter than its limit."""
        single, kind = packing(out, None)
        if single:
            join_archives(parts, out, kind)
        else:
            join_shards(parts, out)

    def append(self, path: Path, **options: Any) -> ShardWriter:
        """Open an existing dataset for writing more episodes, in the layout that it has."""
        with ShardSource(path) as source:
            layout = source.layout
        if layout not in LAYOUTS:
            message = "archives of single samples are read-only here; write a new dataset"
            raise FormatError(message, path=path)
        return LAYOUTS[layout](path, **options)

    @override
    def build_index(
        self, paths: Sequence[Path], *, force: bool = False, facts: ReadFacts | None = None
    ) -> dict[str, Any]:
        given = paths[0] if len(paths) == 1 else paths
        if force and (file := index_file(given)) is not None:
            file.path.unlink(missing_ok=True)
        with ShardSource(given) as source:
            index = index_entries(source.index_file, is_new=source.keep_index())
            counts = {"episodes": len(source), "steps": source.steps, "samples": len(source.samples)}
            shards = {"shards": len(source.shards), "layout": source.layout}
        return {**counts, **shards, **index}

    def check(self, path: Path, *, deep: bool = True) -> Iterator[Finding]:
        """Look for members cut off, keys used twice, values left out and steps that do not follow one another."""
        return _findings(path)

    def check_files(self, files: Sequence[Path], **options: Any) -> Iterator[Finding]:
        """Look for damage as `check` does, also for keys that several archives use."""
        return _findings(files)

    @override
    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        names = {finding.where for finding in findings if finding.name in ("truncated", "torn-tail")}
        for shard in (shard for shard in shards_of(path) if shard.name in names):
            with open_file(shard) as file:
                kind = compression_of(file.read(4))
            try:
                repair = _cut(shard) if kind is None else _packed_again(shard, kind)
            except FormatError:
                continue  # damaged before its end: nothing there can be mended
            if repair is not None:
                yield repair

    @override
    def writing_lock(self, path: Path) -> AbstractContextManager[object]:
        return locked(lock_path(path), os.O_RDWR | os.O_CREAT)


def _findings(path: Path | Sequence[Path]) -> Iterator[Finding]:
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
    dones = np.asarray(source.read(["dones"], Selection.of_rows(last))["dones"], np.bool_)
    for e in np.flatnonzero(~dones.reshape(-1)).tolist():
        message = "the last step is not done: the archive ends before it"
        yield Finding("no-end", f"episode {e}", message, "dones", (e,), (int(last[e] - source.offsets[e]),))


def _cut(shard: Path) -> Repair | None:
    """Let a plain archive end behind its last whole sample. Bytes that may be data stay where they are."""
    members, size, torn = torn_end(shard)
    if not torn or not len(members):
        return None
    repair = cut_repair(shard, _whole_samples(members, shard), size, where=shard.name, then=END)
    return repair if members.torn is None else replace(repair, finding="truncated")


def _packed_again(shard: Path, kind: Literal["gzip", "zstd"]) -> Repair | None:
    """Unpack an archive as far as it goes and compress it again: the end of a stream cannot be mended alone."""
    try:
        if walk(plain(shard, None), shard, torn="drop").torn is None:
            return None
    except TornError:  # the stream ends early, perhaps behind the last member
        pass
    unpacked = plain(shard, None, torn="drop")
    members = walk(unpacked, shard, torn="drop")
    if not len(members):
        return None
    end = _whole_samples(members, shard)

    def content() -> bytes:
        return pack_bytes([unpacked[:end].data, END], kind)

    message = f"keep {end:,} bytes of whole samples, compressed again"
    return Repair("truncated", shard, message, content, None, shard.name)


def _whole_samples(members: Members, shard: Path) -> int:
    """The byte behind the last whole sample."""
    if members.torn is None:
        return members.end
    samples = grouped(members, 0, shard)
    if len(without_cut_sample(samples)) == len(samples):
        return members.end
    first = int(samples.payload[samples.size[:, -1] >= 0, -1].min())
    return int(members.header[members.payload == first][0])
