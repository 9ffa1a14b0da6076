"""dm_control demonstrations: a gzipped pickle of a list of trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from penstock.containers.pickle import loads
from penstock.core.narrowing import is_list
from penstock.core.spaces import Box, Space
from penstock.errors import FormatError
from penstock.formats.base.format import folder_of
from penstock.formats.base.source import Source
from penstock.formats.demos.imitation import opening
from penstock.formats.demos.source import Kind
from penstock.formats.demos.trajectories import Track, source_of, unpickled
from penstock_imitation.formats.native.unpack import MAX_BYTES, head_of, other_files, some_files, unpacked

SUFFIX = ".pkl.gz"
_CLASSES = (b"imitation.data.types", b"imitation.util.rollout")


class DmControlKind(Kind):
    """`.pkl.gz` of a list of imitation's trajectories; see `read_dm_control`."""

    name: ClassVar[str] = "dm_control"
    several: ClassVar[bool] = True
    description: ClassVar[str] = "dm_control trajectories in .pkl.gz"
    options: ClassVar[tuple[str, ...]] = ("frame_stack", "max_bytes")

    def recognises(self, path: Path) -> bool:
        """By the first words of the first pickle: a list, and the name of a class of trajectories."""
        head = head_of(path, SUFFIX, gzipped=True)
        return opening(head, 1) == ["EMPTY_LIST"] and any(name in head[:256] for name in _CLASSES)

    def open(self, path: Path | Sequence[Path], **options: Any) -> Source:
        return read_dm_control(path, **options)


def read_dm_control(
    path: Path | Sequence[Path], *, frame_stack: int | None = None, max_bytes: int = MAX_BYTES
) -> Source:
    """The trajectories of a file, of all files `*.pkl.gz` of a folder, or of several files.

    `observations` as stored, `[T + 1, C, H, W]` uint8; with `frame_stack=k`, `[T + 1, k C, H, W]`, the oldest frame
    first, black before an episode begins; stacks are made when they are read and cost no memory. A trajectory whose
    last `discount` is above 0 is truncated, as dm_control defines it.

    Memory: the content of all files, unpacked, and the content of the largest once more while it is opened.
    """
    tracks: list[Track] = []
    for file in some_files(path, SUFFIX):
        value = loads(unpacked(file, max_bytes), path=file)
        if not is_list(value):
            raise FormatError(f"expected a list of trajectories, got {type(value).__name__}", path=file)
        for i, trajectory in enumerate(value):
            metadata = {"file": file.name, "trajectory": i}
            tracks.append(unpickled(trajectory, path=file, where=f"trajectory {i}", metadata=metadata))
    metadata = {"kind": DmControlKind.name, "color_space": "RGB"}
    return source_of(
        tracks,
        metadata,
        path=folder_of(path),
        frame_stack=frame_stack,
        action_space=_action_space(tracks),
        left_out=other_files(path, SUFFIX),
    )


def _action_space(tracks: list[Track]) -> Space | None:
    """Actions are scaled to [-1, 1]; None for other actions."""
    actions = [array for track in tracks for array in track.actions.values() if len(array)]
    if not actions:
        return None
    shape, dtype = actions[0].shape[1:], actions[0].dtype
    scaled = all(array.shape[1:] == shape and (np.abs(array) <= 1).all() for array in actions)
    return Box(np.full(shape, -1, dtype), np.full(shape, 1, dtype), dtype) if scaled and dtype.kind == "f" else None
