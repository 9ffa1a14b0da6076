"""A source of trajectories in order, also of pickled ones; observations stay in the arrays they were read as."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from typing_extensions import override

from penstock.containers.pickle import Trajectory
from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.narrowing import is_array, is_listed, is_mapping
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spaces import Box, Dict, Space
from penstock.core.spec import Align, Field, Spec
from penstock.errors import DataError, FormatError
from penstock.formats.base.account import Account, LeftOut
from penstock.formats.base.infos import TRUNCATED, plain, read_infos
from penstock.formats.base.state import SourceState, StateSource
from penstock.formats.memory import MemorySource
from penstock.kernels.digest import digest_of
from penstock.kernels.rows import RowMap

SMALL = 4096  # bytes of a frame below which runs are joined: a run costs more than its copy


class FrameRows(Protocol):
    """The rows of a column, wherever they are."""

    def __len__(self) -> int:
        """How many rows there are."""
        ...

    def field(self, align: Align) -> Field: ...

    def digest(self) -> bytes:
        """A digest that changes with the values."""
        ...

    def read(self, selection: Selection, out: AnyArray) -> None: ...


class Frames:
    """Rows that are made of frames.

    `runs` are arrays `[n, *shape]` of one dtype and shape, frames in order. Without `index`, row `r` is frame `r`. With
    `index`, `[rows, k]` int64, row `r` is the frames `index[r]` side by side along `axis` (0 or -1) of a frame; -1 is a
    frame of zeros.

    Cost: the runs, which are not copied if they are C-contiguous and large, and 8 k bytes a row.
    """

    def __init__(self, runs: Sequence[AnyArray], index: IntArray | None = None, axis: int = 0) -> None:
        buffers = [np.ascontiguousarray(run) for run in runs]
        if len(buffers) > 1 and buffers[0].nbytes // max(len(buffers[0]), 1) < SMALL:
            buffers = [np.concatenate(buffers)]
        self.runs = buffers
        self.index = index
        self.axis = axis

    def __reduce__(self) -> tuple[Any, ...]:
        return Frames, (self.runs, self.index, self.axis)

    def __len__(self) -> int:
        return sum(len(run) for run in self.runs) if self.index is None else len(self.index)

    @property
    def shape(self) -> tuple[int, ...]:
        inner = list(self.runs[0].shape[1:])
        if self.index is not None:
            inner[self.axis] *= self.index.shape[1]
        return tuple(inner)

    def field(self, align: Align) -> Field:
        return Field(self.runs[0].dtype, self.shape, align)

    def digest(self) -> bytes:
        """A digest of all values. Cost: one pass over the frames."""
        parts = [*self.runs, np.array(self.axis), *([] if self.index is None else [self.index])]
        return b"".join(digest_of(part) for part in parts)

    @cached_property
    def _rows(self) -> RowMap:
        width = self.runs[0].dtype.itemsize * int(np.prod(self.runs[0].shape[1:], dtype=np.int64))
        lengths = np.array([len(run) for run in self.runs], np.int64)
        buffers = [run.reshape(-1).view(np.uint8) for run in self.runs]
        return RowMap.build(buffers, lengths, np.arange(len(buffers)), lengths * 0, width)

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Rows into the covered places of `out` `[n * L, *shape]`: one gather, and a copy where `axis` is -1."""
        if self.index is None:
            self._rows.gather(selection.start, selection.length, selection.destination, out.reshape(-1).view(np.uint8))
            return
        within = np.arange(int(selection.length.sum())) - np.repeat(offsets_of(selection.length)[:-1], selection.length)
        wanted = self.index[np.repeat(selection.start, selection.length) + within]
        places = np.repeat(selection.destination, selection.length) + within
        if self.axis == 0:
            self._stack(wanted, places, out)
            return
        m, k = wanted.shape
        *outer, channels = self.runs[0].shape[1:]
        beside = np.empty((m, *outer, k * channels), out.dtype)
        frames = np.empty((m, k, *outer, channels), out.dtype)
        self._stack(wanted, np.arange(m, dtype=np.int64), frames)
        beside.reshape(m, *outer, k, channels)[...] = np.moveaxis(frames, 1, -2)
        out.reshape(-1, *self.shape)[places] = beside

    def _stack(self, wanted: IntArray, places: IntArray, out: AnyArray) -> None:
        """Frames `wanted` `[m, k]`, one behind the other, to `places` `[m]`."""
        cells = (places[:, None] * wanted.shape[1] + np.arange(wanted.shape[1], dtype=np.int64)).ravel()
        frames, there = wanted.ravel(), wanted.ravel() >= 0
        flat = out.reshape(-1).view(np.uint8)
        if not there.all():
            flat.reshape(-1, self._rows.row_bytes)[cells[~there]] = 0
        self._rows.gather(frames[there], np.ones(int(there.sum()), np.int64), cells[there], flat)


