"""`ChessTensors`: which arrays of a batch are wanted, as the live stages ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.domains.chess.expansion import FILLED, PLANES, VALUES, InputFormat, Rows, expand
from penstock.domains.chess.planes import rule50_divisors
from penstock.domains.chess.values import outcomes
from penstock.errors import DataError
from penstock.formats.lc0.records import POLICY

Arrays = dict[str, AnyArray]
Form = tuple[tuple[int, ...], np.dtype[Any]]
Planes = Literal["float32", "float16", "uint8", "bits"]

THREE = ("planes", "probabilities", "values")
"""What Leela Chess Zero's loader gives, in its order."""

FIVE = ("planes", "probabilities", "winner", "best_q", "plies_left")
"""What its older Python parser gave, in its order."""

_OUTCOMES = ("winner", "best_q", "plies_left")


@dataclass(frozen=True)
class ChessTensors:
    """Which arrays `decode` makes of rows, and how.

    `outputs`: any of `planes`, `probabilities`, `values`, `winner`, `best_q`, `plies_left`, in the wanted order.
    `planes`: `float32`, `float16`, `uint8` or `bits`, the dtype of the planes. Planes of uint8 come with
    `rule50_divisor` `[n]` float32, by which plane 109 is to be divided; `bits` come with `fill` `[n, 8]` float32, see
    `planes.BitPlanes`. `input_format` as in `planes.planes`. Targets are float32.

    Raises `DataError` for names that do not exist or come twice.

    >>> wanted = ChessTensors("uint8", ("planes", "winner"))
    >>> frames = np.zeros((2, 8396), np.uint8)
    >>> frames[:, 4] = 1
    >>> {name: array.shape for name, array in wanted.decode(frames).items()}
    {'planes': (2, 112, 8, 8), 'winner': (2, 3), 'rule50_divisor': (2,)}
    """

    planes: Planes = "float32"
    outputs: tuple[str, ...] = THREE
    input_format: InputFormat = "record"

    def __post_init__(self) -> None:
        known = dict.fromkeys(THREE + FIVE)
        if not self.outputs or len(set(self.outputs)) != len(self.outputs) or not set(self.outputs) <= set(known):
            raise DataError(f"expected outputs, each once, of {tuple(known)}, got {self.outputs}")
        for name, of in (("planes", Planes), ("input_format", InputFormat)):
            if getattr(self, name) not in get_args(of):
                raise DataError(f"expected {name} to be one of {get_args(of)}, got {getattr(self, name)!r}")

    @property
    def forms(self) -> dict[str, Form]:
        """Of each array, by name and in order: the shape of a position and the dtype.

        >>> ChessTensors(outputs=("plies_left",)).forms
        {'plies_left': ((1,), dtype('float32'))}
        """
        bits = self.planes == "bits"
        shapes = {"probabilities": (POLICY,), "values": VALUES, "winner": (3,), "best_q": (3,), "plies_left": (1,)}
        out: dict[str, Form] = {name: (shapes.get(name, ()), np.dtype(np.float32)) for name in self.outputs}
        if "planes" in out:
            out["planes"] = (PLANES[:1], np.dtype(np.uint64)) if bits else (PLANES, np.dtype(self.planes))
            if bits:
                out["fill"] = ((FILLED,), np.dtype(np.float32))
            elif self.planes == "uint8":
                out["rule50_divisor"] = ((), np.dtype(np.float32))
        return out

    def buffers(self, n: int) -> Arrays:
        """Arrays for `n` positions, to be given to `decode`.

        >>> ChessTensors().buffers(3)["values"].shape
        (3, 6, 3)
        """
        return {name: np.empty((n, *shape), dtype) for name, (shape, dtype) in self.forms.items()}

    def decode(self, rows: Rows, out: Mapping[str, AnyArray] | None = None) -> Arrays:
        """The arrays of frames `[n, 8396]` uint8 or of compact rows, by name and in order, in the buffers `out` where
        there are some (of `n` positions each).

        Thread-safe. Raises `DataError` as `expand` does, and for buffers of another form. Cost: writing the arrays.
        """
        arrays = self.buffers(len(rows)) if out is None else self._checked(len(rows), out)
        parts = set(_OUTCOMES) & set(arrays)
        values = arrays.get("values")
        if parts and values is None:
            values = np.empty((len(rows), *VALUES), np.float32)
        expand(
            rows,
            planes=arrays.get("planes"),
            fill=arrays.get("fill"),
            probabilities=arrays.get("probabilities"),
            values=values,
            input_format=self.input_format,
        )
        if parts and values is not None:
            computed = outcomes(values)
            for name in parts:
                arrays[name][...] = getattr(computed, name)
        if "rule50_divisor" in arrays:
            arrays["rule50_divisor"][...] = rule50_divisors(rows, input_format=self.input_format)
        return arrays

    def _checked(self, n: int, out: Mapping[str, AnyArray]) -> Arrays:
        wanted = {name: ((n, *shape), dtype) for name, (shape, dtype) in self.forms.items()}
        given = {name: (array.shape, array.dtype) for name, array in out.items()}
        if given != wanted:
            raise DataError(f"expected buffers {wanted}, got {given}; buffers({n}) makes them")
        return {name: out[name] for name in wanted}
