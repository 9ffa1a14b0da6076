"""`find_ends`: where the episodes of a flat file end, and which of them terminated; for all formats of flat files.

Arrays are known by their names (`END_NAMES`; docs/formats/demos.md has the table). Rows of episodes, lengths and
offsets decide alone. Otherwise each mark of an end is one: a flag, an id that changes, a step number that starts again.
The account names an array that may mark further ends and is not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.ragged import offsets_of
from penstock.errors import ArgumentError, FormatError
from penstock.formats.base.account import LeftOut, Thing
from penstock.formats.base.step_runs import StepRuns, either

Meaning = Literal[
    "termination",
    "truncation",
    "done",
    "not done",
    "mask",
    "end",
    "start",
    "id",
    "step",
    "lengths",
    "offsets",
    "cuts",
    "unused",
]
MEANINGS: tuple[Meaning, ...] = get_args(Meaning)

IDS = (
    *("episode_index", "episode_id", "episode", "episode_idx", "episode_number"),
    *("trajectory_id", "trajectory_index", "trajectory", "traj_id", "traj_index", "rollout_id", "game_id"),
    *("episode_ids", "trajectory_ids", "traj_ids", "traj_idx"),
)
"""Names of ids of episodes, the most common first."""
STEPS = ("frame_index", "step_index", "step_idx", "step_id", "timestep", "timesteps", "time_step", "step", "steps")
"""Names of step numbers within an episode, the most common first."""

END_NAMES: Mapping[str, Meaning] = {
    **dict.fromkeys(("terminals", "terminal", "terminations", "terminateds", "terminated"), "termination"),
    "is_terminal": "termination",
    **dict.fromkeys(("timeouts", "timeout", "truncations", "truncateds", "truncated", "is_truncated"), "truncation"),
    **dict.fromkeys(("dones", "done"), "done"),
    **dict.fromkeys(("not_done", "not_dones"), "not done"),
    "masks": "mask",
    **dict.fromkeys(("episode_terminals", "dones_float", "ends", "is_last", "last"), "end"),
    **dict.fromkeys(("episode_ends", "trajectory_ends", "traj_ends"), "end"),
    **dict.fromkeys(("episode_starts", "trajectory_starts", "traj_starts", "is_first", "index"), "start"),
    **dict.fromkeys(("lengths", "episode_lengths", "traj_lengths", "trajectory_lengths"), "lengths"),
    "offsets": "offsets",
    "indices": "cuts",
    **dict.fromkeys(IDS, "id"),
    **dict.fromkeys(STEPS, "step"),
}
"""Meaning of an array by its name."""
PROBE = 4096  # first rows of an array of unknown name that tell whether all are worth reading
FLAGS: tuple[Meaning, ...] = ("termination", "truncation", "done", "not done", "end", "start")
STRICT = (  # names that no other arrays have
    *("terminals", "terminal", "terminations", "timeouts", "truncations", "dones", "done"),
    *("episode_ends", "episode_starts", "lengths", "offsets", "indices"),
)
_HINT = re.compile(r"end|done|term|trunc|timeout|last|final|reset|first|start|bound", re.IGNORECASE)


def meaning_of(name: str, meanings: Mapping[str, Meaning] | None = None) -> Meaning | None:
    """Return what an array marks, by its name or as the caller says; None if the name is not known."""
    given = (meanings or {}).get(name)
    return given or END_NAMES.get(name.rpartition(".")[2])


def check_meanings(meanings: Mapping[str, Meaning], names: Iterable[str]) -> None:
    """Raise `ArgumentError` for an unknown meaning, or a meaning of an array that does not exist."""
    listed = sorted(names)
    for name, meaning in meanings.items():
        if meaning not in MEANINGS:
            raise ArgumentError(f"expected ends[{name!r}] among {list(MEANINGS)}, got {meaning!r}")
        if name not in listed:
            raise ArgumentError(f"expected ends of arrays among {listed}, got {name!r}")


@dataclass(frozen=True, eq=False)
class MarkArray:
    """An array that may mark ends, which is read when it is needed."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rows: Callable[[int, int], AnyArray]

    @classmethod
    def of(cls, array: AnyArray) -> MarkArray:
        return cls(array.shape, array.dtype, lambda a, b: array[a:b])

    @property
    def is_row(self) -> bool:
        """Whether each row is one number."""
        return self.dtype.kind in "biuf" and len(self.shape) > 0 and all(size == 1 for size in self.shape[1:])

    @cached_property
    def values(self) -> AnyArray:
        """All rows, each one number."""
        return np.asarray(self.rows(0, self.shape[0])).reshape(self.shape[0])

    def head(self) -> AnyArray:
        count = min(PROBE, self.shape[0])
        return np.asarray(self.rows(0, count)).reshape(count)


