"""Which files a dataset is: one archive, a folder of archives, or a list of archives."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from penstock.containers.tar import glance
from penstock.core.order import in_natural_order, natural
from penstock.errors import FormatError, UnsafeDataError
from penstock.files.listing import FilePaths, list_files

SUFFIXES = (".tar", ".tgz", ".tar.gz", ".tar.zst", ".tzst")
PACKED: Mapping[Literal["gzip", "zstd"], tuple[str, ...]] = {"gzip": (".tgz", ".tar.gz"), "zstd": (".tar.zst", ".tzst")}

_OURS = re.compile(r"shard-\d{6,}")
_CHUNK = re.compile(rb"training\.\d+\.gz")  # a member of the chunk archives of a chess engine, and no sample


def shards_of(files: Path | Sequence[Path]) -> Sequence[Path]:
    """The archives of a dataset: files of a folder in natural order (2 before 10), others in the given order.

    Of a shard that our writer was stopped at between packing it and removing its plain copy, and of a single packed
    archive that it was stopped at while recording, the file that counts is the one of `current`.

    Raises `FileNotFoundError` for a missing file, `FormatError` for a folder without archives, or with two of one name
    that somebody else put there.
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
    """The plain archive that a single packed one is recorded into, next to it and hidden.

    >>> recording(Path("data/a.tgz")).as_posix()
    'data/.a.tgz.tar'
    """
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


def has_shards(path: Path) -> bool:
    """Whether there is an archive of samples at `path`, or in the folder there; never raises. Cost: a read of the
    first archive's first headers."""
    try:
        if path.is_dir():
            with os.scandir(path) as entries:
                names = [entry.name for entry in entries if _is_shard(entry.name) and entry.is_file()]
            first = path / min(names, key=natural) if names else None
        else:
            first = current(path, recording(path))
            first = first if first.is_file() else None
    except OSError:
        return False
    return first is not None and _of_samples(first)


def stem_of(path: Path) -> str:
    """The name without the ending that says what kind of archive it is.

    >>> stem_of(Path("data/a.b.tar.gz"))
    'a.b'
    """
    return _stem(path.name)


def _stem(name: str) -> str:
    return next(name[: -len(end)] for end in SUFFIXES if name.endswith(end))


def _of_samples(path: Path) -> bool:
    """Whether the first member that has an extension is named like a sample's; an empty archive may have some yet.

    A zstd archive is believed by its name where the library is missing. What must not be read is claimed as well, so
    that opening it says why.
    """
    seen = False
    try:
        for name in glance(path):
            seen, last = True, name.rpartition(b"/")[2]
            if b"." in last:
                return _CHUNK.fullmatch(last) is None
    except ImportError:
        return path.name.endswith(PACKED["zstd"])
    except FormatError as error:
        return seen or isinstance(error, UnsafeDataError)
    return not seen


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
