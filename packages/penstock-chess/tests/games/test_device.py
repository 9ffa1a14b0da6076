"""Rows become tensors on a device by plain operations of PyTorch: the same bits as on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from penstock.core.ragged import Ragged
from penstock.errors import DataError
from penstock_chess.compact import encode
from penstock_chess.device import TorchTensors, Wire
from penstock_chess.tensors import FIVE, THREE, ChessTensors

ALL = tuple(dict.fromkeys(THREE + FIVE))


def same(tensors: dict[str, torch.Tensor], arrays: dict[str, Any]) -> None:
    assert list(tensors) == list(arrays)
    for name, array in arrays.items():
        got = tensors[name].numpy()
        assert (got.shape, got.dtype) == (array.shape, array.dtype)
        if name in ("winner", "best_q"):  # computed: which NaN comes out of one is the device's own
            np.testing.assert_array_equal(got, array)
        else:
            assert got.tobytes() == array.tobytes(), name


@pytest.mark.parametrize("input_format", ["record", "reference"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "bits"])
def test_the_same_bits(dtype: Any, input_format: Any, mixed: Any, garbage: Any) -> None:
    wanted = ChessTensors(dtype, ALL, input_format)
    expand = TorchTensors(wanted)
    for rows in (mixed, garbage, np.concatenate([garbage[:5], mixed, garbage[5:]]), mixed[:0], mixed[:1], mixed[:2]):
        same(expand(encode(rows)), wanted.decode(rows))


def test_rows_without_moves_or_planes(garbage: Any) -> None:
    """A last row that is its header alone: nothing is read behind it."""
    rows = np.zeros((2, 8396), np.uint8)
    rows[:, 8:7440] = np.full(1858, -1, "<f4").view(np.uint8)
    rows[:, 4] = 1
    compact = encode(rows)
    assert compact.lengths.tolist() == [120, 120]
    same(TorchTensors()(compact), ChessTensors().decode(rows))


@pytest.mark.parametrize("outputs", [("values",), ("winner", "planes"), ("probabilities",), FIVE])
def test_only_what_is_wanted(outputs: tuple[str, ...], mixed: Any) -> None:
    wanted = ChessTensors("uint8", outputs)
    same(TorchTensors(wanted)(encode(mixed)), wanted.decode(mixed))


def test_rows_may_be_used_again_at_once(mixed: Any) -> None:
    rows = encode(mixed)
    expand = TorchTensors()
    wire = expand.sent(rows)
    rows.values[:] = 0
    same(expand.expanded(wire), ChessTensors().decode(mixed))


def test_shapes_wait_for_no_value(mixed: Any, garbage: Any) -> None:
    """On a device without values everything that would have to ask for one fails."""
    wanted = ChessTensors("float16", ALL)
    for rows in (mixed, garbage):
        wire = TorchTensors(wanted).sent(encode(rows))
        nowhere = Wire(wire.values.to("meta"), wire.offsets.to("meta"), wire.moves)
        got = TorchTensors(wanted, "meta").expanded(nowhere)
        assert {name: tuple(t.shape) for name, t in got.items()} == {
            name: (len(rows), *shape) for name, (shape, _) in wanted.forms.items()
        }


def test_damaged_rows_are_refused_before_they_are_sent(mixed: Any) -> None:
    good = encode(mixed[:1]).blobs()[0]
    with pytest.raises(DataError, match="expected row 1 as"):
        TorchTensors().sent(Ragged.from_bytes([good, good[:-8]]))
    rows = mixed[:2].copy()
    rows[1, 4] = 77
    with pytest.raises(DataError, match="got 77 in row 1"):
        TorchTensors().sent(encode(rows))
    assert TorchTensors(ChessTensors(input_format="reference"))(encode(rows))["planes"].shape[0] == 2


def test_pinning_is_for_cuda() -> None:
    assert TorchTensors().pin is False
    assert TorchTensors(pin=True).pin is True