@dataclass(frozen=True, eq=False)
class EpisodeEnds:
    """Where episodes end, and how."""

    offsets: IntArray
    terminations: BoolArray
    truncations: BoolArray
    sentence: str
    consumed: frozenset[str]
    left_out: tuple[LeftOut, ...]


def find_ends(
    arrays: Mapping[str, MarkArray],
    rows: int,
    *,
    path: object,
    meanings: Mapping[str, Meaning] | None = None,
    lengths: Sequence[int] | None = None,
    limit: int | None = None,
    breaks: Callable[[], BoolArray | None] | None = None,
) -> EpisodeEnds:
    """Return where the episodes of a flat file end."""
    marks = _Marks(arrays, rows, path, meanings or {})
    sentence: list[str]
    if lengths is not None:
        offsets, sentence = marks.sound(offsets_of(np.array(lengths, np.int64)), "lengths"), ["as the option says"]
        deciding: list[str] = []
    elif (stated := marks.stated()) is not None:
        offsets, deciding, sentence = stated
    else:
        offsets, deciding, sentence = marks.joint(limit, breaks)
    terminations, sources = marks.terminations(offsets)
    truncated = either((marks.either("truncation"), marks.limited))
    truncations = np.zeros(rows, np.bool_) if truncated is None else truncated.copy()
    last = _last_rows(offsets)
    truncations[last[~terminations[last]]] = True
    unused = marks.unused(offsets, {*deciding, *sources}) if lengths is None else ()
    if sentence and unused:
        names = " and ".join(f"`{entry.where}`" for entry in unused)
        sentence = [*sentence, f"; {names} {'is' if len(unused) == 1 else 'are'} not used"]
    text = f"episodes end {''.join(sentence)}" if sentence else ""
    consumed = marks.consumed(last, terminations, truncations)
    return EpisodeEnds(offsets, terminations, truncations, text, consumed, tuple(unused))


