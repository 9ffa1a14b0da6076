"""`Account`: what became of each thing that a reader found in a dataset. Nothing is left out without a name.

Readers build it while they index. `penstock.open` sums up in one warning what may hold data, `penstock check` turns
each entry into a finding of the same name. A dataset whose writing has not ended has a mark (`UnfinishedWork`): a
hidden file that exists from before the first episode to after the last change, for all formats alike.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Literal, get_args

from penstock.core.boundary import json_object
from penstock.core.narrowing import is_integer, is_list, is_mapping
from penstock.core.text import counted
from penstock.errors import ArgumentError, FormatError, UnsupportedDtypeError
from penstock.files import write_atomic
from penstock.files.remote import read_bytes
from penstock.formats.base.findings import FINDINGS, Finding, Level, finding_kind, finding_kinds

Thing = Literal["file", "member", "array", "column", "topic", "episode", "rows", "bytes"]
THINGS: tuple[Thing, ...] = get_args(Thing)
DOCUMENTS = (".md", ".txt", ".rst", ".pdf", ".html", ".json", ".yaml", ".yml", ".toml", ".lock", ".log", ".py", ".sh")
NAMED = 3  # entries that a warning names
CAUTION = "caution"  # the reason of an entry of data that is used, and is not what one expects


@dataclass(frozen=True)
class LeftOut:
    """One thing that a reader found and does not use."""

    thing: Thing
    where: str
    reason: str
    message: str
    count: int = 1
    episodes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.thing not in THINGS:
            raise ArgumentError(f"expected a thing among {list(THINGS)}, got {self.thing!r}")
        if self.reason not in FINDINGS and self.reason not in finding_kinds():  # entry points cost a scan
            raise ArgumentError(f"expected the name of a finding as reason, got {self.reason!r}")

    @classmethod
    def of_error(cls, thing: Thing, where: str, error: FormatError) -> LeftOut:
        """Return the entry of a thing that cannot be read."""
        reason = "unsupported-dtype" if isinstance(error, UnsupportedDtypeError) else "damaged-part"
        return cls(thing, where, reason, str(error).partition(" - at ")[0])

    @property
    def level(self) -> Level:
        """How bad it is: `"error"` or `"warning"` if it may hold data, otherwise `"note"`."""
        return finding_kind(self.reason).level

    def finding(self) -> Finding:
        """Return the finding that `penstock check` reports."""
        column = self.where if self.thing in ("array", "column") else None
        rows = (0,) * len(self.episodes)
        message = self.message if self.reason == CAUTION else f"left out: {self.message}"
        return Finding(self.reason, self.where, message, column, self.episodes, rows)

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain values, for an index in the cache and for `info --json`."""
        entries: dict[str, Any] = {"thing": self.thing, "where": self.where, "reason": self.reason}
        entries["message"] = self.message
        entries |= {"count": self.count} if self.count != 1 else {}
        return entries | ({"episodes": list(self.episodes)} if self.episodes else {})

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> LeftOut:
        """Return the entry of a dict that `to_json` made."""
        try:
            episodes = tuple(map(int, entries.get("episodes", ())))
            values = (str(entries["where"]), str(entries["reason"]), str(entries["message"]))
            return cls(entries["thing"], *values, int(entries.get("count", 1)), episodes)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"expected an entry of an account, got {dict(entries)!r}") from error


@dataclass(frozen=True)
class Account:
    """Use of each thing that a reader found."""

    left_out: tuple[LeftOut, ...] = ()
    used: Mapping[str, str] = field(default_factory=dict[str, str])
    ends: str = ""

    def with_left_out(self, entry: LeftOut | None) -> Account:
        """Return the account with one more entry; itself for None."""
        return self if entry is None else replace(self, left_out=(*self.left_out, entry))

    def warning(self, level: Literal["error", "warning"] = "warning", *, without: Collection[str] = ()) -> str | None:
        """Return one sentence about everything that may hold data and is not used; None if there is nothing."""
        levels = ("error",) if level == "error" else ("error", "warning")
        entries = [entry for entry in self.left_out if entry.level in levels and entry.reason not in without]
        cautions = [f"{entry.where}: {entry.message}" for entry in entries if entry.reason == CAUTION]
        entries = [entry for entry in entries if entry.reason != CAUTION]
        if not entries:
            return "; ".join(cautions) or None
        counts: dict[str, int] = {}
        for entry in entries:
            counts[entry.thing] = counts.get(entry.thing, 0) + entry.count
        total = ", ".join(_counted(number, thing) for thing, number in counts.items())
        names = "; ".join(f"{entry.where} ({entry.message})" for entry in entries[:NAMED])
        more = f"; and {len(entries) - NAMED} more, which `penstock check` lists" if len(entries) > NAMED else ""
        return "; ".join([f"left out {total}: {names}{more}", *cautions])

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain values."""
        left_out = [entry.to_json() for entry in self.left_out]
        return {"left_out": left_out, "used": dict(self.used), "ends": self.ends}

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> Account:
        """Return the account of a dict that `to_json` made."""
        left_out, used, ends = (entries.get(name) for name in ("left_out", "used", "ends"))
        if not (is_list(left_out) and all(map(is_mapping, left_out)) and is_mapping(used) and isinstance(ends, str)):
            raise FormatError(f"expected an account, got {dict(entries)!r}")
        return cls(tuple(map(LeftOut.from_json, left_out)), dict(used), ends)


def joined_accounts(accounts: Sequence[Account], names: Sequence[str], first: Sequence[int]) -> Account:
    """Return the account of several datasets that are joined in order."""
    left_out = [
        LeftOut(
            entry.thing,
            f"{name}: {entry.where}",
            entry.reason,
            entry.message,
            entry.count,
            tuple(episode + start for episode in entry.episodes),
        )
        for account, name, start in zip(accounts, names, first, strict=True)
        for entry in account.left_out
    ]
    used = {theirs: ours for account in accounts for theirs, ours in account.used.items()}
    ends = "; ".join(dict.fromkeys(account.ends for account in accounts if account.ends))
    return Account(tuple(left_out), used, ends)


def unused_files(names: Iterable[str], expected: str, hidden: tuple[str, ...] = (".",)) -> list[LeftOut]:
    """Return the entries of files in a dataset's folder that its format does not read, sorted by name."""
    return [
        LeftOut("file", name, _file_reason(name, hidden), f"expected {expected}, got {name}") for name in sorted(names)
    ]


