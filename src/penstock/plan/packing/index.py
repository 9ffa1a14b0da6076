"""`PackIndex`: which items are together in pack `k`, from lengths alone.

Items are planned in windows, each for itself. The number of packs of each window gives a running sum. Pack `k` is found
by a search in this sum, and then read from the plan of its window. Planning `n` items therefore needs memory for one
window, and several threads plan windows at once. More items later become new windows, and leave the packs before as
they are.

Invariants: the packs of a window depend on its lengths, the rule and its number. The number of packs never changes. An
epoch may exchange items of equal length (`exchanges`), which changes the contents of packs and not their sizes, so
lengths and offsets are planned once for all epochs.

Plans are kept as narrow integers if they fit in `_AUTO` bytes. Otherwise a window is planned again when one of its
packs is read, and the last `_REMEMBERED` windows stay in memory. Arrays of a plan are read-only, and results belong to
the caller.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.narrowing import is_list
from penstock.core.turns import ForkSafeLock
from penstock.errors import FormatError, PlanError, StateError
from penstock.files import read_checked, write_checked
from penstock.flow import map_on_threads
from penstock.kernels.fit import count_decreasing
from penstock.kernels.pack_reading import GIVEN, LEFT, PARTS, RIGHT, place_pieces
from penstock.kernels.permute import permute
from penstock.plan.packing import saved
from penstock.plan.packing.bound import bound_of
from penstock.plan.packing.layout import Lengths, WindowLayout
from penstock.plan.packing.report import PackReport
from penstock.plan.packing.rule import Rule
from penstock.plan.packing.store import StoredPieces, WindowStore
from penstock.plan.packing.tally import PackingStats, tally_of, tally_of_counts
from penstock.plan.packing.window import EXACT, Window, count_window, cut_overlong, is_countable, plan_window

Keep = Literal["auto", "memory", "recompute"]

_CACHED = b"penstock cached plan 1\n"
_AUTO = 256 << 20
_REMEMBERED = 16
_WIDEST = (1 << 31) - 8  # kernels count the items of a window in 32 bits


class PackPieces(NamedTuple):
    """Contents of some packs: `m` pieces, pack after pack, in their order in the pack.

    `pack` `[m]`: which of the packs asked for, from 0. `item` `[m]`. `begin` and `length` `[m, A]`: rows
    `begin : begin + length` of the item, on each axis (0 rows are possible). `destination` `[m, A]`: the row of the
    pack where they go.
    """

    pack: IntArray
    item: IntArray
    begin: IntArray
    length: IntArray
    destination: IntArray


class PackIndex:
    """`n` items in `len(index)` packs: pack `k` of epoch `e` is a pure function of rule, lengths, `e` and `k`.

    Items are packed in windows of `window` items, each for itself, so that a pack is known once its window is planned,
    and planning `n` items needs memory for one. Which items share a window never changes, and neither does the number
    of packs; where the rule `exchanges`, items of equal length change places in every epoch. With a given order, the
    packs of all epochs are alike. Packs of one window follow one another, for best fit decreasing packs of the longest
    items first: shuffle them. Items without rows on any axis are in no pack.

    Arguments:

    * `lengths`: `[n]` or `[n, A]` integers of any dtype, in memory or mapped (never copied whole), or a function from
      `[m]` int64 items to their `[m]` or `[m, A]` lengths, with `n`. Several threads may call it at once.
    * `window`: items planned together, a multiple of `block`; None for all. Larger ones need fewer packs (65 536 are
      within 0.2 % of planning all at once) and more time for a pack whose window is not at hand.
    * `block`: items that stay neighbours when a window is drawn from the whole set.
    * `keep`: `"memory"` keeps every plan, about 5 bytes an item; `"recompute"` a running sum of packs, 8 bytes a
      window, and the last 16 plans; `"auto"` is memory up to 256 MB.
    * `threads`: for planning, at the first use.

    Raises `PlanError` for lengths that are negative, of another shape than the capacity, or not allowed to be so long.
    Cost: the first use plans every window: with best fit decreasing on one axis some ns an item. Then about a
    microsecond a piece, and for each window that is not at hand the time to plan it.
    """

    def __init__(
        self,
        lengths: npt.ArrayLike | Lengths,
        rule: Rule,
        *,
        n: int | None = None,
        window: int | None = 65536,
        block: int = 64,
        keep: Keep = "auto",
        threads: int = 1,
    ) -> None:
        self.rule = rule
        settled, self.n = _settled(lengths, n)
        self._window, self._block = _window(window, block, self.n)
        if keep not in ("auto", "memory", "recompute") or threads < 1:
            raise PlanError(
                f"expected keep 'auto', 'memory' or 'recompute' and at least 1 thread, got {keep!r}, {threads}"
            )
        self._threads = threads
        self._layout = WindowLayout(settled, self.rule, self.n, self._window, self._block)
        self._stored = keep == "memory" or (keep == "auto" and 5 * self.n <= _AUTO)
        self._first = np.zeros(1, np.int64)  # the first pack of each window that is planned, and the end
        self._tally = PackingStats.none(len(self.rule.capacity))
        self._limit = np.array(self.rule.capacity, np.int64)
        self._policy = {"truncate_right": RIGHT, "truncate_left": LEFT, "split": PARTS}.get(str(self.rule.overlong), 0)
        self._seeds = np.array([self.rule.seed_for("exchange"), self._layout.seed], np.uint64)
        self._spread_seed = self.rule.seed_for("spread")
        self._store: WindowStore | None = None
        self._recent: OrderedDict[int, WindowStore] = OrderedDict()
        self._lock, self._making = ForkSafeLock(), _locks()

    def __len__(self) -> int:
        self._ready()
        return int(self._first[-1])

    @property
    def most_sequences(self) -> int:
        self._ready()
        return self._tally.most

    @property
    def width(self) -> tuple[int, ...]:
        """The most rows a pack needs, per axis: the capacity, or the longest item that has a pack to itself."""
        self._ready()
        return tuple(max(a, b) for a, b in zip(self.rule.capacity, self._tally.longest, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of the plan that is kept, without lengths."""
        self._ready()
        return self._first.nbytes + (self._store.nbytes if self._store else 0)

    def pieces(self, packs: npt.ArrayLike, epoch: npt.ArrayLike = 0) -> PackPieces:
        """What `[n]` packs, in any order and any number of times, hold in the epoch, or in `[n]` epochs.

        Raises `PlanError` for packs outside `0 : len(index)` and negative epochs. Cost: see the class.
        """
        self._ready()
        pack, epochs = np.asarray(packs, np.int64).ravel(), np.asarray(epoch, np.int64).ravel()
        if len(epochs) not in (1, len(pack)):
            raise PlanError(f"expected one epoch, or one for each of {len(pack)} packs, got {len(epochs)}")
        return self._laid(self._found(pack, epochs))

    def spread(self, packs: IntArray, epoch: IntArray) -> IntArray:
        """`[n]` packs that replace packs `[n]` in the epochs `[n]`: a keyed order within each window, because planning
        puts the long items first. The same packs where items keep the given order.
        """
        if not self.rule.exchanges:
            return packs
        self._ready()
        window = np.searchsorted(self._first, packs, side="right") - 1
        first, last = self._first[window], self._first[window + 1]
        stream = epoch * len(self._layout) + window
        return first + permute(packs - first, last - first, stream, self._spread_seed)

    def packs_of(self, items: IntArray, epoch: int, order: int) -> IntArray:
        """The packs `[m]`, ascending, that have some of the items: the contents of one epoch in the order of another.

        Cost: looks at all packs of each window that has one of the items.
        """
        self._ready()
        windows = np.unique(np.searchsorted(self._layout.first, self._layout.places_of(items), side="right") - 1)
        parts: list[IntArray] = []
        for w in windows.tolist():
            first, last = int(self._first[w]), int(self._first[w + 1])
            pieces = self.pieces(np.arange(first, last), epoch)
            mine = np.unique(pieces.pack[np.isin(pieces.item, items)])
            if self.rule.exchanges:
                many = np.full(len(mine), last - first)
                stream = np.full(len(mine), order * len(self._layout) + w)
                mine = np.sort(permute(mine, many, stream, self._spread_seed, inverse=True))
            parts.append(first + mine)
        return np.concatenate(parts) if parts else items[:0]

    def _laid(self, stored: StoredPieces) -> PackPieces:
        """The rows of each piece, and their place in the pack."""
        total, policy = self._layout.lengths_of(stored.item), self._policy
        out = np.empty((3, *total.shape), np.int64)
        if stored.rows is not None:
            out[0], out[1] = stored.rows
            policy = GIVEN + (LEFT if policy == LEFT else 0)
        place_pieces(stored.pack, total, stored.part, self._limit, policy, self.rule.align, self.rule.head, out)
        return PackPieces(stored.pack, stored.item, out[0], out[1], out[2])

    def _found(self, pack: IntArray, epoch: IntArray) -> StoredPieces:
        if self._store is not None:
            pieces = self._store.find(pack, epoch, 0, self._layout, self._seeds)
            return self._refused(pack, epoch) if pieces is None else pieces
        if len(pack) and not (pack.min() >= 0 and pack.max() < self._first[-1] and epoch.min() >= 0):
            self._refused(pack, epoch)
        window = np.searchsorted(self._first, pack, side="right") - 1
        order = np.argsort(window, kind="stable")
        groups = [g for g in np.split(order, np.flatnonzero(np.diff(window[order])) + 1) if len(g)]
        epochs = np.broadcast_to(epoch, pack.shape)
        pieces = [self._found_in(int(window[g[0]]), pack[g], np.ascontiguousarray(epochs[g])) for g in groups]
        return pieces[0] if len(pieces) == 1 else _merged(groups, pieces)

    def _refused(self, pack: IntArray, epoch: IntArray) -> NoReturn:
        if epoch.min() < 0:
            raise PlanError(f"expected epochs of 0 or more, got {epoch.min()}")
        raise PlanError(f"expected packs of 0 to {self._first[-1] - 1}, got {pack.min()} to {pack.max()}")

    def _found_in(self, w: int, pack: IntArray, epoch: IntArray) -> StoredPieces:
        pieces = self._window_store(w).find(pack - self._first[w], epoch, w, self._layout, self._seeds)
        return self._refused(pack, epoch) if pieces is None else pieces

    def _window_store(self, w: int) -> WindowStore:
        """The plan of window `w`, which one thread makes while other threads wait."""
        with self._making[w % len(self._making)]:
            with self._lock:
                store = self._recent.get(w)
                if store is not None:
                    self._recent.move_to_end(w)
                    return store
            store = WindowStore.of([self._planned(w)])
            with self._lock:
                self._recent[w] = store
                while len(self._recent) > _REMEMBERED:
                    self._recent.popitem(last=False)
            return store

    def _planned(self, w: int) -> Window:
        return plan_window(self.rule, cut_overlong(self.rule, self._layout.lengths_in(w)), w)

    def _ready(self) -> None:
        """Plan all windows, unless that was done."""
        if len(self._first) > len(self._layout):
            return
        with self._lock:
            if len(self._first) > len(self._layout):
                return
            windows = range(len(self._layout))
            step = max(1, _AUTO // 8 // (self._window * 8))
            counts = [np.zeros(1, np.int64)]
            stores: list[WindowStore] = []
            tally = self._tally
            for begin in range(0, len(windows), step):
                done = map_on_threads(self._counted, windows[begin : begin + step], self._threads, name="penstock-pack")
                counts.append(np.array([each.packs for each, _ in done], np.int64))
                tally = PackingStats.sum([tally, *(each for each, _ in done)])
                if self._stored:
                    stores.append(WindowStore.of([window for _, window in done if window is not None]))
            if self._stored:
                self._store = WindowStore.join(stores)
            self._tally = tally
            # Last, because it marks the plan as complete.
            self._first = np.cumsum(np.concatenate(counts))

    def _counted(self, w: int) -> tuple[PackingStats, Window | None]:
        if not self._stored and is_countable(self.rule) and (counts := self._layout.histogram(w)) is not None:
            full = counts.copy()
            full[0] = 0  # items without rows are left out
            planned = count_decreasing(full, self.rule.capacity[0], self.rule.most)
            return tally_of_counts(counts, planned), None
        lengths = self._layout.lengths_in(w)
        parts = cut_overlong(self.rule, lengths)
        counted = None if self._stored else count_window(self.rule, parts)
        if counted is not None:
            return tally_of(self.rule, lengths, parts, counted), None
        window = plan_window(self.rule, parts, w)
        return tally_of(self.rule, lengths, parts, window), window if self._stored else None

    @property
    def window_items(self) -> IntArray:
        """`[w]` items of each window."""
        return np.diff(self._layout.first)

    def count_windows(self, first: int, last: int, threads: int = 1) -> tuple[IntArray, PackingStats]:
        """Packs of the windows `first` to `last - 1`, `[last - first]`, and what packing did with their items.

        No other window is planned, so that several processes may plan windows, which `with_windows` joins.

        Raises `PlanError` where plans are kept in memory: joining them would copy all of them.
        """
        if self._stored:
            raise PlanError("expected keep='recompute' for packs that are planned in parts, got plans in memory")
        done = map_on_threads(self._counted, range(first, last), threads, name="penstock-pack")
        none = PackingStats.none(len(self.rule.capacity))
        return np.array([each.packs for each, _ in done], np.int64), PackingStats.sum(
            [none, *(each for each, _ in done)]
        )

    def with_windows(self, parts: Iterable[tuple[IntArray, PackingStats]]) -> PackIndex:
        """This index with the packs that `count_windows` found, of consecutive ranges of all windows."""
        known = list(parts)
        counts = np.concatenate([np.zeros(1, np.int64), *(each for each, _ in known)])
        if len(counts) != len(self._layout) + 1:
            raise PlanError(f"expected the packs of {len(self._layout)} windows, got {len(counts) - 1}")
        self._tally = PackingStats.sum([self._tally, *(tally for _, tally in known)])
        self._first = np.cumsum(counts)
        return self

    def report(self) -> PackReport:
        """What packing did with the items. Cost: reads all lengths once more, for the bound."""
        packs, tally = len(self), self._tally
        room = [packs * limit for limit in self.rule.capacity]
        return PackReport(
            items=self.n,
            packs=packs,
            pieces=tally.pieces,
            rows=tally.rows,
            lower_bound=self._lower_bound(),
            efficiency=tuple(rows / most if most else 1.0 for rows, most in zip(tally.rows, room, strict=True)),
            most_sequences=tally.most,
            empty=tally.empty,
            truncated=tally.truncated,
            split=tally.split,
            dropped=tally.dropped,
            own_packs=tally.own,
            lost=tally.lost,
        )

    def _lower_bound(self) -> int:
        own = self._tally.own
        short = [rows - far for rows, far in zip(self._tally.rows, self._tally.own_rows, strict=True)]
        bounds = [-(-rows // limit) + own for rows, limit in zip(short, self.rule.capacity, strict=True)]
        if self.rule.method == "concat_split" or max(self.rule.capacity) > EXACT:
            return max(bounds)
        counts = [np.zeros(limit + 1, np.int64) for limit in self.rule.capacity]
        for w in range(len(self._layout)):
            if len(counts) == 1 and (histogram := self._layout.histogram(w)) is not None:
                counts[0] += histogram
                continue
            rows = cut_overlong(self.rule, self._layout.lengths_in(w)).rows
            counts = [count + np.bincount(rows[:, a], minlength=len(count)) for a, count in enumerate(counts)]
        return max(bound_of(np.arange(len(count)), count, len(count) - 1) + own for count in counts)

    def to_bytes(self) -> bytes:
        """The plan as bytes: sums of packs, and the packs themselves where they are kept; no lengths."""
        self._ready()
        arrays = {"first": self._first} | (vars(self._store) if self._store else {})
        return saved.to_bytes(self._header() | {"tally": vars(self._tally)}, arrays)

    @classmethod
    def from_bytes(
        cls, data: bytes, lengths: npt.ArrayLike | Lengths, rule: Rule, *, n: int | None = None, threads: int = 1
    ) -> PackIndex:
        """The index that `to_bytes` was called on, without planning.

        Raises `StateError` if it was made with another rule, another number of items, or lengths that differ in its
        first or last window; `FormatError` for bytes that are no saved plan.
        """
        header, arrays = saved.from_bytes(data)
        try:
            keep: Keep = "memory" if header["stored"] else "recompute"
            sizes = {"window": int(header["window"]), "block": int(header["block"])}
            index = cls(lengths, rule, n=n, keep=keep, threads=threads, **sizes)
            tally: dict[str, Any] = {name: tuple(v) if is_list(v) else v for name, v in header.pop("tally").items()}
            index._restore(header, arrays, PackingStats(**tally))
        except (KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"expected a saved plan, got one without what it needs: {error!r}") from error
        return index

    def write(self, folder: Path, name: str) -> Path:
        """Write the plan to a file with a checksum, and return the file."""
        file = folder / f"{name}.pack"
        write_checked(file, _CACHED, name, self.to_bytes())
        return file

    @classmethod
    def read(cls, folder: Path, name: str, lengths: Lengths, rule: Rule, *, n: int) -> PackIndex | None:
        """Return the plan that was written under a name; None where there is none, or none of this version."""
        raw = read_checked(folder / f"{name}.pack", _CACHED, name)
        if raw is not None:
            with suppress(FormatError, StateError):
                return cls.from_bytes(bytes(raw), lengths, rule, n=n)
        return None

    def _restore(self, header: dict[str, Any], arrays: dict[str, AnyArray], tally: PackingStats) -> None:
        if header["n"] != self.n or header["rule"] != repr(self.rule):
            raise StateError(
                f"expected a plan of {self.n} items by {self.rule}, got one of {header['n']} by {header['rule']}; "
                "plan again"
            )
        if header["probe"] != self._header()["probe"]:
            raise StateError("expected the lengths that the plan was made from, got others; plan again")
        first = arrays.pop("first")
        if len(first) != len(self._layout) + 1 or first[0] != 0 or (np.diff(first) < 0).any():
            raise FormatError(f"expected {len(self._layout) + 1} rising sums of packs, got {len(first)}")
        if self._stored:
            self._store = WindowStore(**arrays)
            self._store.check(np.diff(self._layout.first), len(self.rule.capacity), self.rule.method == "concat_split")
            if not np.array_equal(self._store.pack_first, first):
                raise FormatError("expected the packs that the sums count, got others")
        self._first, self._tally = first, tally

    def _header(self) -> dict[str, Any]:
        ends = sorted({0, len(self._layout) - 1}) if len(self._layout) else []
        probe = [zlib.crc32(self._layout.lengths_in(w).astype("<i8").tobytes()) for w in ends]
        return {
            "rule": repr(self.rule),
            "n": self.n,
            "window": self._window,
            "block": self._block,
            "stored": self._store is not None,
            "probe": probe,
        }

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_making", "_recent")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=ForkSafeLock(), _making=_locks(), _recent=OrderedDict())


def _locks() -> tuple[ForkSafeLock, ...]:
    """For windows that are being planned; a few of them share one."""
    return tuple(ForkSafeLock() for _ in range(4 * _REMEMBERED))


def _merged(groups: list[IntArray], stored: list[StoredPieces]) -> StoredPieces:
    """What several windows gave for their packs `groups[j]`, in the order of packs."""
    pack = np.concatenate([np.empty(0, np.int64), *(g[f.pack] for g, f in zip(groups, stored, strict=True))])
    back = np.argsort(pack, kind="stable")
    cut_rows = [f.rows for f in stored if f.rows is not None]
    parts = [f.part if len(f.part) else np.zeros(len(f.pack), np.uint32) for f in stored]
    rows = (_joined([r[0] for r in cut_rows], back), _joined([r[1] for r in cut_rows], back)) if cut_rows else None
    return StoredPieces(pack[back], _joined([f.item for f in stored], back), _joined(parts, back), rows)


def _joined(arrays: Sequence[AnyArray], order: IntArray) -> AnyArray:
    return np.concatenate(arrays)[order] if arrays else np.empty(0, np.int64)


def _settled(lengths: npt.ArrayLike | Lengths, n: int | None) -> tuple[Lengths, int]:
    """Lengths as a plain array or the function, and how many items there are."""
    if callable(lengths):
        if n is None or n < 0:
            raise PlanError(f"expected n, the number of items, with a function for lengths, got {n}")
        return lengths, int(n)
    raw = np.asarray(lengths)
    raw = raw if raw.size else raw.astype(np.int64)
    if raw.dtype.kind not in "iu" or raw.ndim not in (1, 2) or not 0 <= (len(raw) if n is None else n) <= len(raw):
        raise PlanError(f"expected integer lengths [n] or [n, A], got {raw.dtype} {list(raw.shape)} with n={n}")
    return raw, len(raw) if n is None else int(n)


def _window(window: int | None, block: int, n: int) -> tuple[int, int]:
    if block < 1 or (window is not None and (window < block or window % block)):
        raise PlanError(f"expected a window that is a multiple of a block of at least 1, got {window} and {block}")
    window = (1 << 62) // block * block if window is None else window
    if min(window, n) >= _WIDEST:
        raise PlanError(f"expected windows of fewer than 2^31 items, got {min(window, n)}")
    return int(window), int(block)
