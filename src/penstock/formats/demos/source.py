"""`Kind`, one way to store demonstrations, and one source for those whose columns have rows of one width."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, BoolArray, ByteArray, IntArray
from penstock.core.columns import under
from penstock.core.spec import Align, Field, Spec
from penstock.errors import FormatError
from penstock.files.remote import file_state
from penstock.formats.base.account import Account
from penstock.formats.base.findings import Finding
from penstock.formats.base.pieces import RowReader
from penstock.formats.base.source import Source
from penstock.formats.base.state import GatheredColumn, SourceState, StateSource
from penstock.kernels.rows import RowMap

Next = Literal["check", "trust", "separate"]

AT_ONCE = 32 << 20  # bytes of rows that are compared at a time
_PART = re.compile(r"[^/\x00-\x1f\\]+")


def check_next(value: str) -> None:
    """Raise `TypeError` for another thing to do with next observations than the values of `Next`."""
    if value not in get_args(Next):
        raise TypeError(f"expected next_observations in {get_args(Next)}, got {value!r}")


@dataclass(frozen=True, eq=False)
class DemoColumn:
    """A field and what reads its rows."""

    field: Field
    rows: RowReader


def held(array: AnyArray, align: Align = "step") -> DemoColumn:
    return DemoColumn(Field(array.dtype, array.shape[1:], align), RowMap.of(array))


def follows(after: DemoColumn, before: DemoColumn, n: int) -> BoolArray:
    """`[n - 1]` whether row `t` of `after` is row `t + 1` of `before`, to the bit."""
    return np.concatenate([np.ones(0, np.bool_), *_compared(after, before, n)])


def continues(after: DemoColumn, before: DemoColumn, offsets: IntArray) -> bool:
    """Whether, within every episode, row `t` of `after` is row `t + 1` of `before`. No episode is empty."""
    n = int(offsets[-1])
    free = np.zeros(max(n - 1, 0), np.bool_)
    free[offsets[1:-1] - 1] = True  # from one episode to the next nothing follows
    seen = 0
    for same in _compared(after, before, n):
        if not (same | free[seen : seen + len(same)]).all():
            return False
        seen += len(same)
    return True


def _compared(after: DemoColumn, before: DemoColumn, n: int) -> Iterator[BoolArray]:
    """What `follows` says, block by block."""
    block = max(AT_ONCE // max(before.field.row_bytes, 1), 1)
    for a in range(0, n - 1, block):
        b = min(a + block, n - 1)
        yield (_read(after, a, b) == _read(before, a + 1, b + 1)).all(axis=1)


def _read(column: DemoColumn, start: int, stop: int) -> ByteArray:
    out, zero = np.empty((stop - start, column.field.row_bytes), np.uint8), np.zeros(1, np.int64)
    column.rows.gather(zero + start, zero + stop - start, zero, out)
    return out


class DemoSource(StateSource[SourceState]):
    """Demonstrations in one file: columns by path, cut into episodes by `offsets`; `state` tells readings apart."""

    def __init__(
        self,
        path: Path,
        columns: Mapping[str, DemoColumn],
        offsets: IntArray,
        *,
        reopen: tuple[Callable[..., Source], tuple[Any, ...]],
        metadata: Mapping[str, Any],
        entries: Callable[[int], dict[str, Any]] | None = None,
        state: str = "",
        account: Account | None = None,
    ) -> None:
        for name in [name for name in columns if not nameable(name, columns)]:
            raise FormatError("expected a name that a column can have", path=path, where=repr(name[:200]))
        self._entries = entries
        self._reopen = reopen
        spec = Spec({name: column.field for name, column in columns.items()})
        status = file_state(path)
        identity = json.dumps([status.size, status.mtime_ns, state, spec.fingerprint])
        begins = np.asarray(offsets, np.int64)
        self._state = SourceState(
            spec=spec,
            offsets=begins,
            digest=hashlib.sha256(identity.encode() + begins.tobytes()).hexdigest(),
            metadata=dict(metadata),
            arrays={name: GatheredColumn(column.rows, repair_bools=True) for name, column in columns.items()},
            account=account or Account(),
        )

    def __reduce__(self) -> tuple[Callable[..., Source], tuple[Any, ...]]:
        return self._reopen

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        return [{} if self._entries is None else self._entries(int(e)) for e in episodes]


def nameable(name: str, others: Iterable[str] = ()) -> bool:
    """Whether a column can have that path, next to the others' paths."""
    parts = name.split("/")
    plain = all(_PART.fullmatch(part) and part not in (".", "..") for part in parts)
    return plain and not any(other != name and under(name, other) for other in others)


class Kind(ABC):
    """How the demonstrations of one maker are recognised and opened. Stateless."""

    name: ClassVar[str]
    description: ClassVar[str]
    several: ClassVar[bool] = False  # whether `open` also takes several files, which are one dataset
    options: ClassVar[tuple[str, ...]] = ("max_bytes",)  # that `open` takes

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Whether the content at `path` (a file or a folder of files) is of this kind. Cheap, and never raises."""

    @abstractmethod
    def open(self, path: Path, **options: Any) -> Source:
        """Open for reading."""

    def check(self, path: Path, *, deep: bool, **options: Any) -> Iterator[Finding]:
        """Look for damage: opening reads what a check could look at, unless a kind knows more."""
        self.open(path, **options).close()
        yield from ()