class _Marks:
    """The arrays of a flat file, by what they mark."""

    def __init__(
        self, arrays: Mapping[str, MarkArray], rows: int, path: object, meanings: Mapping[str, Meaning]
    ) -> None:
        self._arrays, self._rows = arrays, rows
        self._path = path
        self._unknown: list[str] = []
        self._by_meaning: dict[Meaning, list[str]] = {meaning: [] for meaning in MEANINGS}
        self._flags: dict[str, BoolArray] = {}
        self._stated: dict[str, IntArray] = {}
        self._unordered: dict[str, int] = {}
        self.limited: BoolArray | None = None
        for name in arrays:
            meaning = meaning_of(name, meanings)
            strict = name in meanings or name in STRICT
            if meaning is None or (meaning != "unused" and not self._fits(name, meaning, strict)):
                self._unknown.append(name)
            else:
                self._by_meaning[meaning].append(name)
        for name in self._by_meaning["termination"]:
            if arrays[name].shape[0] != rows:
                self._flags[name] = self._of_episodes(name)

    def _fits(self, name: str, meaning: Meaning, strict: bool) -> bool:
        """Whether an array can be what its name says."""
        array = self._arrays[name]
        is_step = array.is_row and array.shape[0] == self._rows
        if meaning in ("id", "step", "mask"):
            is_text = meaning == "id" and array.dtype.kind == "U" and array.shape == (self._rows,)
            return is_text or (is_step and (_is_binary(array.values) if meaning == "mask" else _is_whole(array)))
        if meaning in ("lengths", "offsets", "cuts"):
            return self._states(name, meaning, strict)
        if meaning in ("end", "start"):
            is_flag = is_step and _is_binary(array.values) and (meaning == "end" or bool(array.values[0]))
            return is_flag or self._states(name, meaning, strict)
        # As many as episodes, as imitation has them, are spread over the steps later.
        if is_step or (meaning == "termination" and len(array.shape) == 1 and array.shape[0] < self._rows):
            return True
        expected = f"{self._rows} rows of one number, one for each action"
        return strict and bool(array.shape) and self._misfit(name, expected)

    def _states(self, name: str, meaning: Meaning, strict: bool) -> bool:
        """Whether an array states the rows of episodes."""
        array = self._arrays[name]
        if meaning == "start" and array.dtype.kind == "b":
            fault = f"{self._rows} flags of episodes that follow one another"
        elif len(array.shape) != 1 or (array.dtype.kind not in "biu" and array.shape[0]):
            fault = "a row of whole numbers"
        else:
            offsets = self._offsets(name, meaning)
            if strict or (self._is_sound(offsets) and array.shape[0] < self._rows):
                self._stated[name] = self.sound(offsets, name)
                return True
            return False
        return strict and self._misfit(name, fault)

    def _misfit(self, name: str, expected: str) -> bool:
        """Raise the error of an array that is not what its name says."""
        array = self._arrays[name]
        message = f"expected {expected}, got {array.dtype}{list(array.shape)}"
        raise FormatError(message, path=self._path, where=name)

    def _offsets(self, name: str, meaning: Meaning) -> IntArray:
        numbers = self._arrays[name].values.astype(np.int64)
        if meaning == "lengths":
            return offsets_of(numbers)
        if meaning == "offsets":
            return numbers
        if meaning == "cuts":  # between episodes, as of np.split
            return np.concatenate([[0], numbers, [self._rows]]).astype(np.int64)
        if meaning == "start":
            return np.append(numbers, self._rows).astype(np.int64)
        last_rows = len(numbers) and numbers[-1] == self._rows - 1  # otherwise the rows after them
        return np.concatenate([[0], numbers + bool(last_rows)]).astype(np.int64)

    def sound(self, offsets: IntArray, name: str) -> IntArray:
        if not self._is_sound(offsets):
            message = (
                f"expected episodes that follow one another and have {self._rows} steps together, as many as actions"
            )
            raise FormatError(message, path=self._path, where=name)
        return offsets

    def _is_sound(self, offsets: IntArray) -> bool:
        inside = len(offsets) > 1 and offsets[0] == 0 and offsets[-1] == self._rows
        return inside and not (np.diff(offsets) < 0).any()

    def stated(self) -> tuple[IntArray, list[str], list[str]] | None:
        """Return offsets that rows, lengths or cuts state, their names, and the words of the sentence."""
        if not self._stated:
            return None
        if len({offsets.tobytes() for offsets in self._stated.values()}) > 1:
            raise FormatError(f"expected {list(self._stated)} to agree where episodes end", path=self._path)
        names = " and ".join(f"`{name}`" for name in self._stated)
        return next(iter(self._stated.values())), list(self._stated), [f"at the rows of {names}"]

    def flag(self, name: str) -> BoolArray:
        """Return whether each step is marked; of the flags of first steps, the step before."""
        if name not in self._flags:
            values = self._arrays[name].values
            marked = values if values.dtype.kind == "b" else values != 0
            if name in self._by_meaning["start"]:
                marked = np.append(marked[1:], False)
            if name in (*self._by_meaning["mask"], *self._by_meaning["not done"]):
                marked = ~marked
            self._flags[name] = np.asarray(marked)
        return self._flags[name]

    def either(self, *meanings: Meaning) -> BoolArray | None:
        """Return whether each step is marked by any array of the meanings; None without one."""
        return either(self.flag(name) for name in self._names(*meanings))

    def _names(self, *meanings: Meaning) -> list[str]:
        """Names of arrays of the meanings that state no rows."""
        return [n for meaning in meanings for n in self._by_meaning[meaning] if n not in self._stated]

    def _of_episodes(self, name: str) -> BoolArray:
        """Flags of steps from flags of episodes, as imitation keeps them."""
        values = self._arrays[name].values
        offsets = next(iter(self._stated.values()), None)
        flags = np.zeros(self._rows, np.bool_)
        if offsets is None or len(values) != len(offsets) - 1:
            self._misfit(name, f"{self._rows} rows of one number, one for each action")
        else:
            flags[_last_rows(offsets)] = values[np.diff(offsets) > 0] != 0
        return flags

    def joint(
        self, limit: int | None, breaks: Callable[[], BoolArray | None] | None
    ) -> tuple[IntArray, list[str], list[str]]:
        """Return the offsets that flags, ids and step numbers give together, their names, and the sentence's words."""
        flags = self._names(*FLAGS)
        ids, steps = self._names("id")[:1], self._names("step")[:1]
        marks_limits = bool(self._names("truncation", "end", "start") or ids or steps)
        if limit is not None and marks_limits:
            names = self._names("truncation", "end", "start", "id", "step")
            message = f"expected no max_episode_steps for a file with {' and '.join(names)}, got {limit}"
            raise FormatError(message, path=self._path, where=names[0])
        ended = self.either(*FLAGS)
        words: list[str] = []
        if limit is not None:
            self.limited = _limited(np.zeros(self._rows, np.bool_) if ended is None else ended, limit)
            ended = either((ended, self.limited))
            words.append(f"after {limit} steps")
        elif not marks_limits and breaks is not None and (broken := breaks()) is not None:
            ended = either((ended, np.append(broken, False)))
            words.append("where the next observation is not the observation of the next row")
        values = self._arrays[ids[0]].values if ids else None
        numbers = self._arrays[steps[0]].values if steps else None
        name = ids[0] if ids else "episode"
        episodes = StepRuns.of(values, numbers, ended, self._rows).episodes(self._path, name)
        if len(episodes.falls_within):
            self._unordered[steps[0]] = int(episodes.falls_within[0])
        words += [f"where `{name}` changes" for name in ids]
        words += [f"where `{name}` starts again" for name in steps if episodes.uses_steps]
        flags, steps = (flags if episodes.uses_ends else []), (steps if episodes.uses_steps else [])
        if flags:
            verb = "is 0" if set(flags) <= set(self._by_meaning["not done"]) else "is true"
            words.insert(0, f"where {_listed([f'`{name}`' for name in flags])} {verb}")
        return episodes.offsets, [*flags, *ids, *steps], [_listed(words)] if words else []

    def terminations(self, offsets: IntArray) -> tuple[BoolArray, list[str]]:
        """Whether each step terminated its episode, and the arrays that say so; `dones` without them."""
        if (marked := self.either("termination")) is not None:
            return marked, self._names("termination")
        for name in self._names("mask"):
            if (self._names("done", "end") or self._stated) and not _cuts_more(self.flag(name), offsets):
                return self.flag(name), [name]
        done, truncated = self.either("done", "not done"), self.either("truncation")
        if done is None:
            return np.zeros(self._rows, np.bool_), []
        if truncated is not None and done[truncated].all():
            done = done & ~truncated
        return done, self._names("done", "not done")

    def consumed(self, last: IntArray, terminations: BoolArray, truncations: BoolArray) -> frozenset[str]:
        """Return the arrays whose values offsets, terminations and truncations have."""
        names = {*self._stated, *self._names("termination", "truncation")}
        for name in self._names("done", "not done", "end", "start"):
            flag = self.flag(name)
            if name in self._by_meaning["start"]:
                flag = np.append(flag[:-1], True)
            if (
                (np.count_nonzero(flag) == len(last) and flag[last].all())
                or np.array_equal(flag, terminations)
                or np.array_equal(flag, truncations)
                or np.array_equal(flag, terminations | truncations)
            ):
                names.add(name)
        return frozenset(names)

    def unused(self, offsets: IntArray, used: set[str]) -> list[LeftOut]:
        """Return entries of arrays that may mark ends within the episodes, and are not used."""
        entries: list[LeftOut] = []
        for name in self._names(*FLAGS):
            if _cuts_more(self.flag(name), offsets):
                entries.append(unused_end(name, "marks further ends, which others do not"))
        for name, row in self._unordered.items():
            entries.append(unordered_steps(name, row))
        others = [*self._names("id", "step"), *self._unknown]
        for name in [name for name in others if name not in used and self._arrays[name].shape[:1] == (self._rows,)]:
            with suppress(FormatError):  # of a damaged array, which is an error when its column is read
                if reason := self._reason(name, offsets):
                    entries.append(unused_end(name, reason))
        return entries

    def _reason(self, name: str, offsets: IntArray) -> str:
        """Why an array with a row for each step may mark ends within the episodes; empty if it does not."""
        array = self._arrays[name]
        if name in self._by_meaning["id"]:
            change = np.append(array.values[1:] != array.values[:-1], False)
            return "changes within episodes" if _cuts_more(change, offsets) else ""
        if not array.is_row:
            is_flag = meaning_of(name) in FLAGS and len(array.shape) > 1
            return f"has the name of a flag, and {array.shape[1:]} values for each step" if is_flag else ""
        return may_mark(name, array, offsets)


