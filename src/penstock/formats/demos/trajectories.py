"""Make a source of trajectories in order, also of trajectories that were pickled as objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.containers.pickle import Trajectory
from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.narrowing import is_array, is_listed, is_mapping
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.spaces import Box, Dict, Space
from penstock.core.spec import Field, Spec
from penstock.errors import DataError, FormatError
from penstock.formats.base.account import Account, LeftOut
from penstock.formats.base.infos import TRUNCATED, plain, read_infos
from penstock.formats.demos.frames import FrameRows, Frames, FrameSource, stack_index

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
        """T."""
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
