"""Which files a dataset is: one archive, a folder of archives, or a list; and unpacked copies of compressed ones.

An archive is unpacked once, into a folder whose size is bounded.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Literal

from penstock.containers.tar import NoArchiveError, glance
from penstock.containers.tar.compress import compression_of, unpack
from penstock.core.arrays import ByteArray
from penstock.core.order import in_natural_order, natural
from penstock.errors import FormatError, UnsafeDataError
from penstock.files import atomic_file
from penstock.files.listing import FilePaths, list_files, spread
from penstock.files.mapping import map_descriptor, map_file
from penstock.files.remote import file_state, open_file
from penstock.files.user_cache import make_room, user_cache
from penstock.formats.base.account import LeftOut, unused_beside

COPIED = ".penstock-unpacked"
COPIED_BYTES = 64 << 30


def folder_of(cache: str | os.PathLike[str] | None) -> Path:
    """The folder that was asked for; or one below `PENSTOCK_CACHE`, by default `~/.cache/penstock`."""
    return user_cache("shards") if cache is None else Path(cache)


def plain(
    path: Path,
    cache: str | os.PathLike[str] | None,
    limit: int = COPIED_BYTES,
    *,
    torn: Literal["refuse", "drop"] = "refuse",
) -> ByteArray:
    """The archive mapped, or, where it is compressed, its unpacked copy, which is made if there is none of this state.

    Other copies are removed, those not used for the longest time first, so that all have at most `limit` bytes.
    `torn="drop"` unpacks the whole members of an archive that was cut off.
    """
    with open_file(path) as file:
        if compression_of(file.read(4)) is None:
            return map_file(path, lazy=True)
    state = file_state(path)
    named = f"{path.resolve()} {state.size} {state.mtime_ns}{' torn' if torn == 'drop' else ''}"
    digest = hashlib.sha256(named.encode())
    folder = folder_of(cache)
    copy = folder / f"{digest.hexdigest()[:32]}{COPIED}"
    if (data := _sound(copy, digest.digest())) is not None:
        with suppress(FileNotFoundError):
            os.utime(copy)
        return data
    folder.mkdir(parents=True, exist_ok=True)
    return _unpacked(path, copy, digest.digest(), limit, torn)


def unpacked_beside(packed: Path, plain: Path) -> None:
    """Put the unpacked bytes at `plain`, which appears only when whole."""
    with atomic_file(plain) as file:
        unpack(packed, file, COPIED_BYTES)


def _sound(path: Path, digest: bytes) -> ByteArray | None:
    """The bytes of a copy with the end that a finished one has; None for any other file, and for none."""
    try:
        data = map_file(path, follow=False)
    except (FormatError, OSError):
        return None
    size = len(data) - len(_end(0, digest))
    return data[:size] if size >= 0 and data[size:].tobytes() == _end(size, digest) else None


def _end(size: int, digest: bytes) -> bytes:
    """The bytes behind the unpacked ones, which show a cut or foreign file without reading all of it."""
    return b"penstock unpacked 1\n" + digest + size.to_bytes(8, "little")


def _unpacked(path: Path, copy: Path, digest: bytes, limit: int, torn: Literal["refuse", "drop"]) -> ByteArray:
    with atomic_file(copy, durable="file") as file:
        size = unpack(path, file, limit, torn=torn)
        file.write(_end(size, digest))
        file.flush()
        # Mapped before it has a name by which others could remove it.
        data = map_descriptor(file.fileno(), copy)
        make_room(copy.parent, f"*{COPIED}", limit - size)
    return data[:size]


LOCK = ".lock"
"""The file in a folder of archives that a writer locks."""
SUFFIXES = (".tar", ".tgz", ".tar.gz", ".tar.zst", ".tzst")
PACKED: Mapping[Literal["gzip", "zstd"], tuple[str, ...]] = {"gzip": (".tgz", ".tar.gz"), "zstd": (".tar.zst", ".tzst")}

_OURS = re.compile(r"shard-\d{6,}")
_Kind = Literal["samples", "games", "empty", "other"]
_CHUNK = re.compile(rb"training\.\d+\.gz")  # a member of the chunk archives of a chess engine, and no sample


def shards_of(files: Path | Sequence[Path]) -> Sequence[Path]:
    """The archives of a dataset: files of a folder in natural order (2 before 10), others in the given order.

    Of a shard that our writer was stopped at between packing it and removing its plain copy, and of a single packed
    archive that it was stopped at while recording, the file that counts is the one of `current`.
    """
    if isinstance(files, Path) and files.is_dir():
        shards = _once(list_files(files, _is_shard))
        if not len(shards):
            raise FormatError(f"expected archives whose names end with {', '.join(SUFFIXES)}, found none", path=files)
        return shards
    named = [current(files, recording(files))] if isinstance(files, Path) else list(files)
    missing = [str(p) for p in named if not p.is_file()]
    if missing:
        raise FileNotFoundError(f"expected {len(named)} archives, {len(missing)} are missing, first {missing[0]}")
    return named


def recording(path: Path) -> Path:
    """The plain archive that a single packed one is recorded into, next to it and hidden."""
    return path.with_name(f".{path.name}.tar")


def current(packed: Path, plain: Path) -> Path:
    """Which of an archive's two forms counts: the one that was changed last, and the packed one if both were then.

    A packed archive appears whole, with the time of the plain one that it was made of, and the plain one is removed
    after it. So while both exist, either they hold the same, or the plain one has more.
    """
    with suppress(FileNotFoundError):
        written = plain.stat().st_mtime_ns
        with suppress(FileNotFoundError):
            return packed if packed.stat().st_mtime_ns >= written else plain
        return plain
    return packed


def unused_in(files: Path | Sequence[Path]) -> list[LeftOut]:
    """Everything in a folder of archives that is no archive."""
    return unused_beside(
        files, lambda name: _is_shard(name) or name == LOCK, f"files that end with {', '.join(SUFFIXES)}"
    )


def has_shards(path: Path) -> bool:
    """Whether there is an archive of samples at `path`, or in the folder there; never raises."""
    try:
        if path.is_dir():
            with os.scandir(path) as entries:
                names = [entry.name for entry in entries if _is_shard(entry.name) and entry.is_file()]
        else:
            file = current(path, recording(path))
            return file.is_file() and _kind_of(file) in ("samples", "empty")
    except OSError:
        return False
    kinds: set[_Kind] = set()
    first = [min(names, key=natural)] if names else []  # without sorting all, if it tells
    for name in chain(first, spread(in_natural_order(names))):
        kinds.add(kind := _kind_of(path / name))
        if kind in ("samples", "games"):
            return kind == "samples"
    return kinds == {"empty"}  # archives that may have samples yet


def stem_of(path: Path) -> str:
    """The name without the ending that says what kind of archive it is."""
    return _stem(path.name)


def _stem(name: str) -> str:
    return next(name[: -len(end)] for end in SUFFIXES if name.endswith(end))


def _kind_of(path: Path) -> _Kind:
    """What an archive holds, by its first member that has an extension.

    A zstd archive is believed by its name where the library is missing. What must not be read, and damaged compression,
    is claimed as well, so that opening it says why.
    """
    seen = False
    try:
        for name in glance(path):
            seen, last = True, name.rpartition(b"/")[2]
            if b"." in last[1:]:
                return "games" if _CHUNK.fullmatch(last) else "samples"
    except ImportError:
        return "samples" if path.name.endswith(PACKED["zstd"]) else "other"
    except NoArchiveError:
        return "other"
    except FormatError as error:
        is_packed = path.name.endswith((*PACKED["gzip"], *PACKED["zstd"]))
        return "samples" if seen or is_packed or isinstance(error, UnsafeDataError) else "other"
    return "other" if seen else "empty"


def _once(shards: FilePaths) -> FilePaths:
    """Every shard of a folder once, though a packed one may have its plain copy next to it."""
    by_stem: dict[str, list[str]] = {}
    for name in map(shards.name, range(len(shards))):
        by_stem.setdefault(_stem(name), []).append(name)
    if len(by_stem) == len(shards):
        return shards
    chosen: list[str] = []
    for stem, names in by_stem.items():
        if len(names) == 1:
            chosen += names
            continue
        packed = [name for name in names if not name.endswith(".tar")]
        if not _OURS.fullmatch(stem) or (len(names), len(packed)) != (2, 1):
            listed = " and ".join(sorted(names))
            message = f"expected every shard once, got {listed}; remove one, or open a pattern that names one of them"
            raise FormatError(message, path=shards.folder)
        chosen.append(current(shards.folder / packed[0], shards.folder / f"{stem}.tar").name)
    return FilePaths.within(shards.folder, in_natural_order(chosen))


def _is_shard(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(".")
