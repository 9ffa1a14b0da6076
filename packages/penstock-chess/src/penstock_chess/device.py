"""`TorchTensors`: compact rows go to a device as they are, and become tensors there, by plain operations of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.ragged import Ragged
from penstock.errors import require
from penstock_chess.expansion import PLANES, VALUES, bad_row, levels, row_bytes
from penstock_chess.formats.lc0.records import POLICY
from penstock_chess.kernels import layout
from penstock_chess.kernels.rows import check_rows
from penstock_chess.tensors import ChessTensors

if TYPE_CHECKING:
    import torch
else:
    torch = require("torch", "torch")

Tensors = dict[str, "torch.Tensor"]

_STORED, _STEP = layout.STORED, layout.STEP
_LONGS = layout.HEADER // 8  # words of 8 bytes before the planes


class Wire(NamedTuple):
    """Compact rows on a device: `values` uint8 and `offsets` `[n + 1]` int64; `moves`, how many are stored in all,
    which the host has counted, so that no shape waits for the device."""

    values: torch.Tensor
    offsets: torch.Tensor
    moves: int


class TorchTensors:
    """Makes the tensors of `wanted` from compact rows, on `device` (the CPU where none is named).

    The host checks rows, copies them as they are (some 420 bytes a position instead of 36 176) and starts the work in
    the order of the current stream; nothing waits for the device. `pin` copies through page-locked memory, by default
    exactly where `device` is a CUDA device. The same bits as `ChessTensors.decode`; bit planes are torch.uint64.
    Winners are computed in float64, so a device has to have it for those.
    """

    def __init__(
        self,
        wanted: ChessTensors = ChessTensors(),  # noqa: B008 - frozen
        device: str | torch.device | None = None,
        *,
        pin: bool | None = None,
    ) -> None:
        self.wanted = wanted
        self.device = torch.device("cpu" if device is None else device)
        self.pin = self.device.type == "cuda" if pin is None else pin
        self._forced = 1 if wanted.input_format == "reference" else 0
        self._constants(wanted)

    def _constants(self, wanted: ChessTensors) -> None:
        """Constants of the work besides rows, made once: nothing else is sent with a batch."""
        byte = np.arange(256, dtype=np.uint8)
        mirrored = np.packbits(np.unpackbits(byte[:, None], axis=1, bitorder="little"), axis=1)[:, 0]
        dtype = np.dtype(np.float32 if wanted.planes == "bits" else wanted.planes)
        table = levels(dtype).astype(f"u{dtype.itemsize}").view(dtype)
        words = np.maximum(np.array(layout.TARGETS), 0) // 4 + 6  # the tail begins with word 6 of the header
        self._mirrored, self._table, self._targets, self._shifts, self._places, self._longs = (
            torch.as_tensor(array).to(self.device)
            for array in (
                mirrored.astype(np.int64),
                table.ravel(),
                words,
                np.arange(8, dtype=np.uint8),
                np.arange(7, -1, -1, dtype=np.uint8),
                np.arange(_LONGS),
            )
        )

    def __call__(self, rows: Ragged) -> Tensors:
        """The tensors of `rows`, by name and in order of `wanted.forms`."""
        return self.expanded(self.sent(rows))

    def sent(self, rows: Ragged) -> Wire:
        """Rows on the device, or under way to it. Cost: a look at each row's header and moves, and the copy."""
        values, offsets = row_bytes(rows)
        bad = check_rows(values, offsets, self._forced)
        if bad >= 0:
            raise bad_row(rows, bad)
        heads = values[offsets[:-1, None] + np.arange(22, 24)]
        return Wire(self._moved(values), self._moved(offsets), int(heads.astype(np.int64).sum(axis=0) @ (1, 256)))

    def _moved(self, array: AnyArray) -> torch.Tensor:
        """On the device; on the CPU a copy, for the rows may be used again before it is."""
        tensor = torch.empty(array.shape, dtype=_DTYPES[array.dtype.str], pin_memory=self.pin)
        tensor.numpy()[...] = array
        return tensor.to(self.device, non_blocking=self.pin)

    def expanded(self, wire: Wire) -> Tensors:
        """The tensors of rows that are on the device. No shape depends on their values, so nothing waits."""
        longs = wire.values.view(torch.int64)
        start = wire.offsets[:-1] // 8
        heads = longs[start[:, None] + self._longs]
        tensors: Tensors = {}
        wanted = self.wanted.forms
        if "planes" in wanted:
            tensors |= self._planes(longs, start, heads)
        if "probabilities" in wanted:
            tensors["probabilities"] = self._policy(wire, heads)
        if wanted.keys() & {"values", "winner", "best_q", "plies_left"}:
            tensors |= self._values(heads)
        return {name: tensors[name] for name in wanted}

    def _planes(self, longs: torch.Tensor, start: torch.Tensor, heads: torch.Tensor) -> Tensors:
        kind = heads.view(torch.int32)[:, 1].long()
        kind = torch.ones_like(kind) if self._forced else kind
        last, fill, divisor = self._last_planes(heads.view(torch.uint8)[:, 24:31].long(), kind)
        words = torch.cat([self._history(longs, start, heads), last], dim=1)
        if self.wanted.planes == "bits":
            return {"planes": words.view(torch.uint64), "fill": fill}
        squares = (words.view(torch.uint8).view(-1, *PLANES[:2], 1) >> self._places) & 1
        planes = squares.to(fill.dtype)
        planes[:, _STORED:] *= fill[:, :, None, None]
        return {"planes": planes, "rule50_divisor": divisor}

    def _history(self, longs: torch.Tensor, start: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
        """`[n, 104]` int64: plane `p` is the stored word of the last changed one of `p`, `p - 13`, `p - 26`, ..."""
        n = len(heads)
        marks = heads.view(torch.uint8)[:, 8:21]
        changed = ((marks[:, :, None] >> self._shifts) & 1).view(n, _STORED).long()
        number = changed * changed.cumsum(1)  # counted from 1; 0 where nothing is stored
        number = number.view(n, _STORED // _STEP, _STEP).cummax(1).values.view(n, _STORED)
        places = (start[:, None] + _LONGS - 1 + number).clamp(max=len(longs) - 1)
        return torch.where(number > 0, longs[places], 0)

    def _last_planes(self, tail: torch.Tensor, kind: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`[n, 8]` words and values of planes 104 to 111, and `[n]` what their count is to be divided by."""
        plain = kind == layout.NUMBERED
        canonical = kind > 2
        hecto = kind > 3
        mirrored = self._mirrored[tail[:, :5]]
        rooks = mirrored[:, :2] | (mirrored[:, 2:4] << 56)
        full, none = torch.full_like(kind, -1), torch.zeros_like(kind)
        black = (kind >= 128) & (tail[:, 6] >= 128)
        words = [
            *(torch.where(plain, full, rooks[:, side]) for side in range(2)),
            *(torch.where(plain, full, none),) * 2,
            torch.where(canonical, mirrored[:, 4] << 56, full),
            full,
            torch.where(black, full, none),
            full,
        ]
        ones = torch.ones_like(tail[:, :1])
        entry = torch.cat([tail[:, :6], ones, ones], dim=1)
        entry[:, :4] = torch.where(plain[:, None], entry[:, :4], 1)
        entry[:, 4] = torch.where(canonical, 1, entry[:, 4])
        entry[:, 5] += torch.where(hecto, 512, 256)
        divisor = 99 + hecto.to(torch.float32)
        return torch.stack(words, dim=1), self._table[entry], divisor

    def _policy(self, wire: Wire, heads: torch.Tensor) -> torch.Tensor:
        n, total = len(heads), wire.moves
        head = heads.view(torch.uint8).long()
        flags, moves = head[:, 116], head[:, 22] + 256 * head[:, 23]
        begin = wire.offsets[:-1] + layout.HEADER + 8 * head[:, 21] + 16 * (flags & layout.RESERVED)
        row = torch.repeat_interleave(torch.arange(n, device=self.device), moves, output_size=total)
        place = torch.arange(total, device=self.device) - (moves.cumsum(0) - moves)[row]
        shorts, ints = wire.values.view(torch.int16), wire.values.view(torch.int32)
        places = ((begin + 4 * moves)[row] // 2 + place).clamp(max=len(shorts) - 1)  # beyond, where all are stored
        move = torch.where((flags & layout.DENSE)[row] > 0, place, shorts[places].long())
        out = torch.full((n * POLICY,), layout.ILLEGAL - 2**32, dtype=torch.int32, device=self.device)
        out.scatter_(0, row * POLICY + move, ints[begin[row] // 4 + place])
        return out.view(torch.float32).view(n, POLICY)

    def _values(self, heads: torch.Tensor) -> Tensors:
        words = heads.view(torch.int32)[:, self._targets]
        words[:, -1] = layout.NAN
        values = words.view(torch.float32).view(-1, *VALUES)
        exact = values[:, :2, :2].double()
        q, d = exact[..., 0], exact[..., 1]
        chances = torch.stack([0.5 * (1 - d + q), d, 0.5 * (1 - d - q)], dim=2).float()
        return {
            "values": values,
            "winner": chances[:, 0].contiguous(),
            "best_q": chances[:, 1].contiguous(),
            "plies_left": values[:, 0, 2:3].contiguous(),
        }


_DTYPES = {"|u1": torch.uint8, "<i8": torch.int64}
