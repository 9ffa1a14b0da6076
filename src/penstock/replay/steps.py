"""Steps of open episodes: `StepSource` takes them for a replay, and `GymnasiumSteps` has them from `Replay.add`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.episode import Episode
from penstock.core.narrowing import is_mapping, is_tuple
from penstock.core.spec import Field, Spec
from penstock.core.turns import ForkSafeLock
from penstock.errors import ArgumentError, DataError
from penstock.formats.base.writer import StepRecording
from penstock.replay.contents import ReplayContents
from penstock.replay.journal import StepChange
from penstock.replay.saved import packed, unpacked
from penstock.replay.segments import SegmentStore
from penstock.replay.streams import Rows, StepStream, StepWriter

Kind = tuple[np.dtype[Any], tuple[int, ...]]
VALUES = ("actions", "rewards", "terminations", "truncations")  # of a step
MODES = ("NextStep", "SameStep", "Disabled")


@dataclass(frozen=True, eq=False)
class StepOwner:
    """The part of a replay that a source of steps needs.

    `note` writes a change to the journal, `write` saves an episode in the folder, or is None for a replay in memory,
    and `wait` returns when the replay may take another step. `immediate` says that there is no
    journal, folder or ratio.
    """

    contents: ReplayContents
    lock: ForkSafeLock
    wait: Callable[[], None]
    note: Callable[[StepChange], None]
    write: Callable[[Episode], int] | None
    immediate: bool


class StepSource(StepRecording):
    """Steps of environments that are recorded together. `key` is its number in the journal."""

    def __init__(self, owner: StepOwner, spec: Spec, key: int, lanes: int) -> None:
        self.owner, self.spec = owner, spec
        self.key, self.lanes = key, lanes
        self.saved = np.zeros(lanes, np.int64)  # episodes

    @property
    def store(self) -> SegmentStore:
        """The memory of the replay."""
        return self.owner.contents.prepare(self.spec)

    @property
    def stream(self) -> StepStream:
        """Where the rows go."""
        return self.owner.contents.stream(self.key, self.lanes, self.spec)

    @override
    def begin(self, lanes: IntArray, rows: Rows) -> None:
        with self.owner.lock:
            self._apply(StepChange("begin", self.key, self.lanes, lanes, rows))

    def going(self, lanes: IntArray, rows: Rows) -> BoolArray:
        """Return where an episode is open whose last boundary rows are these."""
        stream = self.stream
        with self.owner.lock:
            going = stream.is_open[lanes]
            if True in going.tolist():
                for path, last in self.store.last(stream, lanes).items():
                    going &= equal_rows(last, rows[path])
        return going

    @override
    def step(self, lanes: IntArray, rows: Rows, ended: BoolArray) -> None:
        self.owner.wait()
        with self.owner.lock:
            self._apply(StepChange("step", self.key, self.lanes, lanes, rows, ended))

    @override
    def end(self, lane: int, terminated: bool, truncated: bool) -> None:
        with self.owner.lock:
            if self.stream.piece[lane] >= 0:
                flags = np.array([terminated, truncated])
                self._apply(StepChange("end", self.key, self.lanes, np.array([lane]), {}, flags))

    @override
    def save(self, lane: int, episode: Episode) -> int:
        with self.owner.lock:
            if self.owner.write is None:
                return self.store.number_of(self.stream, lane)
            number = self.owner.write(episode)
            self.saved[lane] += 1
            # The pieces of an episode that is saved late are not known any more: it keeps no number.
            known = lane if self.saved[lane] == self.stream.closed[lane] else -1
            self._apply(StepChange("save", self.key, self.lanes, np.array([known, number])))
            return number

    @override
    def drop(self, lane: int) -> None:
        self.saved[lane] += 1

    @override
    def close(self) -> None:
        with self.owner.lock:
            self._apply(StepChange("close", self.key, self.lanes, np.arange(self.lanes)))

    def _apply(self, change: StepChange) -> None:
        """Make a change, and note it."""
        self.owner.contents.apply(change, self.spec, numbered=self.owner.write is None)
        self.owner.note(change)


class _OpenEpisode:
    """Rows of an open episode, for the folder of a replay."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.rows: dict[str, list[AnyArray]] = {}
        self.steps = 0

    def begin(self, rows: Rows) -> None:
        self.rows = {path: [] for path in self._spec}
        for path, row in rows.items():
            self.rows[path].append(row.copy())

    def add(self, rows: Rows) -> None:
        self.steps += 1
        for path, field in self._spec.items():
            if field.align != "episode":
                self.rows[path].append(rows[path].copy())

    def take(self, truncated: bool = False) -> Episode:
        columns = {path: np.array(rows, self._spec[path].dtype) for path, rows in self.rows.items()}
        columns["truncations"][-1] |= truncated
        self.steps = 0
        return Episode(self._spec, columns)


