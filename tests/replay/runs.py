"""Episodes for tests of replay, whose values say where they are from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import penstock
from penstock import Episode, Field, Spec
from penstock.core.columns import Columns
from penstock.replay.draw import Draw
from penstock.replay.replay import run_of

SPEC = Spec(
    {
        "observations": Field(np.dtype("f4"), (3,), "boundary"),
        "actions": Field(np.dtype("i8")),
        "rewards": Field(np.dtype("f8")),
        "terminations": Field(np.dtype("?")),
        "truncations": Field(np.dtype("?")),
        "task": Field(np.dtype("i4"), (), "episode"),
    }
)


def episode(number: int, steps: int) -> Episode:
    """Episode whose values name the episode and the step. Every second one terminates, the others are truncated."""
    end = np.arange(steps) == steps - 1
    rows = 1000.0 * number + np.arange(steps + 1)
    return Episode(
        SPEC,
        {
            "observations": np.stack([rows, rows + 0.25, rows + 0.5], 1).astype("f4"),
            "actions": (1000 * number + np.arange(steps)).astype("i8"),
            "rewards": 1000.0 * number + np.arange(steps) + 0.5,
            "terminations": end & (number % 2 == 0),
            "truncations": end & (number % 2 == 1),
            "task": np.array([number], "i4"),
        },
        number,
    )


def episodes(lengths: Sequence[int], first: int = 0) -> list[Episode]:
    return [episode(first + i, steps) for i, steps in enumerate(lengths)]


def lengths_of(seed: int, n: int, most: int = 12) -> list[int]:
    return np.random.default_rng(seed).integers(1, most + 1, n).tolist()


def filled(replay: penstock.Replay, lengths: Sequence[int], first: int = 0) -> penstock.Replay:
    replay.write_all(episodes(lengths, first))
    return replay


def take(replay: penstock.Replay, anchors: Any) -> Columns:
    """Samples by their numbers."""
    run = run_of(replay)
    with run.lock:
        run.pull()
        return Columns.of_flat(run.take(np.array(anchors)), len(anchors))


def drawn_from(replay: penstock.Replay, n: int) -> Draw:
    """Numbers of drawn samples."""
    return run_of(replay).draw(n)[0]


def counts_of(replay: penstock.Replay) -> tuple[Any, ...]:
    """Steps and samples in memory, and all episodes."""
    contents = run_of(replay).contents
    return contents.extent, contents.anchors, contents.episodes
