"""Reading a TFDS dataset of episodes (RLDS)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from typing_extensions import override

from penstock.containers.images import read_header
from penstock.containers.tfrecord import map_records
from penstock.core.arrays import AnyArray
from penstock.core.boundary import parsing, refusal
from penstock.core.cache import Cache
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Align, Field, Spec
from penstock.errors import ArgumentError, FormatError, require, suggestion
from penstock.files.remote import Wanted
from penstock.formats.base.account import Account, LeftOut, unused_files
from penstock.formats.base.pieces import RowPieces, cut, spread
from penstock.formats.base.state import GatheredColumn, SourceState, StateSource
from penstock.formats.rlds.columns import EncodedImages, EncodedText, FeatureColumn, NumberColumn, column_of
from penstock.formats.rlds.features import (
    ENDS,
    FEATURES,
    INFO,
    OTHERS,
    OWN,
    STEPS,
    LastStep,
    OwnFile,
    RLDSFeature,
    SplitFiles,
    chosen_splits,
    column_of_feature,
    is_metadata,
    metadata_name,
    read_features,
    read_info,
    read_own,
    splits_of,
    version_folder,
)
from penstock.formats.rlds.index import BEHIND, RecordIndex, check_places, index_split, shard_ends
from penstock.formats.rlds.records import ChunkedRecords, RLDSRecords, text_of

Jpeg = Literal["accurate", "fast"]

OTHERS_NAME = metadata_name(OTHERS)
_LAST: Mapping[LastStep, str] = {"observation": "an observation alone", "step": "a step with an action"}
SEEN = 16  # episodes whose last step is inspected, to find out what it has


@dataclass(frozen=True, eq=False)
class _RLDSColumn:
    """Column of the dataset: `reader` from row `first` of each record on; `less` is a flag that must not be set."""

    reader: FeatureColumn
    field: Field
    first: int = 0
    less: FeatureColumn | None = None
    placed: GatheredColumn | None = None

    @property
    def keys(self) -> list[int]:
        """Numbers of the lists in the index that it reads."""
        return [*self.reader.keys, *(() if self.less is None else self.less.keys)]


@dataclass(frozen=True, eq=False, kw_only=True)
class _RLDSState(SourceState):
    columns: Mapping[str, _RLDSColumn]
    described: Mapping[str, FeatureColumn]  # features that are metadata of episodes
    records: RLDSRecords
    own: bool  # whether our writer made the dataset


class RLDSSource(StateSource[_RLDSState]):
    """One split of a TFDS dataset whose records are episodes."""

    def __init__(
        self,
        path: Path,
        *,
        split: str | None = None,
        config: str | None = None,
        version: str | None = None,
        last_step: LastStep | None = None,
        columns: Sequence[str] | None = None,
        jpeg: Jpeg = "accurate",
        verify: bool = True,
        cache: Literal["user", "off"] = "user",
        cache_bytes: int = 256 << 20,
    ) -> None:
        _check_options(last_step, cache, jpeg)
        options = {"split": split, "config": config, "version": version, "last_step": last_step, "columns": columns}
        options |= {"jpeg": jpeg, "verify": verify, "cache": cache, "cache_bytes": cache_bytes}
        self._reopen = partial(RLDSSource, Path(path).absolute(), **options)
        folder = self.folder = self.location = version_folder(Path(path).absolute(), config, version)
        info, own = read_info(folder), read_own(folder)
        splits = splits_of(folder, info)
        chosen = chosen_splits(splits, split, folder)
        features = read_features(folder)
        if not any(feature.of_step for feature in features):
            raise FormatError(f"expected a feature {STEPS!r}, got {[f.path for f in features][:8]}", path=folder)
        paths = [file for part in chosen for file in part.paths]
        index = index_split(chosen, features, cache=cache == "user")
        values = Cache(cache_bytes)
        records = _opened(paths, index, verify, values)
        readers = _readers(records, features, values, fast_jpeg=jpeg == "fast")
        guessed = False
        if last_step is None:
            last_step, sure = (own.last_step, True) if own is not None else _last_step(readers, records)
            guessed = last_step == "observation" and not sure
        if last_step == "observation":
            records, readers = _with_observations(records, readers, verify, values)
        readable, described = _columns(readers, last_step, own)
        if columns is not None:
            readable = _chosen(readable, columns)
        left_out = [*_damage(records, chosen, folder), *_unread(features, readers)]
        left_out += [*_others(folder, splits), *([_guess(len(records.index.steps))] if guessed else ())]
        fields = {name: column.field for name, column in readable.items()}
        spec = Spec(fields, *(() if own is None else (own.spec.observation_space, own.spec.action_space)))
        self._state = _RLDSState(
            spec=spec,
            offsets=offsets_of(records.index.steps - (last_step == "observation")),
            digest=_digest(records.index, spec, last_step, jpeg),
            metadata={
                **({} if own is None else own.metadata),
                "dataset": str(info.get("name", folder.parent.name)),
                "version": str(info.get("version", folder.name)),
                "split": "+".join(part.name for part in chosen),
                "splits": list(splits),
                "last_step": last_step,
                "names": {name: column.reader.feature.path for name, column in readable.items()},
            },
            account=Account(tuple(left_out), ends=f"each record is an episode, whose last step is {_LAST[last_step]}"),
            columns=readable,
            described=described,
            records=records,
            own=own is not None,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reopen, ()

    @override
    def remote_ranges(self, column: str, selection: Selection) -> list[Wanted]:
        state = self.state
        stored = state.columns[column]
        pieces = cut(self.rows(stored.field.align), selection.start, selection.length, selection.start)
        return state.records.remote_ranges(pieces.run, stored.keys)

    @override
    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        state = self.state
        stored = state.columns[column]
        pieces = cut(self.rows(stored.field.align), selection.start, selection.length, selection.destination)
        with state.records.reading(pieces.run, stored.keys):
            if stored.placed is not None:
                stored.placed.read(selection, out)
            else:
                self._read_pieces(column, self._values_of(stored, pieces), out)

    def _read_pieces(self, column: str, values: RowPieces, out: AnyArray) -> None:
        """Read values of records that were verified."""
        state = self.state
        stored = state.columns[column]
        rest = stored.reader.read_pieces(values, out)
        if stored.less is not None:
            less = np.zeros(out.shape, np.bool_)
            rest = np.union1d(rest, stored.less.read_pieces(values, less))
            out &= ~less
        record = 0
        try:
            for record, a, length, out_row in zip(*(part.tolist() for part in values.take(rest)), strict=True):
                _read(stored, record, a, a + length, out[out_row : out_row + length])
        except Exception as error:
            if (instead := refusal(error, *state.records.where(record, column))) is None:
                raise
            raise instead from error

    def _values_of(self, column: _RLDSColumn, pieces: RowPieces) -> RowPieces:
        """Return pieces with the number of their first value in its record as `start`."""
        return pieces._replace(start=pieces.start - self.rows(column.field.align)[pieces.run] + column.first)

    @override
    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        stored = self.state.columns[column]
        pieces = cut(self.rows(stored.field.align), selection.start, selection.length, selection.start)
        with self.state.records.reading(pieces.run, stored.keys):
            return spread(self._ragged_pieces(column, pieces), selection)

    def _ragged_pieces(self, column: str, pieces: RowPieces) -> Ragged:
        """Return rows of records that were verified, in order."""
        state = self.state
        stored = state.columns[column]
        first = self.rows(stored.field.align)
        if isinstance(stored.reader, EncodedText):
            whole = stored.reader.read_texts(self._values_of(stored, pieces))
            if whole is not None:
                return whole
        parts = [Ragged(np.empty((0, *stored.field.shape), stored.field.dtype), np.zeros(1, np.int64))]
        texts: list[bytes] = []
        record = 0
        try:
            for record, start, length, _ in zip(*(part.tolist() for part in pieces), strict=True):
                a = start - int(first[record]) + stored.first
                if isinstance(stored.reader, EncodedText):
                    texts += stored.reader.blobs(record, a, a + length)
                    continue
                rows = stored.reader.rows(record, a, a + length)
                if not isinstance(rows, Ragged):
                    raise FormatError("expected lists, got an array")
                parts.append(rows)
        except Exception as error:
            if (instead := refusal(error, *state.records.where(record, column))) is None:
                raise
            raise instead from error
        return text_of(texts) if texts else Ragged.concatenate(parts)

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        records = self.state.records
        keys = [key for column in self.state.described.values() for key in column.keys]
        described: list[dict[str, Any]] = []
        for part in records.portions(np.asarray(episodes, np.int64)):
            with records.reading(part, keys):
                described += [self._described(e) for e in part.tolist()]
        return described

    def _described(self, record: int) -> dict[str, Any]:
        description = {name: self._value(name, column, record) for name, column in self.state.described.items()}
        description = {name: value for name, value in description.items() if value is not None}
        if self.state.own and OTHERS_NAME in description:
            with parsing(*self.state.records.where(record, OTHERS)):
                description |= json.loads(description.pop(OTHERS_NAME))
        return description

    def _value(self, name: str, column: FeatureColumn, record: int) -> Any:
        path, where = self.state.records.where(record, name)
        with parsing(path, where):
            if column.list_of(record).kind == 0:
                return None
            rows: Array = column.rows(record, 0, 1)
            return rows.strings()[0] if isinstance(rows, Ragged) else rows[0].item()


def _check_options(last_step: str | None, cache: str, jpeg: str) -> None:
    """Raise `ArgumentError` for a value that an option does not have, and `MissingExtraError` for a missing decoder."""
    if last_step not in (None, "observation", "step") or cache not in ("user", "off"):
        options = f"last_step={last_step!r} and cache={cache!r}"
        raise ArgumentError(f"expected last_step 'observation' or 'step', and cache 'user' or 'off', got {options}")
    if jpeg not in get_args(Jpeg):
        raise ArgumentError(f"expected jpeg 'accurate' or 'fast', got {jpeg!r}")
    if jpeg == "fast":
        require("simplejpeg", "jpeg")


def _unread(features: Sequence[RLDSFeature], readers: Mapping[str, FeatureColumn]) -> Iterator[LeftOut]:
    """Yield entries of features that no column can hold."""
    for feature in features:
        if feature.path not in readers:
            yield LeftOut("column", feature.path, "unsupported-dtype", "several values of this kind in a step")


def _others(folder: Path, splits: Mapping[str, SplitFiles]) -> list[LeftOut]:
    """Entries of files that belong to no split."""
    used = {path.name for split in splits.values() for path in split.paths} | {FEATURES, INFO, OWN}
    return unused_files((file.name for file in folder.iterdir() if file.name not in used), "shards of a split")


def _guess(records: int) -> LeftOut:
    """The entry of last steps that are taken to have no action, without proof."""
    message = "taken as an observation alone, because its action and reward are zero; last_step='observation' says so, "
    return LeftOut("rows", "last step of each episode", "guessed", f"{message}last_step='step' keeps it", records)


def _read(column: _RLDSColumn, record: int, a: int, b: int, out: AnyArray) -> None:
    column.reader.read_into(record, a, b, out)
    if column.less is not None:
        out &= ~np.asarray(column.less.rows(record, a, b))


def _opened(paths: Sequence[Path], index: RecordIndex, verify: bool, values: Cache) -> RLDSRecords:
    buffers = [map_records(path, lazy=True) for path in paths]
    if len(np.unique(index.chunked)) > 1:
        raise FormatError("expected shards of one format, got TFRecord and ArrayRecord files", path=paths[0].parent)
    if index.chunked.any():
        return ChunkedRecords(paths, buffers, index, verify, values)
    check_places(index, [len(data) for data in buffers])
    return RLDSRecords(paths, buffers, index, verify)


def _with_observations(
    records: RLDSRecords, readers: Mapping[str, FeatureColumn], verify: bool, values: Cache
) -> tuple[RLDSRecords, Mapping[str, FeatureColumn]]:
    """Return the records with at least one step, and readers of them. A record without a step has no observation."""
    short = np.flatnonzero(records.index.steps < 1)
    if not len(short):
        return records, readers
    index = records.index.without(short, "expected an observation, got no step", [p.name for p in records.paths])
    complete = _opened(records.paths, index, verify, values)
    return complete, {path: replace(reader, records=complete) for path, reader in readers.items()}


def _chosen(readable: Mapping[str, _RLDSColumn], columns: Sequence[str]) -> dict[str, _RLDSColumn]:
    if unknown := [name for name in columns if name not in readable]:
        message = f"no column {unknown[0]!r}{suggestion(unknown[0], readable)}; there are {list(readable)}"
        raise ArgumentError(message)
    return {name: column for name, column in readable.items() if name in columns}


def _damage(records: RLDSRecords, splits: Sequence[SplitFiles], folder: Path) -> Iterator[LeftOut]:
    """Yield entries of what is left out: damaged records, what a killed writer left, and shards that are missing."""
    damaged = records.index.damaged
    ends = {end.path.name: end for end in shard_ends(folder)} if damaged else {}
    for shard, text in damaged:
        reason = ends[shard].reason(text) if shard in ends else "damaged-part"
        one = text.startswith("record ") and BEHIND not in text
        if reason == "totals":
            yield LeftOut("file", INFO, reason, f"{shard}: {text}")
        else:
            yield LeftOut("episode" if one else "bytes", shard, reason, text)
    for split in splits:
        if len(split.paths) < split.count:
            message = f"expected {split.count} shards, got {len(split.paths)}; copy the missing ones"
            yield LeftOut("file", f"shards of {split.name}", "missing-part", message)


def _digest(index: RecordIndex, spec: Spec, last_step: LastStep, jpeg: Jpeg) -> str:
    """Return the fingerprint: of the stored checksums of all records, so no value is read."""
    fast = " fast" if jpeg == "fast" else ""
    digest = hashlib.sha256(f"{spec.fingerprint} {last_step}{fast}".encode())
    for array in (index.checksum, index.size, index.steps):
        digest.update(array.tobytes())
    return digest.hexdigest()


def _readers(
    records: RLDSRecords, features: Sequence[RLDSFeature], cache: Cache, *, fast_jpeg: bool
) -> dict[str, FeatureColumn]:
    """Return the readers of features by path, without those that no column can hold."""
    by_path: dict[str, FeatureColumn] = {}
    key = 0
    for feature in features:
        if feature.kind == "image" and not feature.within:
            shape = _image_shape(records, feature, key)
            by_path[feature.path] = EncodedImages(records, feature, key, cache, shape, fast_jpeg)
        elif (column := column_of(records, feature, key, cache)) is not None:
            by_path[feature.path] = column
        key += len(feature.keys)
    return by_path


def _image_shape(records: RLDSRecords, feature: RLDSFeature, key: int) -> tuple[int, int, int]:
    """Return the shape of images, from the first of them where the feature does not fix it."""
    sizes = [size or 0 for size in feature.shape]
    if len(sizes) != 3:
        raise FormatError(f"expected images of height, width and channels, got {feature.shape}", where=feature.path)
    if None in feature.shape:
        steps = records.index.steps if feature.of_step else np.ones_like(records.index.steps)
        for record in np.flatnonzero(steps > 0).tolist():
            with suppress(FormatError), parsing():  # of a damaged record; the next one tells
                with records.reading(np.array([record]), [key]):
                    blob = EncodedImages(records, feature, key, Cache(0)).blobs(record, 0, 1)[0]
                header = read_header(blob).shape
                sizes = [header[i] if size is None else size for i, size in enumerate(feature.shape)]
                break
    return sizes[0], sizes[1], sizes[2]


def _last_step(readers: Mapping[str, FeatureColumn], records: RLDSRecords) -> tuple[LastStep, bool]:
    """Return the content of the last steps of some episodes, and whether that is certain.

    It is an observation alone if each of these steps is marked as the last one, and has zeros or NaN as action and
    reward, and other steps have other actions. That is certain if no other step has a reward of zero: an episode may
    end with an action of zeros. A damaged record says nothing. Only records that decide are verified.
    """
    known = {name: reader for name in ("is_last", "reward") if (reader := readers.get(f"{STEPS}/{name}")) is not None}
    if "is_last" not in known:
        return "step", True
    actions = [reader for path, reader in readers.items() if column_of_feature(path).split("/")[0] == "actions"]
    long = np.flatnonzero(records.index.steps > 1)
    moved, certain = False, "reward" in known
    seen: list[int] = long[:: max(-(-len(long) // SEEN), 1)].tolist()
    for record in seen:
        with suppress(FormatError), parsing():  # reading it is an error
            said, rewarded = _says(record, records, known, actions)
            certain &= rewarded
            if said == "step" or (said == "moved" and not moved):
                with records.reading(np.array([record]), ()):
                    moved = True
                if said == "step":
                    return "step", True
    return ("observation", certain) if moved else ("step", True)


def _says(
    record: int, records: RLDSRecords, known: Mapping[str, FeatureColumn], actions: Sequence[FeatureColumn]
) -> tuple[Literal["step", "moved", "still"], bool]:
    """Whether a record's last step is one of all; else whether the agent moved before, and each step had a reward."""
    used = [*actions, *known.values()]
    moved, rewarded = False, True
    with records.reading(np.array([record]), [key for reader in used for key in reader.keys], verify=False):
        steps = int(records.index.steps[record])
        if not known["is_last"].rows(record, steps - 1, steps)[0]:
            return "step", False
        for reader in used:
            if reader is known["is_last"]:
                continue
            rows = reader.rows(record, 0, steps)
            if isinstance(rows, Ragged) or np.nan_to_num(rows[-1]).any():
                return "step", False
            moved |= reader in actions and bool(np.nan_to_num(rows).any())
            if reader is known.get("reward"):
                rewarded = bool(np.nan_to_num(rows[:-1]).all())
    return ("moved" if moved else "still"), rewarded