class GymnasiumSteps:
    """Steps as a loop has them: the values that an environment got and returned. See `Replay.add`."""

    def __init__(self, source: StepSource, alone: bool) -> None:
        self.source, self.alone = source, alone
        spec, n = source.spec, source.lanes
        fields = {path: (field.dtype, (n, *field.shape)) for path, field in spec.items()}
        self._boundary = {path: fields[path] for path, field in spec.items() if field.align == "boundary"}
        self._others = {path: fields[path] for path in spec if path not in self._boundary}
        self._lanes = np.arange(n)
        self._resetting = np.zeros(n, np.bool_)  # environments whose next step only resets them
        self._last: Rows = {}  # the observations of these
        self._given: object = None  # the last next observations
        self._mode: object = None  # autoreset mode as it was given, and what takes steps of this mode without ends
        self._writer: StepWriter | None = None
        self._flat = False  # whether observations and actions are arrays, and nothing else is recorded
        self._lock = source.owner.lock
        saves = source.owner.write is not None
        self._unsaved: deque[tuple[int, Episode]] = deque()
        self._open: list[_OpenEpisode] = [_OpenEpisode(source.spec) for _ in range(n if saves else 0)]

    def add_inner(self, given: tuple[Any, ...], extras: Mapping[str, Any] | None, mode: object) -> bool:
        """Record a step inside of all episodes whose values are as in the step before. Return whether it is one.

        `given` has the values of `VALUES`, and the observations before and after the step.
        """
        writer = self._writer
        if writer is None or mode is not self._mode:
            return False
        values = given if self._flat and not extras else self._ordered(writer, given, extras)
        if values is None:
            return False
        with self._lock.plain:
            if not writer.take(values):
                return False
        self._given = given[-1]
        return True

    def _ordered(
        self, writer: StepWriter, given: tuple[Any, ...], extras: Mapping[str, Any] | None
    ) -> list[Any] | None:
        """The values of a step as `StepWriter.take` has them, or None if it has other columns."""
        *values, now, after = given
        columns = columns_of(values, extras)
        rows = [leaves("observations", each) for each in (now, after)]
        if len(columns) != len(writer.inner) or any(len(each) != len(writer.boundary) for each in rows):
            return None
        inner = [columns.get(path) for path in writer.inner]
        return inner + [each.get(path) for each in rows for path in writer.boundary]

    def add(self, observations: Any, following: Any, values: Mapping[str, Any], infos: Any, given_mode: object) -> None:
        """Record a step of all environments. `values` are the columns of the step, and of episodes."""
        mode = autoreset_of(given_mode, self.alone)
        self._writer = None
        now = self._rows(leaves("observations", observations), self._boundary)
        after = self._rows(leaves("observations", following), self._boundary)
        rows = self._rows(values, self._others)
        ended = (rows["terminations"] != 0) | (rows["truncations"] != 0)
        ends = True in ended.tolist()
        lanes = self._lanes
        if self._last:
            for path, last in self._last.items():  # unless the caller has reset the environment himself
                self._resetting &= equal_rows(last, now[path])
            lanes = np.flatnonzero(~self._resetting)
            now, after, rows = ({p: each[lanes] for p, each in part.items()} for part in (now, after, rows))
            ended = ended[lanes]
        if ends and mode == "SameStep":
            after = self._with_final(after, ended, infos)
        if len(lanes):
            self._begin(lanes, now, rows, observations is self._given)
            rows |= after
            self.source.step(lanes, rows, ended)
            if self._open:
                self._collect(lanes, rows, ended)
        self._given, self._last = following, {}
        if ends and mode == "NextStep":
            self._await_reset(lanes, after, ended)
        elif not ends and self.source.owner.immediate:
            self._mode = given_mode
            self._writer = writer = self.source.store.writer(self.source.stream, self.alone)
            if writer is not None:
                self._flat = writer.boundary == ["observations"] and tuple(writer.inner) == VALUES

    def _await_reset(self, lanes: IntArray, after: Rows, ended: BoolArray) -> None:
        """Note which environments the next step resets, and their last observations."""
        self._resetting = np.zeros(len(self._lanes), np.bool_)
        self._resetting[lanes] = ended
        self._last = {path: np.empty(shape, dtype) for path, (dtype, shape) in self._boundary.items()}
        for path, each in after.items():
            self._last[path][lanes] = each

    def close(self) -> None:
        """Save the open episodes as truncated, if the replay has a folder."""
        for lane, episode in enumerate(self._open):
            if episode.steps:
                self._end(lane)
        self._save()

    def to_state(self) -> dict[str, Any]:
        """Return plain values and arrays, for the steps that come next."""
        opened = [{path: packed(np.array(rows)) for path, rows in each.rows.items()} for each in self._open]
        return {
            "source": [self.source.key, self.source.lanes, self.alone, self.source.spec.to_json()],
            "saved": self.source.saved.tolist(),
            "resetting": self._resetting.tolist(),
            "last": {path: packed(rows) for path, rows in self._last.items()},
            "open": opened,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, with a source of the same environments."""
        self.source.saved = np.array(state["saved"], np.int64)
        self._resetting = np.array(state["resetting"], np.bool_)
        self._last = {path: unpacked(rows) for path, rows in state["last"].items()}
        for episode, rows in zip(self._open, state["open"], strict=True):
            episode.rows = {path: list(unpacked(values)) for path, values in rows.items()}
            episode.steps = len(episode.rows.get("rewards", ()))

    def _rows(self, values: Mapping[str, Any], wanted: Mapping[str, Kind]) -> dict[str, AnyArray]:
        if values.keys() != wanted.keys():
            raise DataError(
                f"expected values of {list(wanted)}, the columns of the replay, got {list(values)}; give further "
                "columns as extras="
            )
        alone = self.alone
        return {path: fitted(path, wanted[path], value, alone) for path, value in values.items()}

    def _begin(self, lanes: IntArray, now: Rows, rows: Rows, same: bool) -> None:
        """Begin episodes where none is open, or where the open one was left by a reset."""
        going = self.source.going(lanes, now)
        if False not in going.tolist():
            return
        left = ~going & self.source.stream.is_open[lanes]
        if same and left.any():
            raise DataError(
                "expected observations that stay as the step before returned them, got an array that the environment "
                "has filled again; give copies to add()"
            )
        for lane in lanes[left].tolist():
            self._end(lane)
        first = {path: each[~going] for path, each in now.items()}
        first |= {p: rows[p][~going] for p, field in self.source.spec.items() if field.align == "episode"}
        self.source.begin(lanes[~going], first)
        for lane, episode in enumerate(self._open):
            for i in np.flatnonzero(lanes[~going] == lane).tolist():
                episode.begin({path: each[i] for path, each in first.items()})

    def _end(self, lane: int) -> None:
        self.source.end(lane, False, True)
        if self._open:
            self._unsaved.append((lane, self._open[lane].take(truncated=True)))
            self._save()

    def _save(self) -> None:
        """Save the episodes that ended. One that cannot be written, as on a full disk, comes again at the next call."""
        while self._unsaved:
            self.source.save(*self._unsaved[0])
            self._unsaved.popleft()

    def _collect(self, lanes: IntArray, rows: Rows, ended: BoolArray) -> None:
        """Keep the rows of open episodes for the folder, and save the ended ones."""
        for lane, episode in enumerate(self._open):
            for i in np.flatnonzero(lanes == lane).tolist():
                episode.add({path: each[i] for path, each in rows.items()})
                if ended[i]:
                    self._unsaved.append((lane, episode.take()))
        self._save()

    def _with_final(self, after: dict[str, AnyArray], ended: BoolArray, infos: Any) -> dict[str, AnyArray]:
        """The next observations, where last observations of episodes replace first ones of the next."""
        finals = infos.get("final_obs") if is_mapping(infos) else None
        if finals is None:
            raise DataError(
                "expected infos['final_obs'] from environments that reset in the same step, got none; give the infos "
                "of the step, or next_observations from before the reset with autoreset='Disabled'"
            )
        after = {path: each.copy() for path, each in after.items()}
        for lane in np.flatnonzero(ended).tolist():
            for path, value in leaves("observations", _of_lane(finals, lane)).items():
                dtype, shape = self._boundary[path]
                after[path][lane] = fitted(path, (dtype, (1, *shape[1:])), value, True)[0]
        return after


def leaves(path: str, value: Any) -> dict[str, Any]:
    """Return the leaves of nested dicts and tuples by path."""
    if is_mapping(value):
        parts = value.items()
    elif is_tuple(value):
        parts = enumerate(value)
    else:
        return {path: value}
    return {name: leaf for key, inner in parts for name, leaf in leaves(f"{path}/{key}", inner).items()}


def columns_of(values: Sequence[Any], extras: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the columns of a step, from the values of `VALUES` and further ones."""
    columns = {
        name: leaf for path, value in zip(VALUES, values, strict=True) for name, leaf in leaves(path, value).items()
    }
    return columns | dict(extras or {})


def fitted(path: str, kind: Kind, value: Any, alone: bool) -> AnyArray:
    """Return the values of environments as an array of the dtype and shape of a column."""
    dtype, shape = kind
    array: AnyArray = np.asarray(value)
    if alone:
        array = array[None]
    if array.shape != shape:
        raise DataError(f"expected {path} of shape {shape[alone:]}, got {array.shape[alone:]}")
    if array.dtype == dtype:
        return array
    whole = array.dtype.kind in "bui" and dtype.kind in "ui"
    cast = array.astype(dtype) if whole or np.can_cast(array.dtype, dtype, "same_kind") else None
    if cast is None or (whole and not np.array_equal(cast, array)):
        raise DataError(f"expected {path} of {dtype}, got {array.dtype}; convert it where it is made")
    return cast


def spec_of(observations: Any, values: Mapping[str, Any], n: int, alone: bool) -> Spec:
    """Return the columns of the first step of a replay."""
    fields: dict[str, Field] = {}
    for path, value in {**leaves("observations", observations), **values}.items():
        array = np.asarray(value)
        shape = array.shape if alone else array.shape[1:]
        if not alone and array.shape[:1] != (n,):
            raise DataError(f"expected {path} of {n} environments, got the shape {array.shape}")
        if array.dtype.kind not in "biufc":
            raise DataError(f"expected {path} as an array of numbers, got {array.dtype}")
        dtype = np.dtype(np.float64) if path == "rewards" and array.dtype.kind != "f" else array.dtype
        fields[path] = Field(dtype, shape, "boundary" if path.split("/")[0] == "observations" else "step")
    return Spec(fields)


def autoreset_of(mode: Any, alone: bool) -> str:
    """Return the name of an autoreset mode of Gymnasium."""
    if mode is None and alone:
        return "Disabled"
    name = str(getattr(mode, "value", mode))
    if name not in MODES:
        raise ArgumentError(
            f"expected autoreset= as one of {list(MODES)} for a vector of environments, got {mode!r}; "
            "give envs.metadata['autoreset_mode'], or 'Disabled' if next_observations are always from before a reset"
        )
    return name


def _of_lane(values: Any, lane: int) -> Any:
    if is_mapping(values):
        return {key: _of_lane(inner, lane) for key, inner in values.items()}
    return tuple(_of_lane(inner, lane) for inner in values) if is_tuple(values) else values[lane]


def equal_rows(one: AnyArray, other: AnyArray) -> BoolArray:
    """Whether rows have the same bytes."""
    if len(one) == 1:
        return np.array([one.tobytes() == other.tobytes()])
    rows = (np.ascontiguousarray(each).reshape(len(each), -1).view(np.uint8) for each in (one, other))
    return (next(rows) == next(rows)).all(1)
