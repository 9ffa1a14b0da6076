"""Frames of videos as the rows of a column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from penstock.containers.video.files import VideoFiles
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.selection import Selection


@dataclass(frozen=True, eq=False)
class VideoRows:
    """Array column whose rows are frames: a reader for `SourceState.arrays`.

    Args:
        files: The files.
        locate: Returns the file number and the frame number, `[n]` int64 each, of `[n]` int64 row numbers. A function
            of a module or a bound method, so that the column can be pickled.

    Example:
        >>> import tempfile
        >>> from penstock.containers.video import VideoWriter
        >>> path = tempfile.mkdtemp() + "/film.mkv"
        >>> with VideoWriter(path, fps=10, codec="ffv1") as writer:
        ...     writer.append(np.arange(3, dtype=np.uint8)[:, None, None, None] * np.ones((1, 16, 16, 3), np.uint8))
        >>> column = VideoRows(VideoFiles([path]), lambda rows: (rows * 0, rows))
        >>> two, out = np.array([2, 0]), np.empty((2, 1, 16, 16, 3), np.uint8)
        >>> column.read(Selection(two * 0, two, two * 0 + 1, np.array([0, 1]), (2, 1)), out)
        >>> out[:, 0, 0, 0, 0].tolist()
        [2, 0]
    """

    files: VideoFiles
    locate: Callable[[IntArray], tuple[IntArray, IntArray]]

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Decode the rows of a selection into the covered places of `out`.

        Args:
            selection: Rows to read, and their places.
            out: `[n * L, ...]` uint8. Only covered places are written.
        """
        rows = selection.rows().ravel()
        places = np.flatnonzero(rows >= 0)
        files, frames = self.locate(rows[places])
        self.files.read(files, frames, places, out.reshape(-1, *self.files.shape))
