"""The self-describing layout of il-representations: a sample a step, every value a pickle.

docs/formats/webdataset.md has the table of members and columns. An episode ends where `dones` says so, and at the end
of an archive. It was truncated if its last info says so (`TimeLimit.truncated`), or if the archive ends without a done.
With `join`, an archive that ends without a done is no end where the last `next_obs` equals the first `obs` of the next
archive, bit by bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.containers.pickle import ColorSpace
from penstock.core.arrays import AnyArray, BoolArray, ByteArray, IntArray
from penstock.core.columns import under
from penstock.core.narrowing import is_array, is_dict, is_scalar
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.space_columns import leaf_columns
from penstock.core.spaces import Space
from penstock.core.spec import Align, Field, Spec
from penstock.errors import FormatError, SpecError
from penstock.formats.base.account import Account, LeftOut
from penstock.formats.base.infos import TRUNCATED, Infos, plain, read_infos
from penstock.formats.webdataset.content import META, Content, PlacedColumn, Places, Samples
from penstock.formats.webdataset.reading import Archives, columns_of

NAME = "seed"
ENDS = "episodes end where dones is true, and with their archive"
SUFFIX = ".pickle"
META_EXTENSION = "meta.pickle"
NAMES: Mapping[str, str] = {"obs": "observations", "acts": "actions", "rews": "rewards", "infos": "infos"}
SPEC = "penstock_spec"  # the entry of the metadata where our writer says which columns it was given
EXTRA = "penstock"  # the entry of the last infos with the metadata of the episode as JSON
COMPARED = 1 << 20  # bytes of observations that are compared together


def is_seed(samples: Samples) -> bool:
    """Whether the members belong to this layout."""
    named = set(samples.extensions)
    return {"obs.pickle", "dones.pickle"} <= named or (named == {META_EXTENSION} and samples.keys[0] == META.encode())


def read(archives: Archives) -> Content:
    described = np.array([key == META.encode() for key in archives.samples.keys.tolist()], np.bool_)
    steps = archives.samples.take(~described)
    meta = _metadata(archives, np.flatnonzero(described))
    written = _written_spec(meta, archives)
    if len(steps):
        return _StepColumns(replace(archives, samples=steps)).content(meta, written)
    if written is None:
        raise FormatError("expected steps, found metadata alone", path=archives.paths[0])
    spec, none = _spec(written, meta), np.zeros(1, np.int64)
    return Content(NAME, spec, none, _empty(written), steps, _plain_metadata(meta))


def _written_spec(meta: dict[str, Any], archives: Archives) -> dict[str, Field] | None:
    """The columns that our own writer was given, taken out of the metadata; None if it was another."""
    stated = meta.pop(SPEC, None)
    if stated is None:
        return None
    try:
        meta.update(
            {name: Space.from_json(stated[name]) for name in ("observation_space", "action_space") if name in stated}
        )
        return {str(path): Field.from_json(field) for path, field in stated["fields"].items()}
    except (SpecError, AttributeError, TypeError, KeyError) as error:
        raise FormatError(f"expected columns in {SPEC}, got {error}", path=archives.paths[0]) from error


def _empty(fields: Mapping[str, Field]) -> dict[str, Places]:
    none = Ragged(np.zeros(0, np.uint8), np.zeros(1, np.int64))
    return {
        path: Places.of_ragged(f, none) if f.ragged else Places.of(f, np.zeros((0, *f.shape), f.dtype))
        for path, f in fields.items()
    }


def _plain_metadata(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.value if isinstance(v, ColorSpace) else plain(v) for k, v in meta.items() if not isinstance(v, Space)}


def _metadata(archives: Archives, rows: IntArray) -> dict[str, Any]:
    if not len(rows) or META_EXTENSION not in archives.samples.extensions:
        return {}
    i = int(rows[0])
    value = archives.value(i, META_EXTENSION)
    if not is_dict(value):
        raise archives.member(i, META_EXTENSION).error(f"expected a dict of metadata, got {type(value).__name__}")
    return {str(key): inner for key, inner in value.items()}


class _StepColumns:
    """The steps of all archives on their way to columns."""

    def __init__(self, archives: Archives) -> None:
        self._archives, self._samples = archives, archives.samples
        self._names = [e.removesuffix(SUFFIX) for e in self._samples.extensions if e.endswith(SUFFIX)]
        self._dones = self._flags("dones")
        shard, archive = self._samples.shard, self._samples.archive
        self._ends = self._dones.copy()
        self._ends[-1:] = True
        self._ends[:-1] |= (shard[1:] != shard[:-1]) | (archive[1:] != archive[:-1])
        if archives.options.join:
            self._join(np.flatnonzero(self._ends[:-1] & ~self._dones[:-1]))
        self.offsets = offsets_of(np.diff(np.flatnonzero(self._ends), prepend=-1))

    def content(self, meta: Mapping[str, Any], written: Mapping[str, Field] | None) -> Content:
        """All columns, in our usual order; or the columns that our own writer was given."""
        infos, truncated = self._infos(written)
        columns, breaks = self._observations()
        columns |= self._named("acts") | self._named("rews")
        cut = self._ends & (truncated | ~self._dones)
        flag = Field(np.dtype(np.bool_))
        columns["terminations"] = Places.of(flag, self._dones & ~cut)
        columns["truncations"] = Places.of(flag, cut)
        columns |= {path: Places.of_column(f, rows, f.align) for path, (f, rows) in infos.columns.items()}
        for name in self._names:
            if name not in (*NAMES, "next_obs"):
                columns |= self._named(name)
        metadata = _plain_metadata(meta)
        metadata |= {"discontinuous_steps": breaks} if breaks else {}
        n = len(self.offsets) - 1
        written_metadata = {
            path: _as_written(columns[path], f, n) for path, f in (written or {}).items() if path in columns
        }
        if written is not None and {path: places.field for path, places in written_metadata.items()} == dict(written):
            columns = written_metadata
        spec = _spec({path: places.field for path, places in columns.items()}, meta)
        episodes = tuple(infos.episodes) if any(infos.episodes) else ()
        message = "expected numbers or text that fit together, in every step or in the last step of episodes"
        left_out = tuple(LeftOut("column", path, "unsupported-dtype", message) for path in infos.left_out)
        account = Account(left_out, ends=ENDS)
        return Content(NAME, spec, self.offsets, columns, self._samples, metadata, episodes, account=account)

    def _read(self, name: str, align: Align) -> dict[str, Places]:
        """The columns of one kind of member, by path below its name."""
        extension = name + SUFFIX
        placed = self._archives.integers(extension, align) or self._archives.placed(extension, align)
        if placed is not None:
            return {"": placed}
        columns, left = columns_of(self._archives.values(extension), align, align)
        if left:
            path, values = next(iter(left.items()))
            kinds = [_kind(value) for value in values]
            odd = next((i for i, kind in enumerate(kinds) if kind != kinds[0]), 0)
            message = (
                f"expected {'/'.join(filter(None, (name, path)))} to be arrays of one shape and dtype, or numbers, in "
                f"every step, got {kinds[odd]} here and {kinds[0]} in the first step"
            )
            raise self._archives.member(odd, extension).error(message)
        return columns

    def _named(self, name: str) -> dict[str, Places]:
        if name not in self._names:
            return {}
        return {_below(NAMES.get(name, name), path): places for path, places in self._read(name, "step").items()}

    def _flags(self, name: str) -> BoolArray:
        places = self._read(name, "step").get("")
        if places is None or places.field.shape or places.field.kind != "array" or places.field.dtype.kind not in "bui":
            raise self._archives.member(0, name + SUFFIX).error(f"expected {name} to be True or False in every step")
        return read_all(places, self._archives.buffers).astype(np.bool_)

    def _observations(self) -> tuple[dict[str, Places], int]:
        """Columns of observations, and how many of `next_obs` are not the observation of the next step."""
        if "next_obs" not in self._names:
            return self._named("obs"), 0
        now, after = self._read("obs", "boundary"), self._read("next_obs", "step")
        fields = {path: (p.field.dtype, p.field.shape, p.field.kind) for path, p in now.items()}
        others = {path: (p.field.dtype, p.field.shape, p.field.kind) for path, p in after.items()}
        if fields != others or any(kind != "array" for _, _, kind in fields.values()):
            message = f"expected next_obs to be arrays as obs are, {fields}, got {others}"
            raise self._archives.member(0, "next_obs.pickle").error(message)
        breaks = np.zeros(len(self._samples), np.bool_)
        inner = np.flatnonzero(~self._ends)
        columns: dict[str, Places] = {}
        for path, places in now.items():
            columns[_below("observations", path)] = self._joined(places, after[path])
            breaks[inner] |= self._differs(places, after[path], inner)
        if breaks.any():
            columns |= {_below("next_observations", path): places for path, places in after.items()}
        return columns, int(breaks.sum())

    def _joined(self, now: Places, after: Places) -> Places:
        """`obs` of every step, and behind the last of each episode its `next_obs`."""
        (buffer, offset), (next_buffer, next_offset) = each_row(now), each_row(after)
        ends = np.flatnonzero(self._ends)
        late = next_offset[ends] + np.where(next_buffer[ends] < 0, len(now.held), 0)
        raw = np.concatenate([now.held, after.held])
        rows = np.ones(len(buffer) + len(ends), np.int64)
        buffers, offsets = np.insert(buffer, ends + 1, next_buffer[ends]), np.insert(offset, ends + 1, late)
        return Places(now.field, rows, buffers, offsets, raw)

    def _join(self, cuts: IntArray) -> None:
        """Let episodes go on behind these last steps of archives whose `next_obs` is the first `obs` of the next."""
        if not len(cuts):
            return
        if "next_obs" not in self._names:
            path = self._archives.paths[int(self._samples.shard[cuts[0]])]
            message = "expected next_obs in every step, for join=True compares them with the next archive; found none"
            raise FormatError(message, path=path)
        now, after = self._read("obs", "boundary"), self._read("next_obs", "step")
        apart = np.zeros(len(cuts), np.bool_)
        for path, places in now.items():
            same = path in after and (places.field.dtype, places.field.shape) == (
                after[path].field.dtype,
                after[path].field.shape,
            )
            apart |= self._differs(places, after[path], cuts) if same else True
        self._ends[cuts[~apart]] = False

    def _differs(self, now: Places, after: Places, rows: IntArray) -> BoolArray:
        """`[n]` whether `next_obs` of each of the steps is not the next `obs`. Cost: one pass over both."""
        left, right = after.on(self._archives.buffers).rows, now.on(self._archives.buffers).rows
        width, differs = now.field.row_bytes, np.zeros(len(rows), np.bool_)
        step = max(COMPARED // max(width, 1), 1)
        one, places = np.ones(step, np.int64), np.arange(step)
        a, b = np.empty((2, step, width), np.uint8)  # used again and again, so that they stay in the cache
        for lo in range(0, len(rows), step):
            part = rows[lo : lo + step]
            n = len(part)
            left.gather(part, one[:n], places[:n], a[:n])
            right.gather(part + 1, one[:n], places[:n], b[:n])
            if not np.array_equal(a[:n], b[:n]):
                differs[lo : lo + n] = (a[:n] != b[:n]).any(axis=1)
        return differs

    def _infos(self, written: Mapping[str, Field] | None) -> tuple[Infos, BoolArray]:
        """What infos hold, and `[n]` whether they say that the episode was cut there."""
        ends = np.flatnonzero(self._ends)
        if "infos" not in self._names:
            return Infos({}, [{} for _ in ends], []), np.zeros(len(self._samples), np.bool_)
        values = self._archives.values("infos" + SUFFIX)
        odd = next((i for i, value in enumerate(values) if not isinstance(value, dict)), None)
        if odd is not None:
            raise self._archives.member(odd, "infos.pickle").error("expected infos to be a dict")
        infos = read_infos(values, ends, written)
        episodes = [_parsed(row, self._archives.paths[0]) for row in infos.episodes]
        return replace(infos, episodes=episodes), np.array([value.get(TRUNCATED) is True for value in values], np.bool_)


def read_all(places: Places, buffers: Sequence[ByteArray]) -> AnyArray:
    """`[rows, *shape]` all rows of a column."""
    n = int(places.rows.sum())
    out = np.empty((n, *places.field.shape), places.field.dtype)
    PlacedColumn(places.on(buffers).rows).read(Selection.consecutive(0, n), out)
    return out


def each_row(places: Places) -> tuple[IntArray, IntArray]:
    """`[n]` buffer and `[n]` offset of every single row."""
    within = np.arange(int(places.rows.sum())) - np.repeat(offsets_of(places.rows)[:-1], places.rows)
    offset = np.repeat(places.offset, places.rows) + within * places.field.row_bytes
    return np.repeat(places.buffer, places.rows), offset


def _parsed(row: Mapping[str, Any], path: object) -> dict[str, Any]:
    """The metadata of an episode, with what our own writer put there."""
    text = row.get(f"infos/{EXTRA}")
    if not isinstance(text, str):
        return dict(row)
    own = (f"infos/{EXTRA}", f"infos/{TRUNCATED}")  # the second is stored outside of the column
    try:
        return {name: value for name, value in row.items() if name not in own} | dict(json.loads(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"expected JSON in the infos at {EXTRA!r}, got {error}", path=path) from error


def _as_written(places: Places, field: Field, episodes: int) -> Places:
    """Where every episode has one step, a row a step is a row an episode."""
    fits = field.align == "episode" and int(places.rows.sum()) == episodes
    return replace(places, field=field) if fits and replace(places.field, align="episode") == field else places


def _spec(fields: Mapping[str, Field], meta: Mapping[str, Any]) -> Spec:
    spaces = [
        _fitting(meta.get(name), column, fields)
        for name, column in (("observation_space", "observations"), ("action_space", "actions"))
    ]
    return Spec(fields, *spaces)


def _fitting(space: Any, column: str, fields: Mapping[str, Field]) -> Space | None:
    """The space, if the columns below `column` are its leaves."""
    if not isinstance(space, Space):
        return None
    fitting = {path: field for path, field in fields.items() if under(column, path)}
    spaces = leaf_columns(column, space)
    fits = fitting.keys() == spaces.keys() and all(
        getattr(spaces[path], "dtype", field.dtype) == field.dtype and getattr(spaces[path], "shape", ()) == field.shape
        for path, field in fitting.items()
    )
    return space if fits else None


def _below(name: str, path: str) -> str:
    return f"{name}/{path}" if path else name


def _kind(value: Any) -> str:
    if is_array(value) or is_scalar(value):
        return f"an array of {value.dtype} {list(value.shape)}"
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
