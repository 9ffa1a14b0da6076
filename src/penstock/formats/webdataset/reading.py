"""From members to columns: by place where members are alike, by value where they are not.

Members that were written by the same code have the same bytes around their values. `learn` finds this *template* in one
decoded member; `_matching` compares the prefix and suffix of all members at once. A match gives the place of the
values, so the column is a gather over memory maps. A member matches only if its size and all its bytes except the
values are equal to the template's, so the values there are what the decoder would return. A column has at most
`TEMPLATES` templates; otherwise all members are decoded one by one, bounded by `decoded_bytes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from penstock.containers.on_demand import FilesOnDemand
from penstock.core.arrays import BoolArray, ByteArray, IntArray
from penstock.core.narrowing import is_array, is_scalar
from penstock.core.ragged import offsets_of
from penstock.core.spec import Align, Field
from penstock.errors import DataError, FormatError
from penstock.files.mapping import check_mapped, read_mapped
from penstock.formats.base.infos import column_of, leaves
from penstock.formats.webdataset.content import Places, Samples, gathered
from penstock.formats.webdataset.decoders import Decode, How, MemberBytes, decoder, is_text

TEMPLATES = 16  # kinds of members that one column is made of; the rest is decoded one by one
LIKE = 256  # bytes of members that are decoded once for all that are equal
CHUNK = 1 << 25  # bytes that are compared together
Missing = Literal["error", "fill", "leave_out"]
TRIES = 8  # places that the values of one member are looked for at


@dataclass(frozen=True, eq=False, slots=True)
class ArrayTemplate:
    """`prefix`, the bytes of an array of this dtype and shape, `suffix`."""

    prefix: bytes
    suffix: bytes
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def values(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes of the whole member."""
        return len(self.prefix) + self.values + len(self.suffix)


_INTEGERS = tuple(
    ArrayTemplate(b"\x80\x04" + code, b".", np.dtype(dtype), ())
    for code, dtype in ((b"K", "u1"), (b"M", "<u2"), (b"J", "<i4"))
)


@dataclass(frozen=True)
class Options:
    """How archives are read; docs/formats/webdataset.md describes the options."""

    extensions: tuple[str, ...] | None = None
    how: How = field(default_factory=How)
    decoded_bytes: int = 1 << 30
    salvage: bool = False
    join: bool = False
    missing: Missing = "error"

    def __post_init__(self) -> None:
        if self.missing not in get_args(Missing):
            raise DataError(f"expected missing to be one of {list(get_args(Missing))}, got {self.missing!r}")


