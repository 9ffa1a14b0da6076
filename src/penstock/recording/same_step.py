"""Last observations and infos in SAME_STEP mode, where an environment resets before a wrapper sees the end.

An environment that reuses its arrays, or its info dict, then overwrites the last observation with the first of the next
episode. `copy_before_reset` prevents this for environments in this process. For others (`AsyncVectorEnv`, environments
of other libraries), `OverwriteCheck` detects it by comparing values.

The infos of such a step are of the reset, except `final_info` and what wrappers add about the episode that ended, such
as its statistics. `LastInfos` tells them apart.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv

from penstock.core import spaces
from penstock.core.narrowing import is_array, is_dict, is_mapping, is_tuple
from penstock.core.ragged import Array, Ragged
from penstock.errors import DataError
from penstock.recording.checks import RecordingWarning, Verdict

FINAL = ("final_obs", "_final_obs", "final_info", "_final_info")
CERTAIN_NBYTES = 64  # an array of fewer bytes may be equal by chance: a position on a small board
INFO_NBYTES = 8  # numbers in infos that changed to the infos of the reset: fewer bytes than one count are flags


def copy_before_reset(envs: VectorEnv[Any, Any, Any]) -> bool:
    """Make the environments of a `SyncVectorEnv` return copies when an episode ends. Cost: one copy an episode.

    The `step` of each environment object is replaced, so `envs.envs` keeps its members.
    """
    vector = envs.unwrapped
    if not isinstance(vector, SyncVectorEnv):
        return False
    for env in vector.envs:
        if getattr(env.step, "func", None) is not _copying_step:
            setattr(env, "step", functools.partial(_copying_step, env.step))  # noqa: B010 - a method of its type
    return True


def _copying_step(step: Callable[[Any], tuple[Any, ...]], action: Any) -> tuple[Any, ...]:
    observation, reward, terminated, truncated, info = step(action)
    if terminated or truncated:
        observation, info = _copied(observation), _copied(info)
    return observation, reward, terminated, truncated, info


def _copied(value: Any) -> Any:
    """Copies of arrays and containers. Other objects, which a copy could break, are returned unchanged."""
    if is_array(value):
        return value.copy()
    if is_dict(value):
        return {key: _copied(inner) for key, inner in value.items()}
    return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value


class NotedStep:
    """`step` of a vector environment, with the keys of the infos that it returned last."""

    def __init__(self, step: Callable[[Any], tuple[Any, ...]]) -> None:
        self._step = step
        self.keys: set[str] = set()

    def __call__(self, actions: Any) -> tuple[Any, ...]:
        """Take a step, and note the keys."""
        result = self._step(actions)
        self.keys = set(result[-1])
        return result


class LastInfos:
    """Keys of infos that are of the last step of an episode, although the environment has reset in that step.

    A key that a reset has returned is of the next episode. Another key is of the last step, unless it is from an
    environment that has `final_info` for these.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self._of_reset: set[str] = set()
        self._inner: NotedStep | None = None  # of the innermost environment; None without wrappers
        inner: Any = envs.unwrapped
        if hasattr(inner, "step") and inner is not envs:
            if not isinstance(inner.step, NotedStep):  # of another collector
                inner.step = NotedStep(inner.step)
            self._inner = inner.step

    def note_reset(self, infos: Mapping[str, Any]) -> None:
        self._of_reset |= infos.keys()

    def keys(self, infos: Mapping[str, Any]) -> list[str]:
        """Return the keys of a step that are of the episodes that ended in it."""
        other = [key for key in infos if key not in self._of_reset and key not in FINAL]
        if "final_info" not in infos:
            return other
        return [] if self._inner is None else [key for key in other if key not in self._inner.keys]


def pick_final(values: Any, space: spaces.Space, k: int) -> Any:
    """Return the last observation of one environment."""
    if isinstance(space, spaces.Dict) and isinstance(values, Mapping):
        return {key: pick_final(values[key], inner, k) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple) and is_tuple(values):
        return tuple(pick_final(part, inner, k) for part, inner in zip(values, space.spaces, strict=True))
    return values[k]


