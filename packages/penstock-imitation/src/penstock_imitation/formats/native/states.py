"""Files with equal numbers of states, actions and dones: the state after their last action is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray
from penstock.errors import FormatError
from penstock.formats.base.infos import plain
from penstock.formats.demos.trajectories import Track, cuts, numbers


def flags(value: Any, *, path: object, where: str) -> BoolArray:
    """`[n]` dones."""
    values = numbers(value, "dones", path=path, where=where)
    if values.ndim != 1 or values.dtype.kind not in "biu" or not np.isin(values, (0, 1)).all():
        raise FormatError(f"expected dones of 0 or 1, got {values.dtype}{list(values.shape)}", path=path, where=where)
    return values.astype(np.bool_)


def channels_first(states: AnyArray, *, path: object, where: str) -> AnyArray:
    """`[n, C, H, W]` uint8 images out of `[n, H, W, C]`: one copy."""
    if states.ndim != 4 or states.dtype != np.uint8:
        message = f"expected states as uint8 images [n, H, W, C], got {states.dtype}{list(states.shape)}"
        raise FormatError(message, path=path, where=where)
    return np.ascontiguousarray(states.transpose(0, 3, 1, 2))


def tracks_of(
    states: AnyArray,
    columns: Mapping[str, AnyArray],
    dones: BoolArray,
    *,
    path: object,
    where: str,
    metadata: Mapping[str, Any],
) -> list[Track]:
    """The episodes of `n` states, `columns` (`actions`, perhaps `rewards`) and `dones`, `n` of each: `n - 1` steps.

    A done ends an episode, and so does the end. The last action, reward and done, whose next state is missing, are
    metadata of the last episode: `final_action`, `final_reward`, `final_done`.
    """
    lengths = {"states": len(states), **{name: len(array) for name, array in columns.items()}, "dones": len(dones)}
    if len(set(lengths.values())) > 1 or not len(states):
        raise FormatError(f"expected equal numbers of each, at least 1, got {lengths}", path=path, where=where)
    ranges = cuts(dones)
    tracks: list[Track] = []
    for a, b in ranges:
        entries = dict(metadata)
        if b == ranges[-1][1]:
            entries |= {f"final_{name.removesuffix('s')}": plain(array[-1]) for name, array in columns.items()}
            entries["final_done"] = bool(dones[-1])
        rewards = columns["rewards"][a:b] if "rewards" in columns else None
        terminated = bool(dones[b - 1]) if b > a else False
        tracks.append(
            Track({"": [states[a : b + 1]]}, {"": columns["actions"][a:b]}, rewards, None, terminated, entries)
        )
    return tracks
