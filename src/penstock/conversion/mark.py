"""The mark of a conversion in its target: source and options, so that the conversion can go on where it stopped."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from penstock import files
from penstock.core.arrays import IntArray
from penstock.core.narrowing import is_dict, is_path
from penstock.errors import DataError, PenstockError, StateError
from penstock.formats.base.account import CONVERSION, remove_mark
from penstock.formats.base.account import MARK as UNFINISHED
from penstock.formats.base.format import Format, recognise
from penstock.formats.base.writer import Target

FIRST = ".shard-000000.tar."  # an archive on its way, all that a kill at the very beginning leaves


@dataclass(frozen=True)
class ConversionMark:
    """`source` is its fingerprint, `episodes` a digest of their numbers and order, `how` one of format and options.

    `total` is the number of episodes; 0 if it is not known, because a function decides.
    """

    source: str
    episodes: str
    how: str
    total: int

    @classmethod
    def of(cls, fingerprint: str, episodes: IntArray, how: Mapping[str, Any], *, known: bool = True) -> ConversionMark:
        order = hashlib.sha256(np.ascontiguousarray(episodes, "<i8").tobytes()).hexdigest()
        digest = hashlib.sha256(json.dumps(how, sort_keys=True, default=str).encode()).hexdigest()
        return cls(fingerprint, order, digest, len(episodes) if known else 0)

    def encode(self) -> str:
        """As text, which every format has a place for."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def decode(cls, text: object) -> ConversionMark | None:
        """The mark that `encode` wrote; None for anything else."""
        try:
            entries = json.loads(text) if isinstance(text, str) else None
            return cls(**entries) if is_dict(entries) else None
        except (ValueError, TypeError, RecursionError):
            return None

    def check(self, stored: ConversionMark, out: Path) -> None:
        """Raise `StateError` saying in what the conversion found at `out` differs from this one."""
        differs = {
            "another source, or the source was changed since": self.source != stored.source,
            "other episodes of it, or another order": (self.episodes, self.total) != (stored.episodes, stored.total),
            "other options": self.how != stored.how,
        }
        if wrong := [what for what, yes in differs.items() if yes]:
            raise StateError(
                f"expected {out} to be of the same conversion, got one of {' and '.join(wrong)}; convert to another "
                "place, or start it again with overwrite=True (--overwrite)"
            )


def found_at(out: Path, entry: Format) -> ConversionMark | None:
    """The mark of the dataset at `out`; None if there is no dataset. Leftovers of a kill at the very start are removed.

    Raises `FileExistsError` for anything that no conversion to this format wrote.
    """
    if not out.exists() and not out.is_symlink() and not _recording(out).exists():
        return None
    if _unstarted(out):
        for left in out.iterdir():
            left.unlink()
        out.rmdir()
        return None
    try:
        entry_of_path, path = recognise(out) if out.exists() else (entry, out)
        with entry_of_path.open(path) as source:
            mark = ConversionMark.decode(source.metadata.get(CONVERSION))
    except PenstockError as error:
        raise FileExistsError(f"expected nothing at {out}, or what a conversion wrote, got neither: {error}") from error
    if mark is None or entry_of_path.name != entry.name:
        got = f"one of {entry_of_path.name}" + ("" if mark else " that none wrote")
        raise FileExistsError(
            f"expected nothing at {out}, or a {entry.name} dataset that a conversion wrote, got {got}; convert to "
            "another place"
        )
    return mark


def remove(out: Path, entry: Format, target: Target) -> None:
    """Delete the dataset at `out` that a conversion wrote; nothing if there is none.

    Raises `FileExistsError` for anything else, and for files in its folder that are not part of it: none is deleted.
    """
    if found_at(out, entry) is None:
        return
    files.sweep(out)
    if out.is_symlink():
        raise FileExistsError(f"expected a dataset at {out}, got a link to one; remove the link")
    if not out.is_dir():
        for path in (out, _recording(out), out.with_name(f".{out.name}.lock")):
            path.unlink(missing_ok=True)
        remove_mark(out)
        return
    known = (*target.files, UNFINISHED)
    foreign = [path.name for path in out.iterdir() if not any(fnmatch(path.name, pattern) for pattern in known)]
    if foreign:
        raise FileExistsError(
            f"expected nothing but the dataset in {out}, got {sorted(foreign)[:3]}; nothing was deleted"
        )
    shutil.rmtree(out)


@contextmanager
def locked(out: Path) -> Generator[None]:
    """The folder `out` for one conversion at a time; a single archive is locked by its writer. Raises `LockedError`."""
    if not out.is_dir():
        yield
        return
    with files.locked(out, holder="another conversion"):
        yield


def check_apart(given: object, source: object, out: Path) -> None:
    """Raise `DataError` if `out` is the source itself, or is inside it, or it inside `out`."""
    parts = getattr(source, "parts", (source,))
    places = [given, *(getattr(part, name, None) for part in parts for name in ("path", "root", "folder"))]
    for place in (p for p in places if is_path(p)):
        a, b = Path(place).resolve(), out.resolve()
        if a == b or a in b.parents or b in a.parents:
            raise DataError(f"expected a place apart from the source, got {out} for {place}")


def _recording(out: Path) -> Path:
    """Temporary path of a single compressed archive until it is whole."""
    return out.with_name(f".{out.name}.tar")


def _unstarted(out: Path) -> bool:
    if not out.is_dir() or out.is_symlink():
        return False
    return all((p.name.startswith(FIRST) or p.name == UNFINISHED) and p.is_file() for p in out.iterdir())
