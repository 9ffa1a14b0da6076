"""Any archive of the webdataset library: each sample is a record, an episode of one step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from penstock.core.narrowing import is_array
from penstock.core.ragged import Ragged
from penstock.core.spec import Field, Spec
from penstock.errors import FormatError
from penstock.formats.webdataset.content import Content
from penstock.formats.webdataset.decoders import decoder, is_image, is_pickle
from penstock.formats.webdataset.places import Places
from penstock.formats.webdataset.reading import Archives, columns_of

NAME = "samples"


def read(archives: Archives) -> Content:
    """The dataset: arrays and numbers are columns of steps, text and bytes and ragged ones belong to episodes.

    Objects that only a trusted pickle makes are no columns; `metadata["left_out"]` names their extension.
    A member `left.json` of dicts gives a column `left.json/<key>` for every key that all samples have. With
    `missing="fill"`, the column `missing/<extension>` says which samples lack the member.

    Raises `FormatError` for bad members, and for samples that lack one or have another kind of it.
    """
    columns: dict[str, Places] = {}
    left_out: list[str] = []
    options = archives.options
    metadata: dict[str, Any] = {}
    present = archives.samples.size >= 0
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
        why = "" if not metadata else f"; {metadata['missing']['samples']} samples lack a member"
        message = f"expected samples with names such as '0001.npy', found none{why}"
        raise FormatError(message, path=archives.paths[0])
    spec = Spec({path: places.field for path, places in columns.items()})
    metadata |= {"left_out": left_out} if left_out else {}
    return Content(NAME, spec, np.arange(len(samples) + 1), columns, samples, metadata)


def _columns(archives: Archives, extension: str) -> tuple[dict[str, Places], list[str]]:
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
    return columns, [f"{extension}/{path}" if path else extension for path in left]


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
