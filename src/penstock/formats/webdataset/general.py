"""Any archive of the webdataset library: each sample is a record, an episode of one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.core.arrays import BoolArray
from penstock.core.narrowing import is_array
from penstock.core.ragged import Ragged
from penstock.core.spec import Field, Spec
from penstock.core.text import counted
from penstock.errors import FormatError
from penstock.formats.base.account import Account, LeftOut
from penstock.formats.webdataset.content import Content, Places
from penstock.formats.webdataset.decoders import decoder, is_image, is_pickle
from penstock.formats.webdataset.reading import Archives, columns_of

NAME = "samples"
ENDS = "each sample is an episode of one step"


def read(archives: Archives) -> Content:
    """The dataset: arrays and numbers are columns of steps, text and bytes and ragged ones belong to episodes."""
    columns: dict[str, Places] = {}
    left_out: list[LeftOut] = []
    options = archives.options
    metadata: dict[str, Any] = {}
    present = archives.samples.size >= 0
    if not present.all():
        _check_adjacent(archives, present)
    if options.missing != "error":
        counts = {e: int(n) for e, n in zip(archives.samples.extensions, (~present).sum(1), strict=True) if n}
        metadata["missing"] = {"samples": int((~present).any(0).sum()), "members": counts}
    if options.missing == "leave_out":
        archives = replace(archives, samples=archives.samples.take(np.asarray(present.all(0))))
    samples = archives.samples
    for x, extension in enumerate(samples.extensions):
        if options.missing == "fill":
            rows = present[x]
            read_columns, left = _columns(replace(archives, samples=samples.take(np.asarray(rows))), extension)
            columns |= {path: places.among(rows) for path, places in read_columns.items()}
            flags = Field(np.dtype(np.bool_))
            columns[f"missing/{extension}"] = Places.of(flags, ~rows)
        else:
            read_columns, left = _columns(archives, extension)
            columns |= read_columns
        left_out += left
    if not columns:
        raise _without_columns(archives, left_out, metadata)
    spec = Spec({path: places.field for path, places in columns.items()})
    account = Account(tuple(left_out), ends=ENDS)
    return Content(NAME, spec, np.arange(len(samples) + 1), columns, samples, metadata, account=account)


def _check_adjacent(archives: Archives, present: BoolArray) -> None:
    """Raise `FormatError` if samples that lack members are parts of one, which stand apart in their archive."""
    samples = archives.samples
    rows = np.flatnonzero(~present.all(axis=0))
    key = np.unique(samples.keys[rows], return_inverse=True)[1].reshape(-1)
    order = np.lexsort((rows, samples.archive[rows], samples.shard[rows], key))
    rows, key = rows[order], key[order]
    one, other = rows[:-1], rows[1:]
    parts = (key[1:] == key[:-1]) & (samples.shard[one] == samples.shard[other])
    parts &= (samples.archive[one] == samples.archive[other]) & ~(present[:, one] & present[:, other]).any(axis=0)
    if parts.any():
        pair = (int(one[parts][0]), int(other[parts][0]))
        names = [
            " and ".join(e for e, is_there in zip(samples.extensions, present[:, i].tolist(), strict=True) if is_there)
            for i in pair
        ]
        message = f"expected the members of a sample next to each other, got {names[0]} apart from {names[1]}"
        advice = "sort the archive by name, as tar --sort=name does"
        where = f"sample {samples.key(pair[0])!r}"
        raise FormatError(f"{message}; {advice}", path=archives.paths[int(samples.shard[pair[0]])], where=where)


def _without_columns(archives: Archives, left_out: Sequence[LeftOut], metadata: dict[str, Any]) -> FormatError:
    if left_out:
        reasons = "; ".join(f"{entry.where}: {entry.message}" for entry in left_out)
        message = f"expected a value in every sample for at least one column, got none: {reasons}"
    else:
        why = "" if not metadata else f"; {metadata['missing']['samples']} samples lack a member"
        message = f"expected samples with names such as '0001.npy', found none{why}"
    return FormatError(message, path=archives.paths[0])


def _columns(archives: Archives, extension: str) -> tuple[dict[str, Places], list[LeftOut]]:
    """The columns of the members of one extension, which all samples have, and what cannot be one."""
    how = archives.options.how
    if decoder(extension, how) is None:
        return {extension: archives.raw(extension, "episode")}, []
    if how.ragged and is_image(extension):
        return _images(archives, extension), []
    placed = archives.placed(extension, "step")
    if placed is not None:
        return {extension: placed}, []
    values = archives.values(extension)
    read_columns, left = columns_of(values, "step", "episode")
    trusted = how.trust == "pickle" and is_pickle(extension)
    if "" in left and not trusted:
        odd = next((i for i, value in enumerate(values) if _kind(value) != _kind(values[0])), 0)
        message = "expected numbers, text, or arrays of one shape or one dimension in all samples, got others"
        hint = "give resize=, crop= or ragged=True, or leave them" if is_image(extension) else "leave them"
        raise archives.member(odd, extension).error(f"{message}; {hint} out with `extensions`")
    columns = {f"{extension}/{path}" if path else extension: places for path, places in read_columns.items()}
    return columns, [
        _left_out(archives, f"{extension}/{path}" if path else extension, values) for path, values in left.items()
    ]


def _left_out(archives: Archives, column: str, values: Sequence[Any]) -> LeftOut:
    """Why values, None where there is none, are no column."""
    absent = [i for i, value in enumerate(values) if value is None]
    if absent:
        first = archives.samples.key(absent[0])
        message = f"expected a value in every sample, got none or null in {counted(len(absent), 'sample')} of "
        return LeftOut("column", column, "other-length", f"{message}{len(values)}, first in {first!r}")
    kinds = list(dict.fromkeys(type(value).__name__ for value in values))
    message = "expected numbers, text, or arrays of one shape or one dimension in all samples"
    return LeftOut("column", column, "unsupported-dtype", f"{message}, got {' and '.join(kinds)}")


def _kind(value: object) -> object:
    return (value.dtype, value.shape) if is_array(value) else type(value)


def _images(archives: Archives, extension: str) -> dict[str, Places]:
    """Images of unequal sizes: their values in a ragged column, and `(height, width, channels)` of each."""
    values = archives.values(extension)
    shapes = np.array([(*value.shape, 1)[:3] for value in values], np.int64).reshape(-1, 3)
    pixels = Ragged.from_rows([value.reshape(-1) for value in values], np.dtype(np.uint8))
    return {
        f"{extension}/pixels": Places.of_ragged(Field(np.dtype(np.uint8), (), "episode", "ragged"), pixels),
        f"{extension}/shape": Places.of(Field(np.dtype(np.int64), (3,)), shapes),
    }
