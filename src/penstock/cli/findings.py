"""Check the values of any format: episode ends, next observations, NaN and infinity, bounds of spaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.conversion.scan import equal
from penstock.core.arrays import BoolArray, IntArray
from penstock.core.columns import under
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spaces import Space, Text
from penstock.core.text import counted
from penstock.errors import PenstockError
from penstock.formats.base.format import Finding
from penstock.formats.base.source import Source

SAMPLED = 1 << 28  # bytes of columns that are looked at by default
FLAGS = ("terminations", "truncations", "dones")
NEXT = "next_observations"

# Kinds of findings that the format's own check reports already.
SAID = {"minari": frozenset(("NaN", "outside", "open", "empty")), "webdataset": frozenset(("next",))}


@dataclass
class Count:
    """The number of findings of one kind, and the place of the first."""

    rows: int = 0
    episodes: int = 0
    where: str = ""

    def add(self, rows: int, where: str) -> None:
        """Add the findings of one episode."""
        self.rows, self.episodes = self.rows + rows, self.episodes + 1
        self.where = self.where or where


@dataclass
class Tally:
    """Everything found, by kind and column."""

    counts: dict[tuple[str, str], Count] = field(default_factory=dict[tuple[str, str], Count])

    def add(self, kind: str, column: str, bad: BoolArray, episode: int) -> None:
        """Count the rows of an episode that are bad."""
        if n := int(np.count_nonzero(bad)):
            where = f"episode {episode}/{column} row {int(np.argmax(bad))}" if column else f"episode {episode}"
            self.counts.setdefault((kind, column), Count()).add(n, where)


MESSAGES = {
    "NaN": "NaN in {rows} of {column}, {episodes}",
    "infinite": "infinite values in {rows} of {column}, {episodes}",
    "outside": "values outside their space in {rows} of {column}, {episodes}",
    "middle": "{column} set before the last step, {times} in {episodes}",
    "open": "the last step is neither terminated nor truncated, in {episodes}",
    "empty": "no steps, in {episodes}",
    "next": "{column} is not the observation of the next step, in {steps} of {episodes}",
}


def findings(source: Source, format: str, *, deep: bool) -> Iterator[Finding]:
    """Check the episodes; unless `deep`, only a part of 256 MiB, evenly spread.

    Each kind is one finding for a column, with its count and first place. Memory: one block of episodes.
    """
    if len(source) == 0:
        yield Finding("warning", format, "no episodes: there is nothing to check; is this the format of the data?")
        return
    chosen = _chosen(source, deep=deep)
    if len(chosen) < len(source):
        yield Finding(
            "warning", format, f"looked at {len(chosen)} of {counted(len(source), 'episode')}; --deep looks at all"
        )
    tally, spaces = Tally(), _spaces(source)
    for part in np.array_split(chosen, max(len(chosen) // 64, 1)):
        try:
            for episode in source.episodes(part.tolist()):
                _episode(episode, spaces, tally)
        except PenstockError as error:
            yield Finding("error", f"episodes {part[0]} to {part[-1]}", str(error))
    for (kind, column), count in tally.counts.items():
        if kind not in SAID.get(format, ()):
            level = "error" if kind == "NaN" else "warning"
            numbers = {f"{noun}s": counted(count.rows, noun) for noun in ("row", "step", "time")}
            message = MESSAGES[kind].format(column=column, episodes=counted(count.episodes, "episode"), **numbers)
            yield Finding(level, count.where, message)


def _chosen(source: Source, *, deep: bool) -> IntArray:
    """Return `[k]` episodes to check."""
    everything = np.arange(len(source))
    width = sum(column.row_bytes for column in source.spec.values())
    if deep or source.steps * width <= SAMPLED or len(source) < 2:
        return everything
    count = max(int(len(source) * SAMPLED / (source.steps * width)), 1)
    return np.unique(np.linspace(0, len(source) - 1, count).astype(np.int64))


def _spaces(source: Source) -> dict[str, Space]:
    found: dict[str, Space] = {}
    spec = source.spec
    for root, space in (("observations", spec.observation_space), ("actions", spec.action_space)):
        leaves = [] if space is None else list(space.leaves())
        found |= {f"{root}/{path}" if path else root: leaf for path, leaf in leaves}
    return {path: leaf for path, leaf in found.items() if path in spec and not isinstance(leaf, Text)}


def _episode(episode: Episode, spaces: dict[str, Space], tally: Tally) -> None:
    if len(episode) == 0:
        tally.add("empty", "", np.ones(1, np.bool_), episode.id)
        return
    for path, array in episode.columns.items():
        if isinstance(array, Ragged):
            continue
        bad = np.zeros(len(array), np.bool_)
        watched = path == "rewards" or under("observations", path) or under("actions", path)
        if watched and array.dtype.kind in "fc" and array.size:
            rows = array.reshape(len(array), -1)
            bad = _rows(np.isnan(rows))
            tally.add("NaN", path, bad, episode.id)
            tally.add("infinite", path, _rows(np.isinf(rows)), episode.id)
        if path in spaces:
            tally.add("outside", path, ~spaces[path].contains(array) & ~bad, episode.id)
    _ends(episode, tally)
    _next(episode, tally)


def _ends(episode: Episode, tally: Tally) -> None:
    held = {name: np.asarray(episode.columns[name]) for name in FLAGS if name in episode.columns}
    flags = {name: _rows(flag.astype(np.bool_)) for name, flag in held.items() if len(flag) == len(episode)}
    for name, flag in flags.items():
        middle = flag.copy()
        middle[-1:] = False
        tally.add("middle", name, middle, episode.id)
    if flags:
        tally.add("open", "", ~_any(list(flags.values()))[-1:], episode.id)


def _rows(bad: BoolArray) -> BoolArray:
    """Return `[n]` whether any value of a row is true."""
    return np.asarray(bad.reshape(len(bad), -1).any(axis=1))


def _any(flags: Sequence[BoolArray]) -> BoolArray:
    return np.asarray(np.logical_or.reduce(flags))


def _next(episode: Episode, tally: Tally) -> None:
    """Compare stored next observations with the observations, which have T + 1 rows, or T."""
    for path, after in episode.columns.items():
        now = episode.columns.get("observations" + path[len(NEXT) :])
        if not under(NEXT, path) or isinstance(after, Ragged) or now is None or isinstance(now, Ragged):
            continue
        n = min(len(after), len(now) - 1)
        if n > 0 and after.shape[1:] == now.shape[1:]:
            differs = _rows(~equal(after[:n], now[1 : n + 1]))
            tally.add("next", path, differs, episode.id)
