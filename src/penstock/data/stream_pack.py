"""Packing of a stream of sequences with unknown lengths.

Sequences go to the fullest open pack that has room (best fit), as they arrive. At most `open_bins` packs are open, and
a pack closes at the latest after a fixed number of packs opened after it, so memory is bounded.

A state stores the origin of waiting sequences and no values: the state of the stream before the oldest block with a
waiting sequence, and three bits for each sequence since then. Loading reads these blocks again, and the flags restore
the open packs (`kernels.stream_packing`). An error while reading puts the stream back, so that no sequence is lost.

Batches are gathered from the waiting blocks into reused memory, once for each column.
"""

from __future__ import annotations

import base64
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, IntArray
from penstock.core.blocks import BlockIterator, BlockOrigin, IteratorState, concatenated
from penstock.core.boundary import parsing_state
from penstock.core.columns import Columns
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.recycler import Recycler
from penstock.data.lengths import LengthsFile
from penstock.data.stream_items import Items, PackOptions, Passed, StreamAxis, items_of, row_lengths
from penstock.errors import SpecError, StateError
from penstock.kernels.rows import RowMap
from penstock.kernels.spans import paint
from penstock.kernels.stream_packing import FAR, OPENED, OUT, open_packs, pack_stream, repack_stream

_FLAGS = (OUT, OPENED, FAR)
LEAST = 1024  # rows that are read at a time: smaller blocks are joined, so that none is too small to be worth a call
RECYCLED_BYTES = 256 << 20


@dataclass(frozen=True)
class StreamPack:
    """Factory of the iterators of `IterDataset.pack`."""

    upstream: BlockOrigin
    options: PackOptions

    @property
    def fingerprint(self) -> str:
        return f"{self.upstream.fingerprint}/pack{self.options.key}"

    def __call__(self) -> PackIterator:
        """Return a new iterator, at the start."""
        return PackIterator(self.upstream(), self.options, self.upstream.fingerprint)


@dataclass(eq=False)
class _WaitingBlock:
    """A block with waiting sequences: the state and counts before it, its items, and the pack and flags of each item.

    The first `taken` items are packed.
    """

    before: IteratorState
    passed: Passed
    columns: Columns
    items: Items
    pack: IntArray = field(init=False)
    flags: ByteArray = field(init=False)
    taken: int = 0

    def __post_init__(self) -> None:
        self.pack = np.full(len(self.items.row), -1)
        self.flags = np.zeros(len(self.items.row), np.uint8)

    @property
    def out(self) -> bool:
        return self.taken == len(self.flags) and bool(np.all(self.flags & OUT))


