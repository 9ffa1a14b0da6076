"""Compatibility layer for the sampler of Diffusion Policy: `SequenceSampler`, `get_val_mask` and `downsample_mask`.

They have the names and arguments of `diffusion_policy.common.sampler`. `docs/mirrors/diffusion_policy.md` lists what
differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

import penstock
from penstock.errors import SpecError

__all__ = ["SequenceSampler", "downsample_mask", "get_val_mask"]

NO_KEYS: Mapping[str, int] = {}


class ReplayBuffer(Protocol):
    """Replay buffer of Diffusion Policy: arrays whose rows are the steps of all episodes, and where these end."""

    @property
    def episode_ends(self) -> Any:
        """`[E]` first step after each episode."""
        ...

    def keys(self) -> Iterable[str]:
        """Return the names of the arrays."""
        ...

    def __getitem__(self, key: str, /) -> Any:
        """Return an array, `[steps, ...]`."""
        ...


class SequenceSampler:
    """Windows of consecutive steps, as the class of this name in Diffusion Policy gives them.

    A window may begin `pad_before` steps before its episode and end `pad_after` steps after it. Missing rows are the
    first or the last row of the episode.

    Args:
        replay_buffer: A `penstock.EpisodeDataset`, whose rows are read when they are needed, or a replay buffer of
            Diffusion Policy, whose arrays are taken into memory.
        sequence_length: Steps of a window, at least 1.
        pad_before: Most missing rows before an episode. Numbers above `sequence_length - 1` count as that. The default
            is 0.
        pad_after: Most missing rows after an episode, in the same way. The default is 0.
        keys: Names of the arrays of a sample. The default is None: all.
        key_first_k: Number of rows that are needed of a key, counted from the first row inside the episode. Later rows
            are NaN, or 0 where the dtype has no NaN. The default is none.
        episode_mask: `[E]` bool, the episodes to use. The default is None: all.

    Attributes:
        samples: The windows as a `penstock.MapDataset`, for `samples.shuffle().loader(64, output="torch")`.

    Raises:
        PlanError: A number is out of range.
        SpecError: There is no array of a name, or its rows differ in shape.

    Example:
        >>> import numpy as np
        >>> data = penstock.from_arrays({"actions": np.arange(7)}, lengths=[3, 4])
        >>> sampler = SequenceSampler(data, 3, pad_before=1, pad_after=1)
        >>> len(sampler), sampler.sample_sequence(0)["actions"].tolist()
        (7, [0, 0, 1])
        >>> sampler.samples[:]["actions"][-1].tolist()
        [5, 6, 6]
    """

    def __init__(
        self,
        replay_buffer: penstock.EpisodeDataset | ReplayBuffer,
        sequence_length: int,
        pad_before: int = 0,
        pad_after: int = 0,
        keys: Iterable[str] | None = None,
        key_first_k: Mapping[str, int] = NO_KEYS,
        episode_mask: Any = None,
    ) -> None:
        data = replay_buffer if isinstance(replay_buffer, penstock.EpisodeDataset) else _dataset(replay_buffer)
        columns = _columns_by_key(data)
        self.keys = list(columns) if keys is None else list(keys)
        if unknown := [key for key in [*self.keys, *key_first_k] if key not in columns]:
            raise SpecError(f"expected keys among {list(columns)}, got {unknown}")
        self.replay_buffer = replay_buffer
        self.sequence_length = sequence_length
        self.key_first_k = dict(key_first_k)
        self._data = data if episode_mask is None else data[np.asarray(episode_mask, bool)]
        most = max(sequence_length - 1, 0)
        self._pads = min(max(pad_before, 0), most), min(max(pad_after, 0), most)
        chosen = {key: columns[key] for key in self.keys}
        first = {key: max(int(k), 0) for key, k in key_first_k.items() if key in chosen}
        self.samples = self._windows(chosen, first)

    def _windows(self, columns: Mapping[str, str], first: Mapping[str, int]) -> penstock.MapDataset:
        """Return the windows, without the rows that no sample needs where another column tells the mask."""
        before, after = self._pads
        needed = {columns[key]: min(before + k, self.sequence_length) for key, k in first.items()}
        needed = {path: rows for path, rows in needed.items() if self._data.spec[path].align == "step" and rows > 0}
        if not any(field.align != "episode" for path, field in self._data.spec.items() if path not in needed):
            needed = {}
        windows = self._data.windows(
            self.sequence_length,
            pad="repeat",
            columns={path: (0, rows) for path, rows in needed.items()},
            pad_before=before,
            pad_after=after,
        )
        rows = _Rows(tuple(columns.items()), tuple(first.items()), self.sequence_length)
        return windows.select_columns(*columns.values(), "mask").map(rows)

    def __len__(self) -> int:
        return len(self.samples)

    def sample_sequence(self, idx: int) -> dict[str, Any]:
        """Return one window.

        Args:
            idx: Number of the window; -1 is the last.

        Returns:
            Arrays `[sequence_length, ...]` by key.

        Raises:
            IndexError: There is no such window.
        """
        if not -len(self) <= idx < len(self):
            raise IndexError(f"expected a window within -{len(self)}:{len(self)}, got {idx}")
        columns = self.samples[[idx % len(self)]]
        return {key: columns[key][0] for key in self.keys}

    @property
    def indices(self) -> Any:
        """`[n, 4]` int64: first and last row of each window in the buffer, and their places in the window.

        The rows are counted over all episodes of the buffer. Cost: a table of all windows, made at each use.
        """
        length, (before, after) = self.sequence_length, self._pads
        episodes = self._data.episodes
        windows = np.where(episodes.length > 0, np.maximum(episodes.length - length + 1 + before + after, 0), 0)
        start, steps = (np.repeat(each, windows) for each in (episodes.start, episodes.length))
        begin = np.arange(len(start)) - np.repeat(np.cumsum(windows) - windows, windows) - before
        rows = start + np.maximum(begin, 0), start + np.minimum(begin + length, steps)
        places = np.maximum(-begin, 0), np.minimum(steps - begin, length)
        return np.stack([*rows, *places], axis=1)


@dataclass(frozen=True)
class _Rows:
    """Names columns by their keys, and leaves out rows after the first `k` of a key."""

    keys: tuple[tuple[str, str], ...]
    first: tuple[tuple[str, int], ...]
    length: int

    def __call__(self, columns: penstock.Columns) -> dict[str, Any]:
        place = np.maximum(np.cumsum(columns["mask"], axis=1), 1)  # of each row inside its episode, from 1
        first = dict(self.first)
        return {key: self._rows(columns[path], place, first.get(key)) for key, path in self.keys}

    def _rows(self, rows: Any, place: Any, k: int | None) -> Any:
        if k is None:
            return rows
        nearest = np.minimum(np.arange(self.length), rows.shape[1] - 1)
        taken = rows[:, nearest]
        taken[place > k] = np.nan if rows.dtype.kind in "fc" else 0
        return taken


def get_val_mask(n_episodes: int, val_ratio: float, seed: int = 0) -> Any:
    """Draw the episodes for validation: at least one, and not all.

    Args:
        n_episodes: Number of episodes.
        val_ratio: Share for validation. 0 or less draws none.
        seed: Seed of the draw. The default is 0.

    Returns:
        `[n_episodes]` bool.

    Example:
        >>> get_val_mask(4, 0.25).tolist()
        [False, False, False, True]
    """
    mask = np.zeros(n_episodes, bool)
    if val_ratio > 0:
        count = min(max(round(n_episodes * val_ratio), 1), n_episodes - 1)
        mask[np.random.default_rng(seed).choice(n_episodes, size=count, replace=False)] = True
    return mask


def downsample_mask(mask: Any, max_n: int | None, seed: int = 0) -> Any:
    """Keep at most `max_n` of the chosen episodes.

    Args:
        mask: `[E]` bool, the chosen episodes.
        max_n: Most episodes to keep. None keeps all.
        seed: Seed of the draw. The default is 0.

    Returns:
        `[E]` bool. It is `mask` itself if that has few enough.

    Example:
        >>> downsample_mask(np.ones(4, bool), 3).tolist()
        [False, True, True, True]
    """
    chosen = np.flatnonzero(mask)
    if max_n is None or len(chosen) <= max_n:
        return mask
    kept = np.zeros_like(mask)
    kept[chosen[np.random.default_rng(seed).choice(len(chosen), size=int(max_n), replace=False)]] = True
    return kept


def _dataset(buffer: ReplayBuffer) -> penstock.EpisodeDataset:
    offsets = np.concatenate([[0], np.asarray(buffer.episode_ends[:], np.int64)])
    names = buffer.keys()  # it is no mapping, which could be iterated
    arrays = {key: np.asarray(buffer[key][: int(offsets[-1])]) for key in names}
    fields = {key: penstock.Field(array.dtype, array.shape[1:], "step") for key, array in arrays.items()}
    return penstock.EpisodeDataset(penstock.formats.MemorySource(penstock.Spec(fields), arrays, offsets))


def _columns_by_key(data: penstock.EpisodeDataset) -> dict[str, str]:
    """Return the column of each key. In Zarr, keys are the names of the arrays; otherwise the paths of columns."""
    names: Any = data.metadata.get("zarr_keys", {})
    paths: Sequence[str] = [path for path, field in data.spec.items() if field.align != "episode" and not field.ragged]
    return {str(names.get(path, path)).removeprefix("data/"): path for path in paths}
