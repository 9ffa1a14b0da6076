"""`penstock reshard`: write tar shards again, with another size, compression or layout."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console

from penstock.cli.options import In, Storage, nbytes, storage_options
from penstock.cli.show import Json, print_json, size
from penstock.containers.tar import Members, TarAppender, member, walk
from penstock.containers.tar.compress import Compression, pack
from penstock.containers.tar.writer import Piece
from penstock.conversion.convert import convert
from penstock.core.arrays import ByteArray
from penstock.core.text import counted
from penstock.data.located import locate
from penstock.errors import DataError, FormatError
from penstock.files import move, scratch_folder
from penstock.formats.webdataset import own, seed
from penstock.formats.webdataset.cache import plain
from penstock.formats.webdataset.samples import META, grouped
from penstock.formats.webdataset.shards import SUFFIXES, shards_of
from penstock.formats.webdataset.source import ShardSource
from penstock.formats.webdataset.writer import SHARD_BYTES, SHARD_EPISODES, packing, shard_name
from penstock.locations.location import output_place
from penstock.locations.upload import uploading

APPENDED = 16 << 20  # bytes of members that are put into an archive with one append
COMPRESSIONS = ("none", "gzip", "zstd")
ENDS = {"gzip": ".tgz", "zstd": ".tar.zst"}


def reshard(
    location: In,
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="A new folder, or the name of one new archive; a path or a URL.")
    ],
    shard_bytes: Annotated[
        str, typer.Option("--shard-bytes", help="The size limit of a shard, such as 500MB.")
    ] = "1GiB",
    shard_episodes: Annotated[
        int, typer.Option("--shard-episodes", min=1, help="The limit of episodes, or single samples, in a shard.")
    ] = SHARD_EPISODES,
    compression: Annotated[str, typer.Option("--compression", help="none, gzip or zstd.")] = "none",
    layout: Annotated[
        str | None, typer.Option("--layout", help="npy or seed; by default the source's layout, without decoding.")
    ] = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Write tar shards again, with another size, compression or layout.

    If the layout stays the same, members are copied unchanged. OUT appears only when it is complete. For a URL, shards
    are written to the user's cache and then uploaded.

    Example: penstock reshard ./demos.tgz ./demos --shard-bytes 500MB --compression zstd
    """
    if compression not in COMPRESSIONS:
        raise DataError(f"expected a compression of {', '.join(COMPRESSIONS)}, got {compression!r}")
    packed: Compression = None if compression == "none" else _kind(compression)
    limits = (max(nbytes(shard_bytes), 1), shard_episodes)
    read_options, write_options = storage_options(storage, location, out)
    place = output_place(out)
    located = locate(location, storage_options=read_options)
    if located.format != "webdataset":
        hint = f"write it as shards with: penstock convert {location} {out} --to webdataset"
        raise FormatError(f"expected tar shards, got a dataset of {located.format}; {hint}", path=located)
    with ShardSource([shard for path in located.paths for shard in shards_of(path)]) as source, ExitStack() as stack:
        path = place if isinstance(place, Path) else stack.enter_context(uploading(place, write_options))
        if not isinstance(place, Path):
            _remove_leftover(path)
        source_layout = source.layout
        if layout in (None, source_layout):
            copy(source, path, limits, packed)
        elif source_layout == "samples" or layout not in ("npy", "seed"):
            hint = "write other datasets with: penstock convert IN OUT --to webdataset"
            raise DataError(
                f"expected the layout {source_layout!r}, or npy or seed of episodes, got {layout!r}; {hint}"
            )
        else:
            options = {"layout": layout, "shard_bytes": limits[0], "shard_episodes": limits[1], "compression": packed}
            convert(source, path, format="webdataset", options=options)
        summary: dict[str, Any] = {"path": str(place), **_summary(path, layout or source_layout, len(source))}
    if as_json:
        print_json(summary)
    else:
        counts = (counted(summary[name], name.rstrip("s")) for name in ("shards", "episodes"))
        text = ", ".join((*counts, size(summary["bytes"])))
        Console(soft_wrap=True).print(f"{place}: {text}", highlight=False)


def _kind(name: str) -> Literal["gzip", "zstd"]:
    return "gzip" if name == "gzip" else "zstd"


