"""`DerivedColumn`: a column that a function computes from whole episodes, and checks of what the function returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray
from penstock.core.columns import under
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import ALIGNS, Align, Field, Spec
from penstock.data.episode_function import EpisodeFunction, EpisodeRows
from penstock.data.function_digest import FunctionDigest
from penstock.data.names import name_of
from penstock.errors import ArgumentError, DataError, PenstockError, SpecError
from penstock.formats.base.source import Source
from penstock.plan.base import chained

PerEpisode = Callable[[Episode], Any]


@dataclass(frozen=True, repr=False)
class DerivedColumn:
    """Column that a function computes from whole episodes."""

    name: str
    function: PerEpisode | EpisodeFunction
    field: Field
    digest: str
    cast: bool
    reads: tuple[str, ...] = dataclass_field(compare=False)

    def __repr__(self) -> str:
        return f"with_column({self.name!r}, {_text(self.function)})"

    @property
    def fingerprint(self) -> str:
        """Digest of the function and of the field. Equal for equal values, under any name."""
        return chained(self.digest, self.field.to_json())

    @classmethod
    def of(
        cls,
        source: Source,
        name: str,
        function: PerEpisode | EpisodeFunction,
        align: Align | None = None,
        version: str | int | None = None,
        dtype: npt.DTypeLike | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> DerivedColumn:
        """Describe a new column of a source. `EpisodeDataset.with_column` describes the arguments."""
        _check_name(name, source.spec)
        if align is not None and align not in ALIGNS:
            raise ArgumentError(f"expected align to be one of {ALIGNS}, got {align!r}")
        if isinstance(function, EpisodeFunction):
            if align not in (None, function.align) or shape not in (None, function.shape):
                raise ArgumentError(
                    f"expected align={function.align!r} and shape={function.shape} of {function!r}, or none, "
                    f"got align={align!r} and shape={shape}"
                )
            function.check(source.spec)
            column_field = Field(np.dtype(dtype or function.dtype), function.shape, function.align)
            digest, reads = FunctionDigest.of(function.compute, version).text, tuple(function.columns)
            return cls(name, function, column_field, digest, True, reads)
        if not callable(function):
            raise ArgumentError(f"expected a function of an episode for column {name!r}, got {function!r}")
        digest = FunctionDigest.of(function, version).text
        if dtype is not None and shape is not None:
            column_field = Field(np.dtype(dtype), shape, align or "step")
            return cls(name, function, column_field, digest, True, tuple(source.spec))
        return _from_first(source, name, function, align or "step", digest, dtype)

    def compute(self, rows: EpisodeRows) -> AnyArray:
        offsets = rows.offsets(self.field.align)
        if isinstance(self.function, EpisodeFunction):
            place = f"episodes {rows.first} to {rows.last - 1}"
            value = _array(self.name, self.function.compute, rows, place)
            return self._fitting(value, int(offsets[-1]), place).astype(self.field.dtype, copy=False)
        out = np.empty((int(offsets[-1]), *self.field.shape), self.field.dtype)
        for i, (begin, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
            place = f"episode {rows.first + i}"
            value = _array(self.name, self.function, rows.episode(i), place)
            value = value[None] if self.field.align == "episode" else value
            out[begin:end] = self._fitting(value, end - begin, place)
        return out

    def _fitting(self, value: AnyArray, rows: int, place: str) -> AnyArray:
        """The values as they are, if they fit the field."""
        _check_rows(self.name, self.field.align, value, rows, place)
        if value.shape[1:] != self.field.shape:
            raise SpecError(
                f"expected {self.name!r} with rows of shape {self.field.shape}, got {value.shape[1:]} - at {place}"
            )
        same = value.dtype == self.field.dtype
        if not same and not (self.cast and np.can_cast(value.dtype, self.field.dtype, "same_kind")):
            raise SpecError(
                f"expected {self.name!r} as {self.field.dtype}, got {value.dtype} - at {place}; return one dtype, or "
                "give dtype= to convert"
            )
        return value


def _text(function: PerEpisode | EpisodeFunction) -> str:
    return repr(function) if isinstance(function, EpisodeFunction) else name_of(function)


def _from_first(
    source: Source, name: str, function: PerEpisode, align: Align, digest: str, dtype: npt.DTypeLike | None
) -> DerivedColumn:
    """Find dtype and shape from the first episode."""
    if len(source) == 0:
        raise SpecError(
            f"expected an episode to find the dtype and shape of {name!r}, got an empty dataset; give dtype= and shape="
        )
    rows, place = EpisodeRows(source, 0, 1), "episode 0"
    value = _array(name, function, rows.episode(0), place)
    if align == "episode":
        value = value[None]
    _check_rows(name, align, value, int(rows.offsets(align)[-1]), place)
    column_field = Field(np.dtype(dtype or value.dtype), value.shape[1:], align)
    return DerivedColumn(name, function, column_field, digest, dtype is not None, rows.columns_read)


def _array(name: str, function: Callable[[Any], Any], argument: object, place: str) -> AnyArray:
    try:
        result = function(argument)
    except PenstockError:
        raise
    except Exception as error:
        raise DataError(
            f"expected column {name!r} from {name_of(function)}, got {type(error).__name__}: {error} - at {place}"
        ) from error
    try:
        value = np.asarray(None) if isinstance(result, Ragged) else np.asarray(result)
    except ValueError:  # rows of unequal lengths
        value = np.asarray(None)
    if value.dtype.hasobject:
        raise SpecError(
            f"expected an array of numbers with rows of one shape for column {name!r}, got {type(result).__name__} "
            f"{_preview(result)} - at {place}"
        )
    return value


def _preview(result: object) -> str:
    text = repr(result)
    return text if len(text) <= 100 else text[:97] + "..."


def _check_rows(name: str, align: Align, value: AnyArray, rows: int, place: str) -> None:
    if value.ndim and len(value) == rows:
        return
    wanted = {"step": "one for each step", "boundary": "one for each step and one more", "episode": "one"}[align]
    got = f"{len(value)}" if value.ndim else "a single number"
    raise SpecError(f"expected {rows} rows of {name!r} ({wanted}, align={align!r}), got {got} - at {place}")


def _check_name(name: object, spec: Spec) -> None:
    if not isinstance(name, str) or not name or any(not part for part in name.split("/")):
        raise ArgumentError(f"expected the path of a new column, such as 'returns', got {name!r}")
    taken = [path for path in spec if under(name, path) or under(path, name)]
    if taken:
        raise SpecError(f"expected a new column, got {name!r}, and {taken[0]!r} exists; choose another name")