def may_mark(name: str, array: MarkArray, offsets: IntArray) -> str:
    """Why an array may mark ends: 0 and 1 by its name or apart, or it rises as an id does; empty if not."""
    head = array.head()
    if array.shape[0] < 2 or not (_is_binary(head) or _rises(head)):
        return ""
    values = array.values
    if _is_binary(values):
        return _may_flag(name.rpartition("/")[2], values != 0, offsets)
    change = np.append(np.diff(values) != 0, False)
    return "rises as the id of an episode" if _rises(values) and _cuts_more(change, offsets) else ""


def _may_flag(name: str, flag: BoolArray, offsets: IntArray) -> str:
    """Why a flag may mark ends within the episodes; empty if it does not."""
    apart = flag.sum() > 1 and not (flag[1:] & flag[:-1]).any()
    called = _HINT.search(name) is not None
    within_last, within_first = _cuts_more(flag, offsets), _cuts_more(np.append(flag[1:], False), offsets)
    if flag.all() or not within_last or not within_first or not (apart or called):
        return ""
    if flag[-1]:
        return "is 0 and 1 as a flag of last steps"
    if flag[0]:
        return "is 0 and 1 as a flag of first steps"
    return "is 0 and 1, and has the name of a flag of ends" if called else ""


def unused_end(name: str, reason: str, thing: Thing = "array") -> LeftOut:
    """Return the entry of an array or column that may mark ends, and is not used."""
    hint = f"`ends={{{name!r}: 'end'}}` uses it (or 'start', 'id', 'step', 'truncation'), 'unused' says that it is none"
    return LeftOut(thing, name, "unused-end", f"{reason}; {hint}")