def stack_index(lengths: Sequence[int], k: int, *, repeat: bool) -> IntArray:
    """`[rows, k]` the last `k` frames at every row, oldest first; before the first one it is repeated, or -1."""
    first = np.repeat(offsets_of(lengths)[:-1], lengths)[:, None]
    index = np.arange(len(first))[:, None] + np.arange(1 - k, 1)
    return np.maximum(index, first) if repeat else np.where(index < first, -1, index)


class FrameSource(StateSource[SourceState]):
    """Columns in memory, some of them `Frames`. Those of `spec` that are not in `frames` are in `columns`."""

    def __init__(
        self,
        spec: Spec,
        frames: Mapping[str, FrameRows],
        columns: Mapping[str, AnyArray | Ragged],
        offsets: IntArray,
        metadata: Mapping[str, Any],
        episode_metadata: Sequence[Mapping[str, Any]],
        account: Account | None = None,
    ) -> None:
        rest = Spec({path: field for path, field in spec.items() if path not in frames})
        self._rest = MemorySource(rest, columns, offsets, metadata, episode_metadata)
        self._state = replace(
            self._rest.state,
            spec=spec,
            digest=partial(_digest, spec, self._rest, dict(frames)),
            arrays={**self._rest.state.arrays, **frames},
            account=account or Account(),
        )
        self._given = (spec, dict(frames), dict(columns), offsets, metadata, episode_metadata, account)

    def __reduce__(self) -> tuple[Any, ...]:
        return FrameSource, self._given

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        return self._rest.episode_metadata(episodes)


def _digest(spec: Spec, rest: MemorySource, frames: Mapping[str, FrameRows]) -> str:
    """Digest of spec and all values. Cost: one pass over the data."""
    # The space of observations follows from their fields, and its bounds would be millions of numbers.
    without = Spec(spec.fields, None, spec.action_space).fingerprint
    digest = hashlib.sha256(f"{without} {rest.fingerprint}".encode())
    for rows in frames.values():
        digest.update(rows.digest())
    return digest.hexdigest()


NUMBERS = "biufc"


@dataclass(frozen=True, eq=False)
class Track:
    """One trajectory of T steps.

    `observations` and `actions` are given by path below the column, `""` for the column itself: runs of rows that
    together are T + 1, or {} where the source is given `Frames`; and arrays `[T, ...]`, at least one. `rewards` `[T]`
    or None, `infos` T dicts or None; `terminated`, whether the last step ends the episode, and is not merely
    the last there is.
    """

    observations: Mapping[str, Sequence[AnyArray]]
    actions: Mapping[str, AnyArray]
    rewards: AnyArray | None = None
    infos: Sequence[Mapping[str, Any]] | None = None
    terminated: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def steps(self) -> int:
        return len(next(iter(self.actions.values())))


def source_of(
    tracks: Sequence[Track],
    metadata: Mapping[str, Any],
    *,
    path: object,
    action_space: Space | None = None,
    frames: Mapping[str, FrameRows] | None = None,
    frame_stack: int | None = None,
    left_out: Sequence[LeftOut] = (),
) -> FrameSource:
    """Trajectories as a source with Minari's columns; rewards and infos if every trajectory has them."""
    if not tracks:
        raise FormatError("expected at least one trajectory, got none", path=path)
    lengths = [track.steps for track in tracks]
    offsets = offsets_of(lengths)
    rows = _observations(tracks, path) if frame_stack is None else _stacked(tracks, frame_stack, path)
    seen = {f"observations/{p}".rstrip("/"): f for p, f in {**(frames or {}), **rows}.items()}
    columns: dict[str, tuple[Field, AnyArray | Ragged]] = {**_actions(tracks, path)}
    rewards = [track.rewards for track in tracks if track.rewards is not None]
    if len(rewards) == len(tracks):
        columns["rewards"] = _joined(rewards, lengths, "rewards", path)
    left = ["rewards"] if 0 < len(rewards) < len(tracks) else []
    ends = np.where(np.array(lengths) > 0, offsets[1:] - 1, -1)
    columns |= _flags(tracks, ends, int(offsets[-1]))
    entries = {**metadata}
    episodes = [dict(track.metadata) for track in tracks]
    if all(track.infos is not None for track in tracks):
        infos = read_infos([step for track in tracks for step in track.infos or ()], ends)
        columns |= infos.columns
        episodes = [one | other for one, other in zip(episodes, infos.episodes, strict=True)]
        left += infos.left_out
    elif any(track.infos is not None for track in tracks):
        left.append("infos")
    uneven = "expected a value of one type and shape in each step of each trajectory, got others or none"
    unread = [LeftOut("column", name, "uneven-column", uneven) for name in sorted(left)]
    account = Account((*left_out, *unread), ends="each trajectory of the file is an episode")
    if not seen:
        raise FormatError("expected observations, got none", path=path)
    fields = {p: f.field("boundary") for p, f in seen.items()}
    spec = Spec(fields | {p: f for p, (f, _) in columns.items()}, observation_space_of(fields), action_space)
    arrays = {p: a for p, (_, a) in columns.items()}
    return FrameSource(spec, seen, arrays, offsets, plain(entries), plain(episodes), account)