def unused_beside(
    path: Path | Sequence[Path], is_used: Callable[[str], bool], expected: str, hidden: tuple[str, ...] = (".",)
) -> list[LeftOut]:
    """Return the entries of what a folder has besides its dataset, folders with a slash; none of single files."""
    if not isinstance(path, Path) or not path.is_dir():
        return []
    with os.scandir(path) as entries:
        names = [f"{entry.name}{'/' * entry.is_dir()}" for entry in entries if not is_used(entry.name)]
    return unused_files(names, expected, hidden)


def _file_reason(name: str, hidden: tuple[str, ...]) -> str:
    path = PurePath(name)
    if any(part.startswith(hidden) and part not in (".", "..") for part in path.parts):
        return "hidden"
    is_document = path.suffix.lower() in DOCUMENTS or path.name.upper() in ("LICENSE", "LICENCE", "NOTICE", "README")
    return "document" if is_document else "other-file"


def _counted(number: int, thing: str) -> str:
    """The number of things, of which "rows" and "bytes" have no singular here."""
    return f"{number} part{'s' * (number != 1)} of {thing}" if thing.endswith("s") else counted(number, thing)


MARK = ".penstock-unfinished"
CONVERSION = "penstock_conversion"
"""Entry of the metadata by which a conversion knows its own target again."""


@dataclass(frozen=True)
class UnfinishedWork:
    """Work that writes a dataset and has not ended: it still runs, or it was interrupted."""

    work: str
    episodes: int
    has_left_out: bool = False  # whether episodes of the source were left out, so that numbers in the target differ

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, Any], episodes: int) -> UnfinishedWork | None:
        """Return the conversion that a target has in its metadata, if it has fewer episodes than that was to write."""
        try:
            total: Any = json.loads(metadata.get(CONVERSION) or "{}").get("total")
        except (AttributeError, ValueError, TypeError, RecursionError):
            return None
        return cls("conversion", int(total)) if is_integer(total) and total > episodes else None

    @classmethod
    def at(cls, path: Path) -> UnfinishedWork | None:
        """Return the unfinished work on the dataset at a path; None if there is none."""
        places = (*_places(path), f"{os.path.dirname(os.path.abspath(path))}/{MARK}")
        mark = next((file for file in places if os.path.isfile(file)), None)
        if mark is None:
            return None
        entries = json_object(read_bytes(mark), mark)
        try:
            return cls(str(entries["work"]), int(entries["episodes"]), bool(entries.get("has_left_out")))
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"expected the mark of unfinished work, got {entries}", path=mark) from error

    def begin(self, out: Path) -> None:
        """Mark a dataset before an episode is written."""
        inside, beside = _places(out)
        write_atomic(inside if out.is_dir() else beside, json.dumps(asdict(self)).encode())

    def left_out(self, where: str, episodes: int | None) -> LeftOut:
        done = 0 if episodes is None else episodes
        stopped = f"before the end of its {counted(self.episodes, 'episode')}"
        if episodes is not None:
            stopped = f"at {episodes:,} of {counted(self.episodes, 'episode')}"
        message = f"the {self.work} stopped {stopped}, or still runs: run the same command again"
        return LeftOut("episode", where, "unfinished", message, max(self.episodes - done, 1))


def remove_mark(out: Path) -> None:
    """Remove the mark, which is the last change of the work."""
    for mark in _places(out):
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(mark)


def _places(out: Path) -> tuple[str, str]:
    """The mark in a folder, and next to a file."""
    folder, name = os.path.split(os.path.abspath(out))
    return f"{folder}/{name}/{MARK}", f"{folder}/.{name}{MARK}"