@dataclass(frozen=True, eq=False)
class Archives:
    """The mapped archives of a dataset, its samples, and how to read them."""

    paths: Sequence[Path]
    buffers: Sequence[ByteArray]
    samples: Samples
    options: Options = field(default_factory=Options)

    def member(self, i: int, extension: str) -> MemberBytes:
        """One member of sample `i`."""
        x = self.samples.extensions.index(extension)
        shard, begin, size = (
            int(a) for a in (self.samples.shard[i], self.samples.payload[x, i], self.samples.size[x, i])
        )
        path = self.paths[shard]
        if size < 0:
            message = (
                f"expected a member {extension!r} in every sample, got one without; leave it out with `extensions`, "
                "or such samples with missing='leave_out', or fill it with missing='fill'"
            )
            raise FormatError(message, path=path, where=f"sample {self.samples.key(i)!r}")
        raw = read_mapped(self.buffers[shard][begin : begin + size]).tobytes()
        return MemberBytes(raw, self.samples.where(i, extension), path)

    def value(self, i: int, extension: str) -> Any:
        """One member of sample `i`, decoded."""
        return (decoder(extension, self.options.how) or _raw)(self.member(i, extension))

    def values(self, extension: str) -> list[Any]:
        """Every member of one extension, decoded."""
        decode = decoder(extension, self.options.how) or _raw
        known: dict[bytes, Any] = {}
        values: list[Any] = []
        room = limit = self.options.decoded_bytes
        for i, raw in enumerate(self._raws(extension)):
            value = known.get(raw)
            if value is None:
                value = decode(self.member(i, extension))
                if len(raw) <= LIKE and len(known) < 1 << 16:
                    known[raw] = value
            room -= _held(value, len(raw))
            if room < 0:
                message = f"expected values of at most {limit} bytes, got more; raise decoded_bytes"
                raise self.member(i, extension).error(message)
            values.append(value)
        return values

    def _raws(self, extension: str) -> Iterator[bytes]:
        x = self.samples.extensions.index(extension)
        if not isinstance(self.buffers, FilesOnDemand):
            check_mapped(*self.buffers)
        columns = (self.samples.shard, self.samples.payload[x], self.samples.size[x])
        for i, (shard, begin, size) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            if size < 0:
                self.member(i, extension)  # says what is missing
            yield self.buffers[int(shard)][begin : begin + size].tobytes()

    def integers(self, extension: str, align: Align) -> Places | None:
        """The column of members that are one integer below 2^31 each, in pickles of protocol 4; None for others."""
        x = self.samples.extensions.index(extension)
        out, left = np.zeros(len(self.samples), np.int64), np.arange(len(self.samples))
        for template in _INTEGERS:
            same = self._matching(template, x, left)
            rows = left[same]
            offset = self.samples.payload[x, rows] + len(template.prefix)
            raw = gathered(self.buffers, self.samples.shard[rows], offset, template.values)
            out[rows] = raw.view(template.dtype).ravel()
            left = left[~same]
        return None if len(left) else Places.of(Field(np.dtype(np.int64), (), align), out)

    def placed(self, extension: str, align: Align) -> Places | None:
        """The column of members that are one array each, all of one dtype and shape; None if they are not."""
        x = self.samples.extensions.index(extension)
        decode = decoder(extension, self.options.how)
        if decode is None or not len(self.samples):
            return None
        left = np.arange(len(self.samples))
        buffer, offset = self.samples.shard.copy(), np.zeros(len(left), np.int64)
        first: ArrayTemplate | None = None
        for _ in range(TEMPLATES):
            template = self._template(int(left[0]), extension, decode)
            if template is None or (
                first is not None and (template.dtype, template.shape) != (first.dtype, first.shape)
            ):
                return None
            first = first or template
            same = self._matching(template, x, left)
            offset[left[same]] = self.samples.payload[x, left[same]] + len(template.prefix)
            left = left[~same]
            if not len(left):
                rows = np.ones(len(offset), np.int64)
                return Places(Field(first.dtype, first.shape, align), rows, buffer, offset, np.zeros(0, np.uint8))
        return None

    def raw(self, extension: str, align: Align) -> Places:
        """The bytes of each member as they are: text, or ragged uint8."""
        x = self.samples.extensions.index(extension)
        lengths = self.samples.size[x]
        if len(lengths) and lengths.min() < 0:
            self.member(int(np.argmin(lengths)), extension)  # says what is missing
        if is_text(extension):
            self._check_text(extension)
        kind = Field(np.dtype(np.uint8), (), align, "text" if is_text(extension) else "ragged")
        cuts = offsets_of(lengths)
        return Places(kind, lengths, self.samples.shard, self.samples.payload[x], np.zeros(0, np.uint8), cuts)

    def _check_text(self, extension: str) -> None:
        for i in range(len(self.samples)):
            member = self.member(i, extension)
            try:
                member.raw.decode()
            except UnicodeDecodeError as error:
                raise member.error(f"expected UTF-8, got {error}") from error

    def _template(self, i: int, extension: str, decode: Decode) -> ArrayTemplate | None:
        member = self.member(i, extension)
        return learn(member.raw, lambda raw: decode(MemberBytes(raw, member.where, member.path)))

    def _matching(self, template: ArrayTemplate, x: int, rows: IntArray) -> BoolArray:
        """Which of the samples have a member with the template's bytes around its values."""
        same = self.samples.size[x, rows] == template.size
        tail = len(template.prefix) + template.values
        for part, begin in ((template.prefix, 0), (template.suffix, tail)):
            expected = np.frombuffer(part, np.uint8)
            step = max(CHUNK // max(len(part), 1), 1)
            chosen = np.flatnonzero(same)
            for lo in range(0, len(chosen), step):
                places = chosen[lo : lo + step]
                offset = self.samples.payload[x, rows[places]] + begin
                raw = gathered(self.buffers, self.samples.shard[rows[places]], offset, len(part))
                same[places] = (raw == expected).all(axis=1)
        if template.dtype.kind == "b":
            chosen = np.flatnonzero(same)
            offset = self.samples.payload[x, rows[chosen]] + len(template.prefix)
            raw = gathered(self.buffers, self.samples.shard[rows[chosen]], offset, template.values)
            same[chosen] = (raw <= 1).all(axis=1)  # others are no bools, and the careful way says so
        return same


def columns_of(values: Sequence[Any], align: Align, ragged: Align) -> tuple[dict[str, Places], dict[str, list[Any]]]:
    """The columns of decoded values, by path below them, and what cannot be one: values by path, None where missing."""
    rows = [dict(leaves(value)) for value in values]
    names = dict.fromkeys(name for row in rows for name in row)
    columns: dict[str, Places] = {}
    left: dict[str, list[Any]] = {}
    for name in names:
        member_values = [row.get(name) for row in rows]
        column = None if any(value is None for value in member_values) else column_of(member_values, align)
        if column is None:
            left[name] = member_values
        else:
            columns[name] = Places.of_column(*column, ragged)
    return columns, left


def _raw(member: MemberBytes) -> bytes:
    return member.raw


def _held(value: Any, size: int) -> int:
    return value.nbytes if isinstance(value, np.ndarray) else size


def learn(raw: bytes, decode: Callable[[bytes], Any]) -> ArrayTemplate | None:
    """The template of a member that `decode` makes an array or NumPy number of; None if there is none.

    Of the decoded array it is known which bytes it was made of. Whether these, and no others, make the value is tried
    out: other bytes are put in their place, and must come back as another array. Cost: some decodings of this member.
    """
    value = decode(raw)
    if not (is_array(value) or is_scalar(value)) or value.dtype.kind not in "biufc" or not value.nbytes:
        return None
    payload = value.tobytes()
    probe = (np.frombuffer(payload, np.uint8) ^ 1).tobytes()  # still a bool, where it was one
    end = len(raw)
    for _ in range(TRIES):
        payload_start = raw.rfind(payload, 0, end)
        if payload_start < 0:
            break
        if _makes(raw[:payload_start] + probe + raw[payload_start + len(payload) :], probe, value, decode):
            return ArrayTemplate(raw[:payload_start], raw[payload_start + len(payload) :], value.dtype, value.shape)
        end = payload_start + len(payload) - 1
    return None


def _makes(raw: bytes, probe: bytes, value: Any, decode: Callable[[bytes], Any]) -> bool:
    try:
        other = decode(raw)
    except ValueError:  # the bytes were part of something else
        return False
    if not (is_array(other) or is_scalar(other)):
        return False
    return (other.dtype, other.shape, other.tobytes()) == (value.dtype, value.shape, probe)