def _observations(tracks: Sequence[Track], path: object) -> dict[str, Frames]:
    kinds = None
    for i, track in enumerate(tracks):
        seen_kinds = {p: {(run.dtype, run.shape[1:]) for run in runs} for p, runs in track.observations.items()}
        rows = {sum(map(len, runs)) for runs in track.observations.values()}
        where = f"trajectory {i}"
        if rows - {track.steps + 1}:
            message = f"expected {track.steps + 1} observations for {track.steps} actions"
            raise FormatError(f"{message}, got {sorted(rows)}", path=path, where=where)
        kinds = kinds or seen_kinds
        if seen_kinds != kinds or any(len(kind) > 1 for kind in kinds.values()):
            message = f"expected all observations to be of one shape and dtype, got {kinds} and {seen_kinds}"
            raise FormatError(message, path=path, where=where)
    return {p: Frames([run for track in tracks for run in track.observations[p]]) for p in kinds or ()}


def _stacked(tracks: Sequence[Track], k: int, path: object) -> dict[str, Frames]:
    if type(k) is not int or k < 1:
        raise DataError(f"expected frame_stack as a number of frames, 1 or more, got {k!r}")
    single = _observations(tracks, path)
    if list(single) != [""] or len(single[""].shape) != 3:
        shapes = {name: list(frames.shape) for name, frames in single.items()}
        raise FormatError(f"expected images [C, H, W] to stack, got {shapes}", path=path)
    index = stack_index([track.steps + 1 for track in tracks], k, repeat=False)
    return {"": Frames(single[""].runs, index)}


def _actions(tracks: Sequence[Track], path: object) -> dict[str, tuple[Field, AnyArray]]:
    names, lengths = tracks[0].actions.keys(), [track.steps for track in tracks]
    for i, track in enumerate(tracks):
        if track.actions.keys() != names:
            message = f"expected the actions {list(names)}, which the first has, got {list(track.actions)}"
            raise FormatError(message, path=path, where=f"trajectory {i}")
    return {
        column: _joined([track.actions[name] for track in tracks], lengths, column, path)
        for name in names
        for column in [f"actions/{name}".rstrip("/")]
    }


def _joined(parts: Sequence[AnyArray], lengths: Sequence[int], name: str, path: object) -> tuple[Field, AnyArray]:
    full = [part for part in parts if len(part)] or parts  # an empty list of numbers has lost its dtype
    dtype, shape = full[0].dtype, full[0].shape[1:]
    for i, (part, length) in enumerate(zip(parts, lengths, strict=True)):
        if len(part) != length or (length and (part.shape[1:], part.dtype) != (shape, dtype)):
            message = f"expected {name} as {length} of {dtype}{list(shape)}, got {part.dtype}{list(part.shape)}"
            raise FormatError(message, path=path, where=f"trajectory {i}")
    return Field(dtype, shape), np.concatenate(full)


def _flags(tracks: Sequence[Track], ends: IntArray, steps: int) -> dict[str, tuple[Field, AnyArray]]:
    terminations, truncations = np.zeros((2, steps), np.bool_)
    terminated = np.array([track.terminated for track in tracks], np.bool_)
    terminations[ends[terminated & (ends >= 0)]] = True
    truncations[ends[~terminated & (ends >= 0)]] = True
    flag = Field(np.dtype(np.bool_))
    return {"terminations": (flag, terminations), "truncations": (flag, truncations)}