class PackIterator(BlockIterator):
    """Iterator over blocks of packs; see `IterDataset.pack`.

    A state is the state of the stream before the oldest block with a waiting sequence. It also stores, for each
    sequence since, whether it was returned and whether it opened its pack (compressed, some hundred bytes to some kB).
    The open packs follow from these flags: see `penstock.kernels.stream_packing`.
    """

    def __init__(self, upstream: BlockIterator, options: PackOptions, fingerprint: str) -> None:
        self._upstream = upstream
        self._options = options
        self._fingerprint = fingerprint
        self._recycler = Recycler(RECYCLED_BYTES)
        self._start(Passed())

    def _start(self, passed: Passed) -> None:
        self.passed = passed
        self._held: deque[_WaitingBlock] = deque()
        self._axes: tuple[StreamAxis, ...] = ()
        self._open: Any = None
        self._file: LengthsFile | None = None
        self._ended = False
        self._to_restore: IteratorState | None = None

    def __next__(self) -> Columns:
        self._restore()
        closed = self._closed()
        if len(closed) == 0:
            raise StopIteration
        blocks = list(self._held)
        chosen, row = _members(blocks, closed)
        columns = self._columns(blocks, chosen, row, len(closed))
        while self._held and self._held[0].out:
            self._held.popleft()
        return columns

    def _closed(self) -> IntArray:
        """Serial numbers of the next packs, at most a block of them."""
        closed, done = np.empty(self._options.rows, np.int64), 0
        while done < len(closed):
            block = self._untaken()
            if block is None:
                done += self._rest(closed[done:]) if self._axes else 0
                break
            rows = block.taken
            taken, more = self._pack(block.items.sizes[rows:], closed[done:], block.pack[rows:], block.flags[rows:])
            block.taken, done = rows + taken, done + more
        return closed[:done]

    def _rest(self, closed: IntArray) -> int:
        none = np.zeros(0, np.int64)
        sizes = np.zeros((0, len(self._axes)), np.int64)
        return self._pack(sizes, closed, none, none.astype(np.uint8), final=True)[1]

    def _pack(
        self, sizes: IntArray, closed: IntArray, pack: IntArray, flags: ByteArray, final: bool = False
    ) -> tuple[int, int]:
        return pack_stream(self._open, sizes, final, pack, flags, closed)

    def _untaken(self) -> _WaitingBlock | None:
        """The block with the next sequence, or None at the end of the stream."""
        while not self._held or self._held[-1].taken == len(self._held[-1].flags):
            if not self._read():
                return None
        return self._held[-1]

    def _read(self) -> bool:
        """Read one block, or several small ones. Return False at the end of the stream."""
        if self._ended:
            return False
        before = self._upstream.state_dict()
        try:
            return self._read_from(before)
        except BaseException:
            self._upstream.load_state_dict(before)  # the items are not lost: the next call reads them again
            self._ended = False
            raise

    def _read_from(self, before: IteratorState) -> bool:
        parts: list[Columns] = []
        while sum(part.n for part in parts) < LEAST and not self._ended:
            block = next(self._upstream, None)
            self._ended = block is None
            if block is not None and block.n:
                self._begin(block)
                parts.append(self._wanted(block))
        if parts:
            self._take_in(before, concatenated(parts))
        if self._ended and self._file is not None:
            self._file.finish(self.passed.sequences)
        return not self._ended or bool(parts)

    def _begin(self, block: Columns) -> None:
        """Set the axes and the packs from the first block."""
        if self._axes:
            return
        self._axes = axes = self._options.axes(block)
        capacity = np.array([axis.capacity for axis in axes], np.int64)
        self._open = open_packs(capacity, self._options.most, self._options.open_bins, self._options.age)
        if self._options.lengths is not None:
            names = [path for axis in axes for path in axis.columns[:1]]
            self._file = LengthsFile(self._options.lengths, names, self._fingerprint)

    def _wanted(self, block: Columns) -> Columns:
        paths = [*(path for axis in self._axes for path in axis.columns), *self._options.keep]
        missing = [path for path in paths if path not in block.flat]
        if missing:
            raise SpecError(f"expected the columns {paths} in every block, got none of {missing}")
        return Columns({path: block.flat[path] for path in paths}, block.n)

    def _take_in(self, before: IteratorState, columns: Columns) -> None:
        lengths = row_lengths(columns, self._axes, self.passed.sequences)
        items, passed = items_of(lengths, self._axes, self._options.overlong, self.passed)
        if self._file is not None:
            self._file.write(self.passed.sequences, lengths)
        self._held.append(_WaitingBlock(before, self.passed, columns, items))
        self.passed = passed

    def _columns(self, blocks: Sequence[_WaitingBlock], chosen: IntArray, row: IntArray, n: int) -> Columns:
        """Columns of the `chosen` items of the blocks. Their places are the rows `row`, in that order."""
        cuts = offsets_of([len(block.flags) for block in blocks])
        block = np.searchsorted(cuts, chosen, side="right") - 1
        sizes, starts, skipped, rows = (
            np.concatenate([getattr(b.items, name) for b in blocks])[chosen]
            for name in ("sizes", "starts", "skipped", "row")
        )
        first = np.searchsorted(row, np.arange(n))
        segment = np.arange(len(row)) - first[row] + 1
        columns: dict[str, Array] = {}
        for a, axis in enumerate(self._axes):
            length, shape = np.ascontiguousarray(sizes[:, a]), (n, axis.capacity)
            begin = np.cumsum(length) - length
            places = begin - begin[first][row] + row * axis.capacity
            for path in axis.columns:
                columns[path] = self._gathered(path, blocks, block, starts[:, a], length, places, shape)
            position = np.ascontiguousarray(skipped[:, a]) if self._options.positions == "continue" else row * 0
            for name, first_value, slope in zip(axis.marks, (segment, position), (0, 1), strict=True):
                columns[name] = marks = self._recycler.empty(shape, np.dtype(np.int32))
                paint(places, length, first_value, slope, marks.reshape(-1))
        for path in self._options.keep:
            offsets = offsets_of([b.columns.n for b in blocks])
            values = np.concatenate([b.columns[path] for b in blocks])[offsets[block] + rows]
            columns[path] = Ragged(values, np.append(first, len(row)))
        return Columns.of_flat(columns, n)

    def _gathered(
        self,
        path: str,
        blocks: Sequence[_WaitingBlock],
        block: IntArray,
        start: IntArray,
        length: IntArray,
        destination: IntArray,
        shape: tuple[int, int],
    ) -> AnyArray:
        """Values of one column, `[n, capacity, ...]`, in native byte order. Padding is read from one more block."""
        block_values = [b.columns.ragged(path).values for b in blocks]
        values = [np.ascontiguousarray(v, v.dtype.newbyteorder("=")) for v in block_values]
        inner, dtype = values[0].shape[1:], values[0].dtype
        if any(v.shape[1:] != inner or v.dtype != dtype for v in values):
            kinds = sorted({f"{v.dtype}{list(v.shape[1:])}" for v in values})
            raise SpecError(f"expected {path} to be the same in every block, got {kinds}")
        used = np.bincount(destination // shape[1], length, shape[0]).astype(np.int64)
        padded = np.flatnonzero(used < shape[1])
        values.append(np.full((shape[1] if len(padded) else 0, *inner), self._options.padding(path, dtype), dtype))
        counts = np.array([len(v) for v in values], np.int64)
        which = np.arange(len(values))
        width = dtype.itemsize * int(np.prod(inner, dtype=np.int64))
        rows = RowMap.build([v.reshape(-1).view(np.uint8) for v in values], counts, which, which * 0, width)
        out = self._recycler.empty((shape[0] * shape[1], *inner), dtype)
        rows.gather(
            np.append(start + rows.first[block], np.full(len(padded), rows.first[-2])),
            np.append(length, shape[1] - used[padded]),
            np.append(destination, padded * shape[1] + used[padded]),
            out.reshape(-1).view(np.uint8),
        )
        return out.reshape(*shape, *inner)

    def state_dict(self) -> IteratorState:
        """Return the position. Cost: 10 ns for each sequence since the oldest waiting one."""
        if self._to_restore is not None:
            return self._to_restore
        first = self._held[0] if self._held else None
        flags = [block.flags[: block.taken] for block in self._held]
        packed = np.concatenate([*flags, np.zeros(0, np.uint8)])
        return {
            "upstream": first.before if first else self._upstream.state_dict(),
            "passed": asdict(first.passed if first else self.passed),
            "taken": len(packed),
            "flags": base64.b64encode(zlib.compress(_planes(packed).tobytes(), 1)).decode("ascii"),
        }

    def load_state_dict(self, state: IteratorState) -> None:
        """Continue from a saved state. The next block reads the waiting sequences again."""
        passed, flags = _checked(state)
        self._upstream.load_state_dict(state["upstream"])
        self._start(passed)
        self._to_restore = state if len(flags) else None

    def _restore(self) -> None:
        """Read the waiting sequences again, and restore the open packs."""
        if self._to_restore is None:
            return
        _, flags = _checked(self._to_restore)
        self._to_restore = None
        while len(flags):
            if not self._read():
                raise StateError(f"expected {len(flags)} more sequences in the stream, which has changed since")
            block = self._held[-1]
            block.taken = taken = min(len(flags), len(block.flags))
            block.flags[:taken] = flags[:taken]
            sizes, flags = block.items.sizes[:taken], flags[taken:]
            if repack_stream(self._open, sizes, block.flags[:taken], block.pack[:taken]) >= 0:
                raise StateError("expected the sequences that the state was saved with; the stream has changed since")


def _members(blocks: Sequence[_WaitingBlock], closed: IntArray) -> tuple[IntArray, IntArray]:
    """Items of closed packs, in the order of packs and then of the stream, and the pack of each.

    Items are counted over all blocks. They are marked as returned.
    """
    lo, hi = int(closed.min()), int(closed.max())
    place = np.full(hi - lo + 2, -1)
    place[closed - lo] = np.arange(len(closed))
    pack = np.concatenate([block.pack for block in blocks])
    pack -= lo  # those below become huge: the last place stands for all outside
    row = place[np.minimum(pack.view(np.uint64), hi - lo + 1, dtype=np.uint64).view(np.int64)]
    out = row >= 0
    cuts = offsets_of([len(block.flags) for block in blocks])
    for block, a, b in zip(blocks, cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        block.flags[out[a:b]] |= OUT
    chosen = np.flatnonzero(out)
    order = np.argsort(row[chosen], kind="stable")
    return chosen[order], row[chosen][order]


def _checked(state: IteratorState) -> tuple[Passed, ByteArray]:
    names = {"upstream", "passed", "taken", "flags"}
    if set(state) != names or type(state["taken"]) is not int or state["taken"] < 0:
        raise StateError(f"expected a state with {sorted(names)}, got {sorted(state)}")
    taken, passed = state["taken"], state["passed"]
    with parsing_state("PackIterator"):
        counted = Passed(**passed)
        raw = zlib.decompressobj().decompress(base64.b64decode(state["flags"], validate=True), 3 * (taken // 8 + 1) + 1)
        planes = np.frombuffer(raw, np.uint8).reshape(3, -(-taken // 8))
    if any(type(n) is not int or n < 0 for n in asdict(counted).values()):
        raise StateError(f"expected counts >= 0, got {passed}")
    bits = np.unpackbits(planes, axis=1, count=taken)
    return counted, (bits * np.array(_FLAGS, np.uint8)[:, None]).sum(axis=0, dtype=np.uint8)


def _planes(flags: ByteArray) -> ByteArray:
    """`[3, bytes]`: one bit a sequence for each flag."""
    return np.packbits(np.stack([flags & flag for flag in _FLAGS]).astype(np.bool_), axis=1)
