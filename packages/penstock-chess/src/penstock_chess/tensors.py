"""`ChessTensors`: which arrays of a batch are wanted, as the live stages ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import DataError
from penstock_chess.expansion import FILLED, PLANES, VALUES, InputFormat, Rows, expand
from penstock_chess.formats.lc0.records import POLICY
from penstock_chess.planes import rule50_divisors
from penstock_chess.values import outcomes

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
    """Names, dtypes and order of the arrays that `decode` makes of frames or compact rows.

    Targets are float32. Planes of uint8 come with `rule50_divisor` `[n]` float32: divide plane 109 by it. `bits` come
    with `fill` `[n, 8]` float32, see `BitPlanes`.

    Args:
        planes: Dtype of the planes: `"float32"` (the default), `"float16"`, `"uint8"` or `"bits"`.
        outputs: Any of `planes`, `probabilities`, `values`, `winner`, `best_q` and `plies_left`, each at most once, in
            the wanted order. The default is `THREE`: planes, probabilities and values.
        input_format: `"record"` (the default) reads the input format of each record. `"reference"` takes all for input
            format 1, as the loader of Leela Chess Zero does.

    Raises:
        DataError: A name is unknown or repeated.

    Example:
        >>> tensors = ChessTensors("uint8", ("planes", "winner"))
        >>> frames = np.zeros((2, 8396), np.uint8)
        >>> frames[:, 4] = 1
        >>> {name: array.shape for name, array in tensors.decode(frames).items()}
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
        """Shape of a position and dtype of each array, by name and in order.

        Example:
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
        """Allocate arrays for `decode`.

        Args:
            n: Positions.

        Returns:
            Uninitialized arrays by name.

        Example:
            >>> ChessTensors().buffers(3)["values"].shape
            (3, 6, 3)
        """
        return {name: np.empty((n, *shape), dtype) for name, (shape, dtype) in self.forms.items()}

    def decode(self, rows: Rows, out: Mapping[str, AnyArray] | None = None) -> Arrays:
        """Decode positions. Thread-safe. Cost: writing the arrays.

        Args:
            rows: Frames `[n, 8396]` uint8, or `n` compact rows.
            out: Buffers for `n` positions, as `buffers` makes them. The default is None: new arrays.

        Returns:
            The arrays by name, in the order of `outputs`.

        Raises:
            DataError: Rows or buffers have another shape or dtype, a compact row is damaged, or an input format is
                unknown.
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
