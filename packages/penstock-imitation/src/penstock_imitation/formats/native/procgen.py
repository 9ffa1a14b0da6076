"""Procgen demonstrations: a bare pickle of a dict of lists, an array a trajectory."""

from __future__ import annotations

from os.path import isfile
from pathlib import Path
from typing import Any, ClassVar

from penstock.containers.pickle import loads
from penstock.core.narrowing import is_dict, is_list
from penstock.core.spaces import Discrete
from penstock.errors import FormatError
from penstock.formats.base.account import LeftOut
from penstock.formats.base.source import Source
from penstock.formats.demos.imitation import opening
from penstock.formats.demos.source import Kind
from penstock.formats.demos.trajectories import Track, numbers, source_of
from penstock_imitation.formats.native.states import channels_first, flags, tracks_of
from penstock_imitation.formats.native.unpack import MAX_BYTES, head_of, unpacked

KEYS = ("obs", "acts", "rews", "dones")
ACTIONS = 15  # of every procgen game
_SUFFIX = ".pickle"


class ProcgenKind(Kind):
    """A pickled dict of the lists `obs`, `acts`, `rews` and `dones`; see `read_procgen`."""

    name: ClassVar[str] = "procgen"
    description: ClassVar[str] = "procgen rollouts in a pickle"
    options: ClassVar[tuple[str, ...]] = ("frame_stack", "max_bytes")

    def recognises(self, path: Path) -> bool:
        """By the first words of the pickle: a dict whose first key is one of ours and leads to a list."""
        if not isfile(path):
            return False
        first = opening(head_of(path, _SUFFIX), 3)
        return len(first) == 3 and first[0] == "EMPTY_DICT" and first[1] in KEYS and first[2] == "EMPTY_LIST"

    def open(self, path: Path, **options: Any) -> Source:
        return read_procgen(path, **options)


def read_procgen(path: Path, *, frame_stack: int | None = None, max_bytes: int = MAX_BYTES) -> Source:
    """The trajectories of one file: `n` images, actions, rewards and dones make `n - 1` steps (see `tracks_of`).

    `observations` `[T + 1, C, H, W]` uint8; with `frame_stack=k`, `[T + 1, k C, H, W]`, the oldest frame first, black
    before an episode begins; stacks are made when they are read and cost no memory.

    Memory: twice the file while it is opened, then its images.
    """
    value = loads(unpacked(path, max_bytes), path=path)
    if not is_dict(value) or not {"obs", "acts", "dones"} <= value.keys():
        got = list(value)[:20] if is_dict(value) else type(value).__name__
        raise FormatError(f"expected a dict with obs, acts, rews and dones, got {got}", path=path)
    lists: dict[str, Any] = {name: value[name] for name in KEYS if name in value}
    counts = {name: len(rows) if is_list(rows) else None for name, rows in lists.items()}
    if len(set(counts.values())) > 1 or None in counts.values():
        raise FormatError(f"expected lists with equal numbers of trajectories, got {counts}", path=path)
    tracks = [track for i in range(len(lists["obs"])) for track in _tracks(lists, i, path)]
    fits = all(((a >= 0) & (a < ACTIONS)).all() for track in tracks for a in track.actions.values())
    names = sorted(str(name) for name in value.keys() - set(KEYS))
    message = f"expected the lists {', '.join(KEYS)}"
    left_out = [LeftOut("column", name, "unused-array", f"{message}, got {name}") for name in names]
    metadata = {"kind": ProcgenKind.name, "color_space": "RGB"}
    space = Discrete(ACTIONS) if fits else None
    return source_of(tracks, metadata, path=path, frame_stack=frame_stack, action_space=space, left_out=left_out)


def _tracks(lists: dict[str, Any], i: int, path: Path) -> list[Track]:
    where = f"trajectory {i}"
    images = channels_first(numbers(lists["obs"][i], "obs", path=path, where=where), path=path, where=where)
    lists["obs"][i] = None  # given back as it goes
    columns = {"actions": numbers(lists["acts"][i], "acts", path=path, where=where)}
    if "rews" in lists:
        columns["rewards"] = numbers(lists["rews"][i], "rews", path=path, where=where)
    return tracks_of(
        images,
        columns,
        flags(lists["dones"][i], path=path, where=where),
        metadata={"trajectory": i},
        path=path,
        where=where,
    )