def _remove_leftover(path: Path) -> None:
    """Remove the shards of an upload that was interrupted: they are written again."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _summary(out: Path, layout: str, episodes: int) -> dict[str, Any]:
    shards = sorted(p for p in out.iterdir() if p.name.endswith(SUFFIXES)) if out.is_dir() else [out]
    total = sum(shard.stat().st_size for shard in shards)
    return {"layout": layout, "episodes": episodes, "shards": len(shards), "bytes": total}


def copy(
    source: ShardSource, out: Path, limits: tuple[int, int] = (SHARD_BYTES, SHARD_EPISODES), kind: Compression = None
) -> None:
    """Copy every member into archives with other limits (bytes, episodes), and the description into each.

    Keys that several samples would share are numbered. Raises `FileExistsError` if `out` exists, and `FormatError` if
    archives have different descriptions. Memory: names and places of all members, some 200 bytes each, and 16 MiB or
    one episode; the archives are mapped.
    """
    single, kind = packing(out, kind)
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"expected nothing at {out}; remove it, or write to another place")
    buffers = [plain(shard, None) for shard in source.shards]
    members = [walk(data, path) for data, path in zip(buffers, source.shards, strict=True)]
    head, described = _head(source, buffers, members)
    out.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(out) as scratch:
        folder = scratch / "shards"
        if single:
            limits = (1 << 62, 1 << 62)
        folder.mkdir()
        with _Shards(folder, head, limits, kind) as shards:
            for group in _groups(source, buffers, members, described):
                shards.add(group)
        (shard_file,) = folder.iterdir() if single else (folder,)
        move(shard_file, out)


class _Shards:
    """Archives that are filled in order."""

    def __init__(self, folder: Path, head: bytes, limits: tuple[int, int], kind: Compression) -> None:
        self._folder = folder
        self._head = head
        self._limits = limits
        self._kind: Compression = kind
        self._archive: TarAppender | None = None
        self._count = self._inside = self._waiting = 0
        self._pieces: list[Piece] = []

    def __enter__(self) -> _Shards:
        return self

    def __exit__(self, failed: object, *exc: object) -> None:
        if failed is None and self._count == 0:
            self._open()
        self._finish()

    def add(self, group: Sequence[Piece]) -> None:
        """Append the members of an episode; start a new archive if this one would exceed its limits."""
        length = sum(map(len, group))
        archive = self._archive
        if archive is not None and self._inside:
            full = archive.end + self._waiting + length > self._limits[0] or self._inside >= self._limits[1]
            if full:
                self._finish()
        if self._archive is None:
            self._open()
        self._pieces += group
        self._waiting += length
        self._inside += 1
        if self._waiting >= APPENDED:
            self._flush()

    def _open(self) -> None:
        self._archive = TarAppender.create(self._folder / shard_name(self._count), self._head)
        self._count, self._inside = self._count + 1, 0

    def _flush(self) -> None:
        if self._archive is not None:
            self._archive.append(self._pieces)
        self._pieces, self._waiting = [], 0

    def _finish(self) -> None:
        archive = self._archive
        if archive is None:
            return
        self._flush()
        archive.close()
        if self._kind is not None:
            pack(archive.path, archive.path.with_name(archive.path.stem + ENDS[self._kind]), self._kind)
            archive.path.unlink()
        self._archive = None


def _head(
    source: ShardSource, buffers: Sequence[ByteArray], members: Sequence[Members]
) -> tuple[bytes, Callable[[str], bool]]:
    """Return the first bytes of every archive, and a test for the same members in the old archives."""
    if source.layout == own.NAME:
        newest = own.described(source.shards, buffers, members)
        if newest is None:
            raise FormatError("expected a description, got none", path=source.path)
        return member(newest.name, newest.encode()), lambda name: name.startswith(own.FOLDER)
    if source.layout != seed.NAME:
        return b"", lambda _: False
    wanted = f"{META}.{seed.META_EXTENSION}"
    extensions: dict[bytes, None] = {}
    for data, shard_members in zip(buffers, members, strict=True):
        for i in np.flatnonzero(shard_members.names == wanted.encode()).tolist():
            extensions[data[shard_members.payload[i] : shard_members.payload[i] + shard_members.size[i]].tobytes()] = (
                None
            )
    if len(extensions) > 1:
        message = f"expected archives with equal descriptions, got {len(extensions)} descriptions; reshard each alone"
        raise FormatError(message, path=source.path)
    return b"".join(member(wanted, payload) for payload in extensions), lambda name: name == wanted


def _groups(
    source: ShardSource, buffers: Sequence[ByteArray], members: Sequence[Members], described: Callable[[str], bool]
) -> Iterator[list[Piece]]:
    """Yield the members of every episode in stored order; a member without episode goes with the one before."""
    seen: dict[bytes, int] = {}
    lengths = iter(np.diff(source.offsets).tolist() if source.layout == seed.NAME else ())
    for shard, (data, shard_members) in enumerate(zip(buffers, members, strict=True)):
        keep = [i for i in range(len(shard_members)) if not described(shard_members.name(i))]
        key = _keys(shard_members, shard, source.shards[shard])
        ends = np.append(shard_members.header[1:], shard_members.end)
        for run in _runs(key, keep, lengths, steps=source.layout == seed.NAME):
            yield [piece for i in run for piece in _piece(data, shard_members, i, int(ends[i]), key[i], shard, seen)]


def _keys(members: Members, shard: int, path: Path) -> list[bytes]:
    """Return the key of every member; members without a sample have an empty key."""
    samples = grouped(members, shard, path)
    sample_numbers = np.full(len(members), -1)
    order = np.argsort(members.payload, kind="stable")
    for row, sizes in zip(samples.payload, samples.size, strict=True):
        there = np.flatnonzero(sizes >= 0)
        sample_numbers[order[np.searchsorted(members.payload[order], row[there])]] = there
    keys = samples.keys.tolist()
    return [keys[i] if i >= 0 else b"" for i in sample_numbers.tolist()]


def _runs(key: Sequence[bytes], keep: Sequence[int], lengths: Iterator[int], *, steps: bool) -> Iterator[list[int]]:
    """Yield the members that must share an archive: the members of a sample, or of all samples of an episode."""
    run: list[int] = []
    current, left = b"", 0
    for i in keep:
        if key[i] and key[i] != current:
            current = key[i]
            if left == 0:
                if run:
                    yield run
                run, left = [], next(lengths) if steps else 1
            left -= 1
        run.append(i)
    if run:
        yield run


def _piece(
    data: ByteArray, members: Members, i: int, end: int, key: bytes, shard: int, seen: dict[bytes, int]
) -> list[Piece]:
    """Return member `i` unchanged, or with a numbered key if a sample of another archive has its key."""
    first = seen.setdefault(key, shard)
    if not key or first == shard:
        return [data[members.header[i] : end].data]
    name = members.name(i)
    payload = data[members.payload[i] : members.payload[i] + members.size[i]]
    text = key.decode("utf-8", "backslashreplace")
    return [member(f"{text}_{shard:06d}{name[len(text) :]}", payload.tobytes())]