def unordered_steps(name: str, row: int, thing: Thing = "array") -> LeftOut:
    """Return the entry of step numbers that fall within an episode."""
    hint = f"sort the rows, or say that it is no step number: `ends={{{name!r}: 'unused'}}`"
    return LeftOut(thing, name, "unused-end", f"falls at row {row} within an episode; {hint}")


def _cuts_more(last: BoolArray, offsets: IntArray) -> bool:
    """Whether flags of last steps are within episodes."""
    return bool(np.count_nonzero(last) > np.count_nonzero(last[_last_rows(offsets)]))


def _last_rows(offsets: IntArray) -> IntArray:
    return offsets[1:][np.diff(offsets) > 0] - 1


def _is_binary(values: AnyArray) -> bool:
    """Whether all values are 0 or 1."""
    return values.dtype.kind == "b" or bool(((values == 0) | (values == 1)).all())


def _is_whole(array: MarkArray) -> bool:
    return array.dtype.kind in "iu" or bool((array.values == np.floor(array.values)).all())


def _rises(values: AnyArray) -> bool:
    """Whether whole numbers never fall, change, and change in less than half of the rows."""
    if values.dtype.kind not in "iu" or len(values) < 2:
        return False
    return bool((values[1:] >= values[:-1]).all()) and 2 * int((values[1:] != values[:-1]).sum()) < len(values)


def _limited(ended: BoolArray, limit: int) -> BoolArray:
    """`[N]` the steps that are the last of so many since the last end."""
    ends = ended.copy()
    ends[-1] = True
    lengths = np.diff(np.flatnonzero(ends), prepend=-1)
    begin = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return (np.arange(len(ended)) - begin) % limit == limit - 1


def _listed(words: Sequence[str]) -> str:
    """Words with commas, and `or` before the last."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# Of the groups of a column, the first of which a file has a name counts.
COLUMN_NAMES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "observations": (("observations", "observation", "obs", "ob"), ("states", "state")),
    "next_observations": (("next_observations", "next_observation", "next_obs", "obs2"), ("next_states", "next_state")),
    "actions": (("actions", "action", "acts", "act", "acs", "ac"),),
    "rewards": (("rewards", "reward", "rews", "rew"),),
}
