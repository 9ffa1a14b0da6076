"""ALOHA's and ACT's HDF5 files: an episode a file, with `action` and a group `observations`.

Mobile ALOHA compresses images (attribute `compress`): each row is the bytes of a JPEG, with zeros up to the longest.
`compress_len` has their lengths in an order that no file says, so the zeros are cut off instead. `cv2.imencode` took
the arrays for BGR, whatever their order, and `cv2.imdecode` gives them back in the same order, on which ACT trains.

Source: ACT and Mobile ALOHA, `record_sim_episodes.py`, `aloha_scripts/record_episodes.py` and `utils.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from typing_extensions import override

from penstock.containers.hdf5 import Dataset, File, Group
from penstock.containers.images import decode_into, read_header
from penstock.core.arrays import ByteArray, IntArray
from penstock.core.cache import Cache
from penstock.core.spec import Field
from penstock.errors import FormatError
from penstock.files.remote import Wanted
from penstock.formats.base.account import Account
from penstock.formats.base.pieces import RemoteRows, RowReader
from penstock.formats.demos.hdf5 import (
    DECODED,
    HDF5Kind,
    Segments,
    attribute,
    behind_the_end,
    column,
    datasets_below,
    leads_to,
    misfit,
    numbers,
    row_shape,
)
from penstock.formats.demos.source import DemoColumn, DemoSource, held

Order = Literal["bgr", "rgb"]

ACTIONS = ("action", "actions")
REWARDS = ("reward", "rewards")
LENGTHS = "compress_len"  # of JPEG images, which say it themselves
IMAGES = "observations/images/"


class AlohaKind(HDF5Kind):
    """An HDF5 file an episode, as ALOHA and ACT record them. See docs/formats/demos.md."""

    name: ClassVar[str] = "aloha"
    description: ClassVar[str] = "ALOHA and ACT HDF5 (action, observations/qpos, observations/images/...)"
    options: ClassVar[tuple[str, ...]] = ("jpeg_order", "cache_bytes")

    @override
    def has_layout(self, root: Group) -> bool:
        """Whether the root has actions and a group of observations."""
        return any(leads_to(root, name, Dataset) for name in ACTIONS) and leads_to(root, "observations", Group)

    def open(self, path: Path, **options: Any) -> DemoSource:
        """As `read_aloha` does, with its options."""
        return read_aloha(path, **options)


def read_aloha(path: Path, *, jpeg_order: Order = "bgr", cache_bytes: int = DECODED) -> DemoSource:
    if jpeg_order not in get_args(Order):
        raise TypeError(f"expected jpeg_order in {get_args(Order)}, got {jpeg_order!r}")
    reading = _AlohaFile(File(path), jpeg_order, Cache(cache_bytes))
    columns = reading.columns()
    attributes = reading.file.root.attrs
    entries = {"file": path.name, **{key: attribute(attributes[key]) for key in attributes}}
    return DemoSource(
        path,
        columns,
        np.array([0, reading.steps], np.int64),
        reopen=(partial(read_aloha, jpeg_order=jpeg_order, cache_bytes=cache_bytes), (path,)),
        metadata={"kind": AlohaKind.name},
        entries=lambda _: dict(entries),
        state=f"{reading.file.image.superblock} {jpeg_order}",
        account=Account((*reading.left_out.values(), *behind_the_end(reading.file)), reading.used),
    )


class _AlohaFile:
    """One file: its datasets, and the columns they make."""

    def __init__(self, file: File, order: Order, cache: Cache) -> None:
        self.file, self._cache = file, cache
        self._order: Order = order
        self.datasets, self.left_out = datasets_below(file.root, ACTIONS)
        self._compressed = bool(attribute(file.root.attrs["compress"])) if "compress" in file.root.attrs else False
        self.used: dict[str, str] = {}
        self._actions = self._named(ACTIONS)
        if self._actions is None or not numbers(self.datasets[self._actions]):
            raise FormatError("expected actions of numbers", path=file.path, where=self._actions or ACTIONS[0])
        self.steps = self.datasets[self._actions].shape[0]
        if not self.steps:
            raise FormatError("expected at least one step, got none", path=file.path, where=self._actions)

    def _named(self, names: tuple[str, ...]) -> str | None:
        return next((name for name in names if name in self.datasets), None)

    def columns(self) -> dict[str, DemoColumn]:
        """Observations first, then actions, rewards and ends, then all else that has a row a step."""
        renamed = ((self._actions, "actions"), (self._named(REWARDS), "rewards"))
        called = {name: name for name in self.datasets if name.startswith("observations/")}
        self.used = {name: column for name, column in renamed if name is not None and name != column}
        called |= {name: column for name, column in renamed if name is not None}
        others = {name: name for name in self.datasets if name not in called and name != LENGTHS}
        last = np.arange(self.steps) == self.steps - 1
        ends = {"terminations": held(np.zeros(self.steps, np.bool_)), "truncations": held(last)}
        return self._columns(called) | ends | self._columns(others)

    def _columns(self, called: Mapping[str, str]) -> dict[str, DemoColumn]:
        """The columns of datasets, under their new names; others are named as left out."""
        misfits = {name: misfit(name, self.datasets[name], self.steps) for name in called}
        self.left_out |= {name: entry for name, entry in misfits.items() if entry is not None}
        return {column: self._rows(name) for name, column in called.items() if misfits[name] is None}

    def _rows(self, name: str) -> DemoColumn:
        """The column of a dataset with a row of numbers for each step."""
        dataset = self.datasets[name]
        scalar = name in REWARDS and row_shape(dataset) == (1,)
        stored = column(self.file, Segments.whole([dataset]), "step", self._cache, () if scalar else None)
        if not (self._compressed and name.startswith(IMAGES) and stored.field.dtype == np.uint8):
            return stored
        return stored if len(stored.field.shape) > 1 else self._jpeg(name, stored)

    def _jpeg(self, name: str, stored: DemoColumn) -> DemoColumn:
        first = np.empty((1, stored.field.row_bytes), np.uint8)
        zero = np.zeros(1, np.int64)
        stored.rows.gather(zero, zero + 1, zero, first)
        try:
            height, width, _ = read_header(_image(first[0])).shape
        except FormatError as error:
            raise type(error)(f"expected JPEG images: {error}", path=self.file.path, where=name) from error
        shape = (height, width, 3)
        rows = JpegRows(stored.rows, stored.field.row_bytes, shape, self._order, f"{self.file.path}, {name}")
        return DemoColumn(Field(np.dtype(np.uint8), shape, "step"), rows)


def _image(row: ByteArray) -> bytes:
    """A JPEG ends with bytes that are not zero, so the zeros behind it are of no image."""
    return row.tobytes().rstrip(b"\0")


@dataclass(frozen=True, eq=False)
class JpegRows:
    """Images in rows of `width` bytes, JPEG with zeros behind it, decoded to `shape`, `[h, w, 3]`."""

    rows: RowReader
    width: int
    shape: tuple[int, int, int]
    order: Order
    where: str

    def gather(self, start: IntArray, length: IntArray, destination: IntArray, out: ByteArray) -> None:
        """Decode each row into its place. Memory: the encoded rows."""
        ends = np.cumsum(length)
        stored = np.empty((int(ends[-1]) if len(ends) else 0, self.width), np.uint8)
        self.rows.gather(start, length, ends - length, stored)
        frames = out.reshape(-1, *self.shape)
        places = np.repeat(destination - (ends - length), length) + np.arange(len(stored))
        for row, place in zip(stored, places.tolist(), strict=True):
            frame = frames[place]
            try:
                decode_into(_image(row), frame, convert=True)
            except FormatError as error:
                raise type(error)(str(error), where=self.where) from error
            if self.order == "bgr":
                frame[...] = frame[..., ::-1].copy()

    def remote_ranges(self, start: IntArray, length: IntArray) -> list[Wanted]:
        return self.rows.remote_ranges(start, length) if isinstance(self.rows, RemoteRows) else []