class OverwriteCheck:
    """Detect last rows that an environment overwrote with the first row of the next episode.

    A leaf is suspect if it changed in the last step to exactly its value after the reset. One unequal pair clears a
    leaf of an environment for all time, because a reused array is always equal. Equal arrays of at least 64 bytes, and
    of several floats, are an overwrite at once. Others may be equal by chance: the first is a warning, and the second
    in a row is an overwrite.
    """

    def __init__(self, verdict: Verdict) -> None:
        self._verdict: Verdict = verdict
        self._hits: dict[tuple[int, str], int] = {}  # in a row; -1 where a leaf is cleared
        self._warned = False

    def __call__(self, k: int, group: str, columns: Mapping[str, Array], following: Mapping[str, Any]) -> None:
        """Compare the last rows of a closed episode with the values after the reset."""
        leaves = [_Leaf(path, columns[path], value) for path, value in following.items() if path in columns]
        if self._verdict == "keep" or not leaves:
            return
        suspects = [leaf for leaf in leaves if leaf.is_array and self._counts(k, leaf.path, leaf.equal, leaf.moved)]
        certain = [leaf for leaf in suspects if leaf.telling or self._hits[k, leaf.path] > 1]
        if not suspects and self._all_equal(k, group, leaves):
            suspects = leaves
            certain = leaves if self._hits[k, group + "/"] > 1 else []
        if suspects:
            self._report(k, group, suspects, certain)

    def _all_equal(self, k: int, group: str, leaves: list[_Leaf]) -> bool:
        """Whether all values of the environment are equal, as with one object that it reuses for everything."""
        changed = group == "observations" or sum(leaf.nbytes for leaf in leaves if leaf.moved) >= INFO_NBYTES
        return self._counts(k, group + "/", all(leaf.equal for leaf in leaves), changed)

    def _counts(self, k: int, path: str, equal: bool, changed: bool) -> bool:
        hits = self._hits.get((k, path), 0)
        if not equal or hits < 0:
            self._hits[k, path] = -1
            return False
        self._hits[k, path] = hits + changed
        return changed

    def _report(self, k: int, group: str, suspects: list[_Leaf], certain: list[_Leaf]) -> None:
        message = (
            f"expected last {group} that differ from the first of the next episode, got the same in "
            f"{', '.join(leaf.path for leaf in certain or suspects)} of environment {k}: "
            "an environment that reuses its arrays overwrites them when it resets in the same step"
        )
        advice = "return copies from the environment, or reset in the next step; overwritten='keep' records them"
        if certain and self._verdict == "error":
            raise DataError(f"{message}; the episode was not saved; {advice}")
        if not self._warned:
            self._warned = True
            warnings.warn(f"{message}; {advice}; not said again", RecordingWarning, stacklevel=5)


class _Leaf:
    """One column of a closed episode, and its value after the reset."""

    def __init__(self, path: str, rows: Array, following: Any) -> None:
        self.path = path
        before = _bits(rows, -2)
        last = _bits(rows, -1)
        after = _value_bits(rows, following)
        self.equal, self.moved = last == after, before != last
        self.is_array = not isinstance(rows, Ragged) and rows.ndim > 1
        self.nbytes = len(last)
        floats = not isinstance(rows, Ragged) and rows.dtype.kind == "f" and rows[-1].size > 1
        self.telling = floats or len(last) >= CERTAIN_NBYTES


def _bits(rows: Array, i: int) -> bytes:
    if isinstance(rows, Ragged):
        return rows[i : i + 1 or None].strings()[0].encode()
    return rows[i].tobytes()


def _value_bits(rows: Array, value: Any) -> bytes:
    if isinstance(rows, Ragged):
        return str(value).encode()
    return np.asarray(value).astype(rows.dtype).tobytes()


def flat_infos(info: Mapping[str, Any], prefix: str = "infos") -> dict[str, Any]:
    """Return the leaves of nested infos by path, without None."""
    leaves: dict[str, Any] = {}
    for key, value in info.items():
        if is_mapping(value):
            leaves |= flat_infos(value, f"{prefix}/{key}")
        elif value is not None:
            leaves[f"{prefix}/{key}"] = value
    return leaves