def observation_space_of(fields: Mapping[str, Field]) -> Space | None:
    """The space of observations that are images, uint8 of three dimensions; None for others."""
    if not all(f.dtype == np.uint8 and len(f.shape) == 3 for f in fields.values()):
        return None
    boxes = {
        p: Box(np.zeros(f.shape, np.uint8), np.full(f.shape, 255, np.uint8), f.dtype) for p, f in sorted(fields.items())
    }
    return boxes.get("observations") or Dict({p.removeprefix("observations/"): box for p, box in boxes.items()})


def unpickled(value: Any, *, path: object, where: str, metadata: Mapping[str, Any] | None = None) -> Track:
    """A pickled `Trajectory` as a track.

    It is terminated as it says itself; else it is not if its last info says `TimeLimit.truncated`, or has a `discount`
    above 0, which in dm_control's terms is an end in time alone.
    """
    if not isinstance(value, Trajectory):
        raise FormatError(f"expected a trajectory, got {type(value).__name__}", path=path, where=where)
    actions = numbers(value.acts, "acts", path=path, where=where)
    if value.rews is None:
        rewards = None
    else:
        rewards = numbers(value.rews, "rews", path=path, where=where)
        if rewards.shape != (len(actions),):
            message = f"expected {len(actions)} rewards for as many actions, got {list(rewards.shape)}"
            raise FormatError(message, path=path, where=where)
    infos = _infos(value.infos, len(actions), path, where)
    last: Mapping[str, Any] = infos[-1] if infos else {}
    ended = last.get(TRUNCATED) is not True and not _number(last.get("discount"))
    terminated = ended if value.terminal is None else value.terminal
    seen = observations(value.obs, path=path, where=where)
    rows = {sum(map(len, runs)) for runs in seen.values()}
    if rows != {len(actions) + 1}:
        message = f"expected {len(actions) + 1} observations for {len(actions)} actions, got {sorted(rows)}"
        raise FormatError(message, path=path, where=where)
    return Track(seen, {"": actions}, rewards, infos, terminated, metadata or {})


def _number(value: Any) -> float:
    if isinstance(value, np.integer | np.floating):
        return float(value.item())
    return float(value) if isinstance(value, int | float) else 0.0


def _infos(value: Any, steps: int, path: object, where: str) -> list[Mapping[str, Any]] | None:
    if value is None:
        return None
    listed = _listed(value)
    if len(listed) != steps or not all(isinstance(info, Mapping) for info in listed):
        raise FormatError(f"expected infos as {steps} dicts, one a step, got others", path=path, where=where)
    return listed


def _listed(value: Any) -> list[Any]:
    """The items of a list, a tuple or an array; none of anything else."""
    return list(value) if is_listed(value) or (is_array(value) and value.ndim) else []


def observations(value: Any, *, path: object, where: str) -> dict[str, list[AnyArray]]:
    """Runs of rows by path below the column, of an array, or a list of arrays or of dicts. Nothing is copied."""
    if is_array(value) and value.dtype.kind in NUMBERS and value.ndim:
        return {"": [value]}
    rows = _listed(value)
    if not rows:
        raise FormatError(f"expected observations, got {type(value).__name__} of none", path=path, where=where)
    if not is_mapping(rows[0]):
        return {"": [numbers(row, "an observation", path=path, where=where, least=0)[None] for row in rows]}
    names = rows[0].keys()
    if not all(is_mapping(row) and row.keys() == names for row in rows) or not names:
        raise FormatError(f"expected every observation to have {list(names)}", path=path, where=where)
    if not all(type(name) is str and name and "/" not in name for name in names):
        raise FormatError(f"expected names of observations, got {list(names)}", path=path, where=where)
    return {name: [numbers(row[name], name, path=path, where=where, least=0)[None] for row in rows] for name in names}


def numbers(value: Any, name: str, *, path: object, where: str, least: int = 1) -> AnyArray:
    """An array of numbers with at least `least` dimensions."""
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise FormatError(f"expected {name} as numbers of one shape, got others", path=path, where=where) from error
    if array.dtype.kind not in NUMBERS or array.ndim < least:
        raise FormatError(f"expected {name} as numbers, got {array.dtype}{list(array.shape)}", path=path, where=where)
    return array


def cuts(dones: BoolArray) -> list[tuple[int, int]]:
    """Episodes, first step and the first after it, in a file with equal numbers of states, actions and dones.

    The next state of the last action is missing, so it is no step. A done ends an episode with the state that
    follows it in the file, and another one begins there.
    """
    kept = dones[:-1].copy()
    kept[-1:] = True
    ends = (np.flatnonzero(kept) + 1).tolist() or [0]
    return list(zip([0, *ends[:-1]], ends, strict=True))
