"""The contract of sources, for the layouts of versions 2.1 and 3.0."""

# pyright: basic

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Spec
from penstock.formats.base.source import Source
from penstock.formats.lerobot import FORMAT
from penstock.testing.examples import Example, field
from penstock.testing.sources import SourceContract
from tests.formats.lerobot.files import write_new, write_old

TASKS = ("pick", "place it", "né")
SPEC = Spec(
    {
        "observations/state": field("f4", 3),
        "observations/effort": field("f8", 2, 3),
        "observations/note": field("u1", kind="text"),
        "actions": field("f2", 2),
        "rewards": field("f4"),
        "terminations": field("?"),
        "truncations": field("?"),
        "gripper/width": field("i8"),
        "flags": field("?", 4),
        "byte": field("u1"),
        "timestamp": field("f4"),
        "episode_index": field("i8"),
        "task_index": field("i8"),
        "task": field("u1", kind="text"),
    }
)


@dataclass(frozen=True, eq=False)
class Frames(Example):
    """Random frames, with the numbers that the format wants."""

    def episodes(self, seed: int = 0) -> list[Episode]:
        made = []
        for e in super().episodes(seed):
            task = (np.arange(len(e)) + e.id) % len(TASKS)
            own = {
                "timestamp": (np.arange(len(e)) / 10).astype("f4"),
                "episode_index": np.full(len(e), e.id),
                "task_index": task,
                "task": Ragged.from_strings([TASKS[i] for i in task]),
            }
            made.append(Episode(e.spec, {**e.columns, **own}, e.id, e.metadata))
        return made

    def __repr__(self) -> str:
        return self.name


class Contract(SourceContract):
    # The tasks of the first episodes are in the order of their numbers.
    examples: ClassVar[Sequence[Example]] = (Frames("frames", SPEC, (3, 1, 7, 2, 5)), Frames("short", SPEC, (3, 1)))


class TestNew(Contract):
    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        return FORMAT.open(write_new(path / "data", episodes))


class TestNewUncached(Contract):
    """Hardly anything stays decoded, and row groups have one row."""

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        return FORMAT.open(write_new(path / "data", episodes, group=1, each=3), cache_bytes=100)


class TestOld(Contract):
    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        return FORMAT.open(write_old(path / "data", episodes))