def _columns(
    readers: Mapping[str, FeatureColumn], last: LastStep, own: OwnFile | None
) -> tuple[dict[str, _RLDSColumn], dict[str, FeatureColumn]]:
    """Return the columns by name, and the features that are metadata of episodes."""
    by_name: dict[str, _RLDSColumn] = {}
    described: dict[str, FeatureColumn] = {}
    for path, reader in readers.items():
        name = column_of_feature(path) if own is None else own.columns.get(path, "")
        if is_metadata(reader.feature) and (own is None or not name):
            described[metadata_name(path)] = reader
        elif name and path != f"{STEPS}/is_first":
            align = _align(name, reader.feature, last) if own is None else own.spec[name].align
            by_name[name] = _column(reader, name, align, last, readers)
    order = list(by_name) if own is None else [name for name in own.spec if name in by_name]
    return {name: by_name[name] for name in order}, described


def _align(name: str, feature: RLDSFeature, last: LastStep) -> Align:
    if not feature.of_step:
        return "episode"
    of_action = name.split("/", maxsplit=1)[0] in ("actions", "rewards", "discounts", "terminations", "truncations")
    return "step" if of_action or last == "step" else "boundary"


def _column(
    reader: FeatureColumn, name: str, align: Align, last: LastStep, readers: Mapping[str, FeatureColumn]
) -> _RLDSColumn:
    # RLDS marks the step whose observation is the last one; our marks belong to the action that led there.
    first = int(last == "observation" and name in ENDS)
    less = readers.get(f"{STEPS}/is_terminal") if reader.feature.path == f"{STEPS}/is_last" else None
    placed = None
    if isinstance(reader, NumberColumn) and less is None:
        steps = reader.records.index.steps
        rows = np.ones_like(steps) if align == "episode" else steps - (last == "observation" and align == "step")
        if (mapped := reader.placed(first, rows)) is not None:
            placed = GatheredColumn(mapped, repair_bools=reader.feature.dtype == np.bool_)
    return _RLDSColumn(reader, reader.field(align), first, less, placed)
