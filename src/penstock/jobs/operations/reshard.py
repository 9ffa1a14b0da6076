"""Tar shards with other limits: a block is a new archive, whose bytes are known before the first is written.

A job writes its archives to the staging folder under their final names. `finish` moves the archives to another folder,
without what killed jobs left, and that folder to its place. So the result is equal byte for byte to the one of a run
without jobs, and appears only when it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from typing_extensions import override

from penstock.containers.tar.compress import Compression
from penstock.core.arrays import ByteArray, IntArray
from penstock.core.text import counted
from penstock.data.chosen import ChosenDataset
from penstock.data.located import LocatedData
from penstock.errors import FormatError
from penstock.files import move, sync
from penstock.files.listing import digest_of_files
from penstock.flow.limits import PrefetchLimits
from penstock.flow.ordered_map import OrderedMap
from penstock.formats.webdataset.copying import ArchivePlan, archive_limits, is_archive, mapped, write_archive
from penstock.formats.webdataset.shards import shards_of
from penstock.formats.webdataset.source import ShardSource
from penstock.jobs.operation import Operation, pack, unpack
from penstock.jobs.staging import StagingFolder

ARCHIVES, JOINED = "archives", "joined"


class ReshardOperation(Operation):
    """`penstock reshard` without another layout."""

    def __init__(self, arguments: Mapping[str, Any], survey: bytes = b"") -> None:
        super().__init__(arguments, survey)
        self._shards = archives_at(ChosenDataset.of(arguments).locate(), arguments["out"])
        self._staging = StagingFolder(arguments["out"], arguments, self.fingerprint)
        self._archives = self._staging.path / ARCHIVES
        limits = (int(arguments["shard_bytes"]), int(arguments["shard_episodes"]))
        limits, self._single, kind = archive_limits(self._staging.out, limits, arguments.get("compression"))
        self._kind: Compression = kind
        if survey:
            learned: dict[str, Any] = unpack(survey)
            self._plan = ArchivePlan.from_plain(learned["plan"])
        else:
            with ShardSource(self._shards) as source:
                self._plan = ArchivePlan.of(source, limits)
                learned = {"layout": source.layout, "episodes": len(source)}
        self._counts = {name: learned[name] for name in ("layout", "episodes")}
        self._buffers: list[ByteArray] | None = None

    @override
    def survey(self) -> bytes:
        return pack({**self._counts, "plan": self._plan.to_plain()})

    @property
    @override
    def fingerprint(self) -> str:
        return digest_of_files(self._shards)

    @override
    def weights(self) -> IntArray:
        return self._plan.sizes()

    @override
    def run(self, first: int, last: int, *, threads: int) -> bytes:
        self._staging.make()
        self._archives.mkdir(exist_ok=True)
        with OrderedMap(self._write, range(first, last), PrefetchLimits(threads)) as sizes:
            return pack(list(sizes))

    def _write(self, number: int) -> tuple[str, int]:
        """Write an archive, unless another copy of the job did so; return its name and its bytes."""
        if self._buffers is None:
            self._buffers = mapped(self._shards)
        with suppress(FileExistsError):
            write_archive(self._plan, number, self._buffers, self._archives, self._kind)
        path = self._archives / self._plan.name(number, self._kind)
        return path.name, path.stat().st_size

    @override
    def has_part(self, result: bytes) -> bool:
        names: list[str] = [name for name, _ in unpack(result)]
        return all(any(self._staging.has_part(f"{folder}/{name}") for folder in (ARCHIVES, JOINED)) for name in names)

    @override
    def finish(self, results: Iterable[bytes]) -> dict[str, Any]:
        sizes: dict[str, int] = {name: size for result in results for name, size in unpack(result)}
        with self._staging.merging():
            self._move(sizes)
        return self._summary(list(sizes.values()))

    def _summary(self, sizes: list[int]) -> dict[str, Any]:
        """What the command shows of new archives of some sizes."""
        return {"path": str(self._staging.out), **self._counts, "shards": len(sizes), "bytes": sum(sizes)}

    def _move(self, sizes: dict[str, int]) -> None:
        """Move the archives to the target; nothing if an earlier call, which was killed, did so."""
        out = self._staging.out
        if not self._staging.has_target:
            folder = self._staging.path / JOINED
            folder.mkdir(exist_ok=True)
            for name in sizes:
                with suppress(FileNotFoundError):  # an earlier call, which was killed, moved it
                    move(self._archives / name, folder / name, overwrite=True)
            _compare_sizes(folder, sizes)
            sync(folder)
            (name,) = sizes if self._single else [""]
            move(folder / name, out)
            sync(out.parent)
        elif out.is_dir():
            _compare_sizes(out, sizes)

    @override
    def finished(self) -> dict[str, Any] | None:
        """Compare the archives with the plan, byte by byte: nothing in them says which work made them."""
        if not self._staging.is_closed:
            return None
        folder = self._staging.out
        names = [self._plan.name(number, self._kind) for number in range(len(self._plan))]
        paths = [folder] if self._single else [folder / name for name in names]
        is_whole = self._single or (folder.is_dir() and {path.name for path in folder.iterdir()} == set(names))
        if self._buffers is None:
            self._buffers = mapped(self._shards)
        if not is_whole or not all(is_archive(self._plan, i, self._buffers, path) for i, path in enumerate(paths)):
            self._staging.refuse_other()
        self._staging.remove()  # leftovers of a killed process
        return self._summary([path.stat().st_size for path in paths])

    @override
    def describe(self, first: int, last: int) -> str:
        return f"archives {first} to {last - 1} of {counted(len(self._plan), 'archive')}"


def _compare_sizes(folder: Path, sizes: Mapping[str, int]) -> None:
    """Raise `FormatError` if a folder has not the archives of the jobs."""
    written = {path.name: path.stat().st_size for path in folder.iterdir()} if folder.is_dir() else {}
    if missing := [name for name, size in sizes.items() if written.get(name) != size]:
        raise FormatError(f"expected all archives of the jobs, got none or others: {missing[:5]}", path=folder)


def archives_at(located: LocatedData, out: object) -> list[Path]:
    """Return the tar shards at a location."""
    if located.format != "webdataset":
        hint = f"write it as shards with: penstock convert {located} {out} --format webdataset"
        raise FormatError(f"expected tar shards, got a dataset of {located.format}; {hint}", path=located)
    return [shard for path in located.paths for shard in shards_of(path)]
